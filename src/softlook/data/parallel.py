"""Two text files whose lines belong together, as translations are often kept."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from shlex import quote

from softlook.base.errors import DataError
from softlook.data.files import packing_of, plain_name
from softlook.data.lines import LONGEST, Line, read_lines
from softlook.data.names import is_language
from softlook.data.records import Origin
from softlook.data.tally import Tally


def paired_files(files: list[Path], source: str | None = None, target: str | None = None) -> list[tuple[Path, Path]]:
    """Which files go together: two as they come, more by what is left of their names without the language.

    >>> files = [Path(name) for name in ("a.en", "b.en", "a.de", "b.de")]
    >>> [(one.name, other.name) for one, other in paired_files(files)]
    [('a.en', 'a.de'), ('b.en', 'b.de')]
    """
    if len(files) == 1:
        raise DataError(
            "this file has one text to a line; a translation needs two",
            file=files[0],
            help="put a tab between the two, or name two files whose lines belong together: --data a.en a.de",
        )
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault("" if len(files) == 2 else _apart(path)[0], []).append(path)
    return [_ordered(group, source, target) for group in groups.values()]


def read_parallel(
    source: Path, target: Path, longest: int = LONGEST, tally: Tally | None = None
) -> Iterator[tuple[str, str, Origin]]:
    """The lines of both files side by side, each pair with where its source is from."""
    tally = tally or Tally()
    ways = read_lines(source, longest=longest), read_lines(target, longest=longest)
    for one, other in zip_longest(*ways):
        if one is None or other is None:
            raise _uneven(source, target, one, other)
        fault = one.fault or other.fault
        if fault:
            tally.bear(fault)
        else:
            yield one.text, other.text, Origin(source, one.number)


def language_of(path: Path) -> str | None:
    """The language a file's name says.

    >>> language_of(Path("train.en.gz")), language_of(Path("german.txt")), language_of(Path("a.txt"))
    ('en', 'german', None)
    """
    return _apart(path)[1]


def _apart(path: Path) -> tuple[str, str | None]:
    """A path without its language, and the language."""
    parts = re.split(r"([._-])", plain_name(path))
    for place in range(len(parts) - 1, -1, -2):
        if is_language(parts[place]):
            rest = "".join(parts[:place] + parts[place + 1 :])
            return str(path.with_name(rest or "-")), parts[place].casefold()
    return str(path), None


def _ordered(group: list[Path], source: str | None, target: str | None) -> tuple[Path, Path]:
    if len(group) != 2:
        raise DataError(
            f"it is not clear which files go together: {', '.join(path.name for path in group[:8])}",
            file=group[0],
            help="name two files, the source first, or several that differ in the language only: a.en a.de b.en b.de",
        )
    languages = [language_of(path) for path in group]
    for asked in (source, target):
        if asked is not None and asked.casefold() not in languages:
            raise DataError(
                f"neither file's name says {asked!r:.80}", file=group[0], help="leave it out: the source comes first"
            )
    is_turned = (
        source is not None
        and source.casefold() == languages[1]
        or target is not None
        and target.casefold() == languages[0]
    )
    return (group[1], group[0]) if is_turned else (group[0], group[1])


def _uneven(source: Path, target: Path, one: Line | None, other: Line | None) -> DataError:
    short, long, last = (target, source, one) if other is None else (source, target, other)
    assert last is not None  # one of the two goes on
    return DataError(
        f"this file ends here, while {long} has a line {last.number:,}",
        file=short,
        line=last.number,
        why="line by line the two should say the same: from some line on they do not",
        help=""
        if packing_of(source) or packing_of(target)
        else f"paste {quote(str(source))} {quote(str(target))} | less",
    )
