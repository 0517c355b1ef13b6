"""Which files a person means: paths and folders become a list of files, each with its format."""

import errno
import stat
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Literal

from softlook.base.errors import DataError

Format = Literal["text", "tsv", "csv", "jsonl", "parquet"]
Given = str | Path | Sequence[str | Path]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
PACKED = {".gz": "gzip", ".zst": "zstd"}


def find(given: Given) -> list[Path]:
    """The files behind one or more paths. A folder gives all it holds, at any depth, in the order of their names.

    A file named by hand may have any ending, and is plain text where softlook does not know it; in folders only known
    endings count.

    >>> Path("corpus").mkdir()
    >>> for name in ("b.txt", "a.txt.gz", "notes.doc"):
    ...     _ = Path("corpus", name).write_text("words")
    >>> [path.name for path in find("corpus")]
    ['a.txt.gz', 'b.txt']
    """
    paths = [given] if isinstance(given, str | Path) else list(given)
    if not paths:
        raise DataError("no data were given", help="name a file or a folder: --data corpus.txt")
    return [file for path in paths for file in _behind(Path(path))]


def format_of(path: Path) -> Format:
    """What a file holds, by the ending of its name without .gz or .zst.

    >>> format_of(Path("pairs.tsv.gz")), format_of(Path("train.en"))
    ('tsv', 'text')
    """
    return FORMATS.get(Path(plain_name(path)).suffix.lower(), "text")


def packing_of(path: Path) -> str | None:
    """What a file is packed with, gzip or zstd, by the ending of its name; None where it is not packed."""
    return PACKED.get(path.suffix.lower())


def plain_name(path: Path) -> str:
    """A file's name without .gz or .zst."""
    return path.stem if packing_of(path) else path.name


def _behind(path: Path) -> list[Path]:
    kind = _kind(path)
    if stat.S_ISREG(kind):
        return [path]
    if stat.S_ISDIR(kind):
        return _in_folder(path)
    raise DataError(
        "this is no file but a pipe or a device",
        file=path,
        why="the data are read more than once, and a pipe gives them only once",
        help="write them to a file first",
    )


def _kind(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path) from None
    except ValueError:  # a NUL inside the name
        raise DataError("no file can have this name", file=path) from None
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise DataError("this link leads back to itself", file=path, help="name the file itself") from None
        raise DataError(f"this cannot be looked at: {fault.strerror or fault}", file=path) from None


def missing(path: Path) -> DataError:
    """The error for a path that leads nowhere, with the names it may have meant."""
    if path.is_symlink():
        return DataError(f"this link leads to {path.readlink()}, which is not there", file=path)
    folder, wanted = path.parent, path.name
    while not folder.is_dir() and folder != folder.parent:
        folder, wanted = folder.parent, folder.name
    close = get_close_matches(wanted, _names(folder), n=3, cutoff=0.6)
    meant = " or ".join(str(folder / name) for name in close)
    lost = "" if folder == path.parent else f": {folder / wanted} is not there"
    return DataError(f"there is no such file{lost}", file=path, help=f"did you mean {meant}?" if meant else "")


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in islice(folder.iterdir(), 10_000)]
    except OSError:
        return []


def _in_folder(folder: Path) -> list[Path]:
    seen: set[tuple[int, int]] = set()
    found: list[Path] = []
    others = 0
    for path in _walk(folder, seen):
        if Path(plain_name(path)).suffix.lower() in FORMATS:
            found.append(path)
        else:
            others += 1
    if found:
        return found
    held = f"holds {others:,} files, but none with an ending softlook looks for" if others else "holds no files"
    raise DataError(
        f"this folder {held}",
        file=folder,
        why=f"in folders these count: {' '.join(FORMATS)}, each also with .gz or .zst",
        help="name the files themselves: a file named by hand may have any ending" if others else "",
    )


def _walk(top: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """Every file below, each once, links followed; what begins with a dot is left out."""
    waiting = [top]
    while waiting:
        path = waiting.pop()
        try:
            facts = path.stat()
            mark = (facts.st_dev, facts.st_ino)
            if mark in seen:
                continue  # a link to what was met before, perhaps in a circle
            seen.add(mark)
            if stat.S_ISDIR(facts.st_mode):
                below = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
                waiting.extend(reversed(below))
            elif stat.S_ISREG(facts.st_mode):
                yield path
        except OSError as fault:
            if path.is_symlink():
                continue  # leads nowhere: nobody asked for it by name
            raise DataError(f"this cannot be looked into: {fault.strerror or fault}", file=path) from None
