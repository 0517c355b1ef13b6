"""Byte streams of data files: decompression and text encoding.

Files are read block by block: however large, only one block is in memory.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from shlex import quote
from typing import Protocol

from softlook.base.errors import DataError
from softlook.data.files import COMPRESSION_MAGIC, compression_of, format_of, missing_file_error

BLOCK = 1 << 20
"""Bytes read at a time."""
MAX_EXPANSION, SAFE_BYTES = 200, 16 << 20
"""Text compresses about fourfold. More than 16 MiB out of 1/200 as many compressed bytes is a decompression bomb."""

MAGIC_BYTES = (
    (COMPRESSION_MAGIC["gzip"], "gzip", "add .gz to its name"),
    (COMPRESSION_MAGIC["zstd"], "zstd", "add .zst to its name"),
    (b"PAR1\x15", "parquet", "add .parquet to its name"),
    (b"PK\x03\x04", "a zip archive, or an office document", "unzip it; a spreadsheet needs the suffix .xlsx"),
    (b"\xd0\xcf\x11\xe0", "an old or encrypted office document", "save it as .xlsx without a password, or as CSV"),
    (b"\xfd7zXZ\x00", "an xz archive", "decompress it: unxz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-zip archive", "decompress it first"),
    (b"%PDF-", "a PDF", "extract its text first: pdftotext"),
    (b"\x89PNG", "an image", ""),
    (b"\xff\xd8\xff", "an image", ""),
    (b"SQLite format 3\x00", "a database", "export its table as CSV"),
    (b"\x7fELF", "a program", ""),
)
INVALID_CHARS = re.compile("[\x00\ud800-\udfff]")
"""NUL, and surrogates, which also stand for bytes that could not be decoded."""
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16, whose mark it starts with
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF8, "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
SUPPORTED_ENCODINGS = "softlook reads UTF-8, and UTF-16 with a byte order mark"


class Readable(Protocol):
    """A binary stream."""

    def read(self, size: int = -1, /) -> bytes: ...


def open_stream(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a plain, .gz or .zst file, in blocks.

    >>> _ = Path("a.txt.gz").write_bytes(gzip.compress(b"words"))
    >>> list(open_stream(Path("a.txt.gz")))
    [b'words']
    """
    with file_errors(path), path.open("rb") as raw:
        check_magic_bytes(path, raw.peek(16)[:16])
        produced, source = 0, _decompressed(path, raw)
        while block := source.read(BLOCK):
            produced += len(block)
            if compression_of(path):
                check_growth(path, produced, consumed=raw.tell())
            yield block


def check_growth(path: Path, produced: int, *, consumed: int, safe_bytes: int | None = None) -> None:
    """Raise if `consumed` bytes of a compressed file gave more than any text would (a decompression bomb)."""
    if produced > max(safe_bytes or SAFE_BYTES, MAX_EXPANSION * consumed):
        raise DataError(
            f"{consumed:,} bytes of this file of {path.stat().st_size:,} decompress to {produced:,}",
            file=path,
            why="text does not compress so well: the file repeats itself, or was made to exhaust memory",
            help="decompress it by hand if it is what you want",
        )


def check_magic_bytes(path: Path, head: bytes) -> None:
    """Raise if the first bytes of a file contradict its suffix."""
    expected = compression_of(path) or format_of(path)
    for magic, kind, help in MAGIC_BYTES:
        if head.startswith(magic) and kind != expected:
            raise DataError(f"by its first bytes this is {kind}, not text", file=path, help=help)
    if head.startswith(b"BZh") and head[4:10] == b"1AY&SY":
        raise DataError("by its first bytes this is a bzip2 archive", file=path, help="decompress it: bunzip2")
    if head and not head.startswith(COMPRESSION_MAGIC.get(expected, b"")):
        raise DataError(f"by its suffix this is {expected}, by its first bytes it is not", file=path, help="rename it")


def _decompressed(path: Path, raw: BufferedReader) -> Readable:
    compression = compression_of(path)
    if compression == "gzip":
        return gzip.GzipFile(fileobj=raw)
    return load_arrow(path).decompress_zstd(raw) if compression == "zstd" else raw


def load_arrow(path: Path):
    """The module that uses pyarrow, imported on demand."""
    try:
        from softlook.data import arrow  # noqa: PLC0415  (a third of a second: only .zst and Parquet need it)
    except ModuleNotFoundError:
        raise DataError("reading this file needs pyarrow", file=path, help="pip install pyarrow") from None
    return arrow


def load_excel(path: Path):
    """The module that uses openpyxl, imported on demand."""
    try:
        from softlook.data import excel  # noqa: PLC0415  (an optional dependency)
    except ModuleNotFoundError:
        help = "pip install 'softlook[excel]', or save it as CSV"
        raise DataError("reading Excel needs openpyxl", file=path, help=help) from None
    return excel


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Convert errors of reading a file to DataError with its name."""
    try:
        yield
    except FileNotFoundError:
        raise missing_file_error(path) from None
    except EOFError:
        raise _damaged_error(path, "it is truncated", "was it copied or downloaded completely?") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _damaged_error(path, str(error)) from None
    except OSError as error:
        if error.errno is None:  # how pyarrow reports invalid bytes
            raise _damaged_error(path, str(error)) from None
        raise DataError(f"cannot read this file: {error.strerror or error}", file=path) from None


def _damaged_error(path: Path, reason: str, help: str = "copy or download it again") -> DataError:
    return DataError(f"the compressed file is damaged: {reason:.200}", file=path, help=help)


def detect_encoding(path: Path) -> str:
    """The text encoding of a file, by its first bytes.

    >>> _ = Path("a.txt").write_text("words", encoding="utf-16-le")
    >>> _ = Path("b.txt").write_text("words", encoding="utf-8-sig")
    >>> detect_encoding(Path("a.txt")), detect_encoding(Path("b.txt"))
    ('UTF-16LE without a byte order mark', 'UTF-8 with a byte order mark')
    """
    return encoding_of_head(next(open_stream(path), b""))


def encoding_of_head(head: bytes) -> str:
    """The encoding of a text that starts with these bytes."""
    for mark, name in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return name
    zeros = head[: 1 << 12 : 2].count(0), head[1 : 1 << 12 : 2].count(0)
    more, fewer = max(zeros), min(zeros)
    if more >= max(3, 0.2 * min(len(head), 1 << 12)) and fewer < more / 8:  # every second byte, or nearly
        return f"UTF-16{'LE' if zeros[1] == more else 'BE'} without a byte order mark"
    return "UTF-8"


def find_invalid_char(text: str) -> int | None:
    """The index of the first NUL or surrogate.

    >>> find_invalid_char("a\\x00"), find_invalid_char("fine")
    (1, None)
    """
    found = INVALID_CHARS.search(text)
    return found.start() if found else None


def decode_block(block: bytes) -> tuple[str, bool]:
    """The text, and whether it is valid. Bytes that are not UTF-8 become surrogates."""
    try:
        return block.decode("utf-8"), b"\0" not in block
    except UnicodeDecodeError:
        return block.decode("utf-8", "surrogateescape"), False


def utf16_to_utf8(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Re-encode UTF-16 as UTF-8; lone surrogates stay visible as invalid bytes."""
    decoder = codecs.getincrementaldecoder(name)("surrogatepass")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogatepass")
    if decoder.getstate()[0]:
        yield b"\xff"  # an odd byte at the end


def iconv_command(path: Path, name: str = "WINDOWS-1252") -> str:
    """The shell command that converts a file to UTF-8.

    >>> iconv_command(Path("a.txt"), "UTF-16LE")
    'iconv -f UTF-16LE -t UTF-8 a.txt > a.utf8.txt'
    """
    if compression_of(path):
        return f"decompress it, and convert it with iconv -f {name} -t UTF-8"
    command = f"iconv -f {name} -t UTF-8 {quote(path.name)} > {quote(f'{path.stem}.utf8{path.suffix}')}"
    others = ", if the text is West European; iconv -l lists other encodings"
    return command + (others if name == "WINDOWS-1252" else "")
