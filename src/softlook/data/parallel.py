"""Parallel text: two files with corresponding lines."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from shlex import quote

from softlook.base.errors import DataError
from softlook.data.columns import is_language
from softlook.data.examples import ReadStats
from softlook.data.files import compression_of, uncompressed_name
from softlook.data.lines import MAX_LINE_CHARS, Line, read_lines
from softlook.data.records import Origin


def pair_files(files: list[Path], source: str | None = None, target: str | None = None) -> list[tuple[Path, Path]]:
    """(source, target) files: two in the given order, more by their names without the language.

    >>> files = [Path(name) for name in ("a.en", "b.en", "a.de", "b.de")]
    >>> [(one.name, other.name) for one, other in pair_files(files)]
    [('a.en', 'a.de'), ('b.en', 'b.de')]
    """
    if len(files) == 1:
        raise DataError(
            "this file has one text per line; a translation needs two",
            file=files[0],
            help="separate the two by a tab, or name two files with corresponding lines: --data a.en a.de",
        )
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault("" if len(files) == 2 else _split_language(path)[0], []).append(path)
    return [_order_pair(group, source, target) for group in groups.values()]


def read_parallel(
    source: Path, target: Path, max_line_chars: int = MAX_LINE_CHARS, stats: ReadStats | None = None
) -> Iterator[tuple[tuple[str, str], Origin]]:
    """Corresponding lines of two files, each pair with the origin of its source."""
    stats = stats or ReadStats()
    sources, targets = read_lines(source, max_chars=max_line_chars), read_lines(target, max_chars=max_line_chars)
    for one, other in zip_longest(sources, targets):
        if one is None or other is None:
            raise _length_mismatch_error(source, target, one, other)
        error = one.error or other.error
        if error:
            stats.skip_bad_row(error)
        else:
            yield (one.text, other.text), Origin(source, one.number)


def language_from_name(path: Path) -> str | None:
    """The language in a file's name.

    >>> [language_from_name(Path(name)) for name in ("train.en.gz", "german.txt", "a.txt")]
    ['en', 'german', None]
    """
    return _split_language(path)[1]


def _split_language(path: Path) -> tuple[str, str | None]:
    """A path without its language, and the language."""
    parts = re.split(r"([._-])", uncompressed_name(path))
    for index in range(len(parts) - 1, -1, -2):
        if is_language(parts[index]):
            rest = "".join(parts[:index] + parts[index + 1 :])
            return str(path.with_name(rest or "-")), parts[index].casefold()
    return str(path), None


def _order_pair(group: list[Path], source: str | None, target: str | None) -> tuple[Path, Path]:
    if len(group) != 2:
        raise DataError(
            f"cannot tell which files belong together: {', '.join(path.name for path in group[:8])}",
            file=group[0],
            help="name two files, the source first, or several that differ in the language only: a.en a.de b.en b.de",
        )
    languages = [language_from_name(path) for path in group]
    for requested in (source, target):
        if requested is not None and requested.casefold() not in languages:
            raise DataError(
                f"neither file name has the language {requested!r:.80}",
                file=group[0],
                help="leave it out: the source comes first",
            )
    is_swapped = (
        source is not None
        and source.casefold() == languages[1]
        or target is not None
        and target.casefold() == languages[0]
    )
    return (group[1], group[0]) if is_swapped else (group[0], group[1])


def _length_mismatch_error(source: Path, target: Path, one: Line | None, other: Line | None) -> DataError:
    short, long, last = (target, source, one) if other is None else (source, target, other)
    assert last is not None  # one of the two continues
    is_compressed = compression_of(source) or compression_of(target)
    return DataError(
        f"this file ends here, while {long} has a line {last.number:,}",
        file=short,
        line=last.number,
        why="the lines of the two files do not correspond from some line on",
        help="" if is_compressed else f"paste {quote(str(source))} {quote(str(target))} | less",
    )
