"""Data files: finding them, their formats and compression."""

import errno
import stat
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Literal

from softlook.base.errors import DataError

Format = Literal["text", "tsv", "csv", "jsonl", "json", "excel", "parquet"]
PathOrPaths = str | Path | Sequence[str | Path]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".xlsx": "excel",
    ".parquet": "parquet",
    ".pq": "parquet",
}
COMPRESSION_SUFFIXES = {".gz": "gzip", ".zst": "zstd"}
COMPRESSION_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
"""The first bytes of a compressed file."""


def find_files(paths: PathOrPaths) -> list[Path]:
    """The data files behind one or more paths. A folder gives all files below it, sorted by name.

    A file named explicitly may have any suffix; an unknown one is read as plain text. In folders only known suffixes
    count.

    >>> Path("corpus").mkdir()
    >>> for name in ("b.txt", "a.txt.gz", "notes.doc"):
    ...     _ = Path("corpus", name).write_text("words")
    >>> [path.name for path in find_files("corpus")]
    ['a.txt.gz', 'b.txt']
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise DataError("got no data", help="name a file or a folder: --data corpus.txt")
    return [file for path in given for file in _expand(Path(path))]


def format_of(path: Path) -> Format:
    """The format of a file, by its suffix without .gz or .zst.

    >>> format_of(Path("pairs.tsv.gz")), format_of(Path("train.en"))
    ('tsv', 'text')
    """
    return FORMATS.get(Path(uncompressed_name(path)).suffix.lower(), "text")


def compression_of(path: Path) -> str | None:
    """gzip, zstd or None, by the suffix of a file."""
    return COMPRESSION_SUFFIXES.get(path.suffix.lower())


def compression_suffix(head: bytes) -> str:
    """The suffix that belongs to a file with these first bytes: .gz, .zst or none.

    >>> compression_suffix(b"\\x1f\\x8b\\x08"), compression_suffix(b"text")
    ('.gz', '')
    """
    suffixes = (suffix for suffix, kind in COMPRESSION_SUFFIXES.items() if head.startswith(COMPRESSION_MAGIC[kind]))
    return next(suffixes, "")


def uncompressed_name(path: Path) -> str:
    """A file's name without .gz or .zst."""
    return path.stem if compression_of(path) else path.name


def _expand(path: Path) -> list[Path]:
    mode = _stat_mode(path)
    if stat.S_ISREG(mode):
        return [path]
    if stat.S_ISDIR(mode):
        return _files_in(path)
    raise DataError(
        "this is a pipe or a device, not a file",
        file=path,
        why="the data are read more than once, and a pipe gives them only once",
        help="write them to a file first",
    )


def _stat_mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise missing_file_error(path) from None
    except ValueError:  # a NUL in the name
        raise DataError("this is not a valid file name", file=path) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataError("this link points to itself", file=path, help="name the file itself") from None
        raise DataError(f"cannot access this path: {error.strerror or error}", file=path) from None


def missing_file_error(path: Path) -> DataError:
    """The error for a missing path, with similar names as suggestions."""
    if path.is_symlink():
        return DataError(f"this link points to {path.readlink()}, which does not exist", file=path)
    folder, name = path.parent, path.name
    while not folder.is_dir() and folder != folder.parent:
        folder, name = folder.parent, folder.name
    similar = get_close_matches(name, _names_in(folder), n=3, cutoff=0.6)
    suggestions = " or ".join(str(folder / match) for match in similar)
    missing = "" if folder == path.parent else f": {folder / name} does not exist"
    return DataError(
        f"there is no such file{missing}", file=path, help=f"did you mean {suggestions}?" if suggestions else ""
    )


def _names_in(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in islice(folder.iterdir(), 10_000)]
    except OSError:
        return []


def _files_in(folder: Path) -> list[Path]:
    found: list[Path] = []
    others = 0
    for path in files_below(folder):
        if Path(uncompressed_name(path)).suffix.lower() in FORMATS:
            found.append(path)
        else:
            others += 1
    if found:
        return found
    what = f"has {others:,} files, but none with a known suffix" if others else "has no files"
    raise DataError(
        f"this folder {what}",
        file=folder,
        why=f"in folders these suffixes count: {' '.join(FORMATS)}, each also with .gz or .zst",
        help="name the files themselves: a file named explicitly may have any suffix" if others else "",
    )


def files_below(top: Path) -> Iterator[Path]:
    """Every file below, each once, following links; names that start with a dot are skipped."""
    seen: set[tuple[int, int]] = set()
    stack = [top]
    while stack:
        path = stack.pop()
        try:
            status = path.stat()
            identity = (status.st_dev, status.st_ino)
            if identity in seen:
                continue  # a link to something visited, perhaps a cycle
            seen.add(identity)
            if stat.S_ISDIR(status.st_mode):
                entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
                stack.extend(reversed(entries))
            elif stat.S_ISREG(status.st_mode):
                yield path
        except OSError as error:
            if path.is_symlink():
                continue  # a dangling link that was not named explicitly
            raise DataError(f"cannot read this folder: {error.strerror or error}", file=path) from None
