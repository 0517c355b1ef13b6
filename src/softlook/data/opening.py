"""A file's bytes, unpacked, a block at a time: however large it is, only one block is in memory."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from softlook.base.errors import DataError
from softlook.data.files import format_of, missing, packing_of

BLOCK = 1 << 20
"""Bytes that are read at a time."""
EXPANSION, HARMLESS = 200, 16 << 20
"""Text compresses about fourfold. More than 16 MiB out of a 200th of the compressed bytes is no text."""

PACKINGS = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
SIGNS = (
    (PACKINGS["gzip"], "gzip", "add .gz to its name"),
    (PACKINGS["zstd"], "zstd", "add .zst to its name"),
    (b"PAR1\x15", "parquet", "add .parquet to its name"),
    (b"PK\x03\x04", "a zip archive, or an office document", "unzip it, or save the document as CSV"),
    (b"\xd0\xcf\x11\xe0", "an old office document", "save it as CSV"),
    (b"\xfd7zXZ\x00", "packed with xz", "unpack it: unxz"),
    (b"7z\xbc\xaf\x27\x1c", "packed with 7-zip", "unpack it first"),
    (b"%PDF-", "a PDF", "take the text out of it first: pdftotext"),
    (b"\x89PNG", "a picture", ""),
    (b"\xff\xd8\xff", "a picture", ""),
    (b"SQLite format 3\x00", "a database", "write its table out as CSV"),
    (b"\x7fELF", "a program", ""),
)


class Readable(Protocol):
    """What gives bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


def stream(path: Path) -> Iterator[bytes]:
    """The bytes of a file that is plain, .gz or .zst.

    >>> _ = Path("a.txt.gz").write_bytes(gzip.compress(b"words"))
    >>> list(stream(Path("a.txt.gz")))
    [b'words']
    """
    with told(path), path.open("rb") as raw:
        check_sign(path, raw.peek(16)[:16])
        given, source = 0, _unpacked(path, raw)
        while block := source.read(BLOCK):
            given += len(block)
            if packing_of(path):
                check_growth(path, given, consumed=raw.tell())
            yield block


def check_growth(path: Path, given: int, *, consumed: int, harmless: int | None = None) -> None:
    """Raise where `consumed` bytes of a compressed file gave more than any text would, before the rest is read."""
    if given > max(harmless or HARMLESS, EXPANSION * consumed):
        raise DataError(
            f"{consumed:,} bytes of this file of {path.stat().st_size:,} unpack to {given:,}",
            file=path,
            why="text does not pack so tightly: the file repeats itself, or was made to fill a memory",
            help="unpack it by hand if it is what you want",
        )


def check_sign(path: Path, head: bytes) -> None:
    """Raise where the first bytes of a file say that it is something else than its name says."""
    expected = packing_of(path) or format_of(path)
    for sign, kind, help in SIGNS:
        if head.startswith(sign) and kind != expected:
            raise DataError(f"by its first bytes this is {kind}, and no text", file=path, help=help)
    if head.startswith(b"BZh") and head[4:10] == b"1AY&SY":
        raise DataError("by its first bytes this is packed with bzip2", file=path, help="unpack it: bunzip2")
    if head and not head.startswith(PACKINGS.get(expected, b"")):
        raise DataError(f"by its name this is {expected}, but it does not begin so", file=path, help="rename it")


def _unpacked(path: Path, raw: BufferedReader) -> Readable:
    packing = packing_of(path)
    if packing == "gzip":
        return gzip.GzipFile(fileobj=raw)
    return arrow_for(path).unpack_zstd(raw) if packing == "zstd" else raw


def arrow_for(path: Path):
    """The adapter to pyarrow, loaded when a file needs it."""
    try:
        from softlook.data import arrow  # noqa: PLC0415  (a third of a second to load: only .zst and Parquet should pay)
    except ModuleNotFoundError:
        raise DataError("this file needs pyarrow to be read", file=path, help="pip install pyarrow") from None
    return arrow


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What goes wrong with a file on the way becomes an error with its name."""
    try:
        yield
    except FileNotFoundError:
        raise missing(path) from None
    except EOFError:
        raise _damaged(path, "it ends in the middle", "was it copied or downloaded in full?") from None
    except (gzip.BadGzipFile, zlib.error) as fault:
        raise _damaged(path, str(fault)) from None
    except OSError as fault:
        if fault.errno is None:  # pyarrow's way to say that the bytes are wrong
            raise _damaged(path, str(fault)) from None
        raise DataError(f"this cannot be read: {fault.strerror or fault}", file=path) from None


def _damaged(path: Path, how: str, help: str = "copy or download it again") -> DataError:
    return DataError(f"the packed file is damaged: {how:.200}", file=path, help=help)
