"""Malformed and unusual text files with the expected outcome of each: the cases of test_malformed.py."""

import bz2
import gzip
import lzma
import zlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Result = list[Any]


@dataclass(frozen=True)
class MalformedFile:
    """A file and its expected outcome: an error (with its location and message) or a result."""

    about: str
    name: str
    content: bytes
    task: str
    location: str = ""
    """The suffix of the file's name in the message: :line, :line:column, or empty."""
    message: str = ""
    kept: int | None = None
    """The number of examples left when bad rows are skipped; None if the whole file is rejected."""
    result: Result | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.about}"


def bad(  # noqa: PLR0917  (rows of a table)
    about: str, name: str, content: bytes | str, location: str, message: str, kept: int | None, task: str = ""
) -> MalformedFile:
    return MalformedFile(about, name, _bytes(content), task or _task(name), location, message, kept)


def fine(about: str, name: str, content: bytes | str, result: Result, task: str = "") -> MalformedFile:
    return MalformedFile(about, name, _bytes(content), task or _task(name), result=result)


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _task(name: str) -> str:
    return {"txt": "sentences", "tsv": "pairs", "csv": "labeled", "jsonl": "labeled", "json": "labeled"}.get(
        name.split(".")[1], "sentences"
    )


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return sink.getvalue().to_pybytes()


def flipped(content: bytes, index: int) -> bytes:
    return content[:index] + bytes([content[index] ^ 0xFF]) + content[index + 1 :]


MIB = 1 << 20
UNEVEN = bytes(zlib.crc32(b"%d" % n) % 251 + 1 for n in range(5000))  # incompressible bytes without NUL
PACKED = gzip.compress(b"".join(b"line %d\n" % (n * n * 7919) for n in range(2000)), mtime=0)
ZSTD = zstd(b"".join(b"line %d\n" % (n * n * 7919) for n in range(2000)))

TEXT = [
    bad("an empty file", "a.txt", b"", "", "there are no examples", None),
    bad("one line end", "a.txt", b"\n", "", "1 empty", None),
    bad("spaces only", "a.txt", b"   \n \t \n", "", "2 empty", None),
    bad("only a byte order mark", "a.txt", b"\xef\xbb\xbf", "", "there are no examples", None),
    bad("only a UTF-16 byte order mark", "a.txt", b"\xff\xfe", "", "there are no examples", None),
    fine("no line end at the end", "a.txt", "one\ntwo", ["one", "two"]),
    fine("Windows line ends", "a.txt", "one\r\ntwo\r\n", ["one", "two"]),
    fine("mixed line ends", "a.txt", "one\r\ntwo\nthree\r\n", ["one", "two", "three"]),
    fine("a carriage return inside a line", "a.txt", "one\rmore\ntwo\n", ["one\rmore", "two"]),
    bad("classic Mac OS line ends", "a.txt", "one\rtwo\rthree\r", "", "carriage return alone", None),
    fine("a byte order mark", "a.txt", b"\xef\xbb\xbfone\n", ["one"]),
    fine("a byte order mark inside", "a.txt", "one\n\ufefftwo\n", ["one", "\ufefftwo"]),
    fine(
        "UTF-16, little-endian",
        "a.txt",
        b"\xff\xfe" + "ä one\r\nżółw 🐢\n".encode("utf-16-le"),
        ["ä one", "żółw 🐢"],
    ),
    fine("UTF-16, big-endian", "a.txt", b"\xfe\xff" + "ä one\n".encode("utf-16-be"), ["ä one"]),
    bad(
        "UTF-16LE without a byte order mark", "a.txt", "some words\n".encode("utf-16-le"), "", "UTF-16LE without", None
    ),
    bad(
        "UTF-16BE without a byte order mark", "a.txt", "some words\n".encode("utf-16-be"), "", "iconv -f UTF-16BE", None
    ),
    bad(
        "UTF-16 with an odd number of bytes",
        "a.txt",
        b"\xff\xfe" + "one\ntwo".encode("utf-16-le") + b"x",
        ":2:4",
        "lone UTF-16 surrogate",
        1,
    ),
    bad(
        "UTF-16 with half a surrogate pair",
        "a.txt",
        b"\xff\xfeo\x00\n\x00\x00\xd8x\x00\n\x00",
        ":2:1",
        "lone UTF-16 surrogate",
        1,
    ),
    bad("UTF-32", "a.txt", "one\n".encode("utf-32"), "", "UTF-32", None),
    bad("Latin-1", "a.txt", "one\nGrüße\ntwo\n".encode("latin-1"), ":2:3", "byte offset 6)", 2),
    bad("Latin-1 after a byte order mark", "a.txt", b"\xef\xbb\xbfa\xe4\n", ":1:2", "byte offset 4)", None),
    bad("UTF-8 cut in a character", "a.txt", "one\nGrü".encode()[:-1], ":2:3", "0xc3", 1),
    bad("overlong UTF-8", "a.txt", b"one\n\xc0\xaf\n", ":2:1", "0xc0", 1),
    bad("a surrogate in UTF-8", "a.txt", b"one\n\xed\xa0\x80\n", ":2:1", "0xed", 1),
    bad("a code point beyond U+10FFFF", "a.txt", b"one\n\xf5\x80\x80\x80\n", ":2:1", "0xf5", 1),
    bad("Shift-JIS", "a.txt", "one\n日本語\n".encode("shift-jis"), ":2:1", "is not UTF-8", 1),
    bad("two bad lines", "a.txt", b"\xff\none\n\xfe\n", ":1:1", "0xff", 1),
    bad("NUL", "a.txt", b"one\ntw\x00o\nthree\n", ":2:3", "NUL", 2),
    bad("a block of NULs", "a.txt", b"one\n" + bytes(4096) + b"\ntwo\n", ":2:1", "NUL", 2),
    bad("nothing but NULs", "a.txt", bytes(4096), ":1:1", "NUL", None),
    bad("a line that is too long", "a.txt", b"one\n" + b"a" * (MIB + 1) + b"\ntwo\n", ":2:1048577", "more than", 2),
    bad("a line far too long", "a.txt", b"one\n" + b"a" * (6 * MIB) + b"\ntwo\n", ":2:1048577", "1,048,576", 2),
    bad("a long line without an end", "a.txt", b"one\n" + b"a" * (6 * MIB), ":2:1048577", "--max-line-chars", 1),
    bad("a long line that is bad", "a.txt", b"one\n" + b"\xff" * (6 * MIB) + b"\ntwo\n", ":2:1048577", "more than", 2),
    fine("a line of the maximum length", "a.txt", b"a" * MIB + b"\n", ["a" * MIB]),
    fine("a long line, as a document", "a.txt", b"a" * (2 * MIB), ["a" * 65536] * 32, "documents"),
    fine("wide characters, as a document", "a.txt", "ż" * 70000, ["ż" * 65536, "ż" * 4464], "documents"),
    bad("bytes, as a document", "a.txt", b"one\n\xff\ntwo\n", ":2:1", "0xff", 1, "documents"),
    fine("colour codes", "a.txt", "\x1b[31mred\n", ["\x1b[31mred"]),
    fine("other separators end no line", "a.txt", "a\x0bb\x0cc\x1cd\x85e\u2028f\n", ["a\x0bb\x0cc\x1cd\x85e\u2028f"]),
    fine("emoji of several code points", "a.txt", "👩‍👩‍👧‍👦 🇩🇪\n", ["👩‍👩‍👧‍👦 🇩🇪"]),
    fine("right to left", "a.txt", "‮שלום‬\n", ["‮שלום‬"]),
    bad("an image", "a.txt", b"\x89PNG\r\n\x1a\n" + UNEVEN, "", "an image", None),
    bad("a PDF", "a.txt", b"%PDF-1.7\n" + UNEVEN, "", "pdftotext", None),
    bad("a zip archive", "a.txt", b"PK\x03\x04" + UNEVEN, "", "zip", None),
    bad("an old or encrypted office document", "a.csv", b"\xd0\xcf\x11\xe0" + UNEVEN, "", "save it as .xlsx", None),
    bad("a database", "a.txt", b"SQLite format 3\x00" + UNEVEN, "", "a database", None),
    bad("an executable", "a.txt", b"\x7fELF" + UNEVEN, "", "a program", None),
    bad("random bytes", "a.txt", UNEVEN, ":1:", "is not UTF-8", None),
]

COMPRESSED = [
    fine("gzip", "a.txt.gz", gzip.compress(b"one\ntwo\n"), ["one", "two"]),
    fine("two gzip members", "a.txt.gz", gzip.compress(b"one\n") + gzip.compress(b"two\n"), ["one", "two"]),
    fine("gzip of UTF-16", "a.txt.gz", gzip.compress("ä\n".encode("utf-16")), ["ä"]),
    fine("gzip and zeros after it", "a.txt.gz", gzip.compress(b"one\n") + bytes(100), ["one"]),
    bad("an empty gzip", "a.txt.gz", gzip.compress(b""), "", "there are no examples", None),
    bad("no bytes", "a.txt.gz", b"", "", "there are no examples", None),
    bad("gzip by name only", "a.txt.gz", b"one\ntwo\n", "", "by its first bytes it is not", None),
    bad("gzip without the name", "a.txt", gzip.compress(b"one\n"), "", "add .gz", None),
    bad("gzip truncated", "a.txt.gz", PACKED[:-20], "", "it is truncated", None),
    bad("gzip truncated in its header", "a.txt.gz", PACKED[:5], "", "it is truncated", None),
    bad("gzip with a wrong checksum", "a.txt.gz", flipped(PACKED, len(PACKED) - 6), "", "damaged", None),
    bad("gzip with a wrong byte", "a.txt.gz", flipped(PACKED, len(PACKED) // 2), "", "damaged", None),
    bad("gzip with other bytes after it", "a.txt.gz", gzip.compress(b"one\n") + b"more", "", "damaged", None),
    bad("gzip of bad bytes", "a.txt.gz", gzip.compress(b"one\n\xff\n"), ":2:1", "decompress it", 1),
    bad("gzip of a long line of zeros", "a.txt.gz", gzip.compress(b"0" * (8 * MIB)), ":1:1048577", "more than", None),
    bad("gzip in gzip", "a.txt.gz", gzip.compress(gzip.compress(b"one\n", mtime=0), mtime=0), ":1:2", "0x8b", None),
    fine("zstd", "a.txt.zst", zstd(b"one\ntwo\n"), ["one", "two"]),
    fine("two zstd frames", "a.txt.zst", zstd(b"one\n") + zstd(b"two\n"), ["one", "two"]),
    bad("zstd by name only", "a.txt.zst", b"one\ntwo\n", "", "by its first bytes it is not", None),
    bad("zstd without the name", "a.txt", zstd(b"one\n"), "", "add .zst", None),
    bad("zstd truncated", "a.txt.zst", ZSTD[:-20], "", "damaged", None),
    bad("zstd with a wrong byte", "a.txt.zst", flipped(ZSTD, 20), "", "damaged", None),
    bad("zstd and other bytes after it", "a.txt.zst", zstd(b"one\n") + b"more bytes", "", "damaged", None),
    bad("no bytes for zstd", "a.txt.zst", b"", "", "there are no examples", None),
    bad("bzip2", "a.txt", bz2.compress(b"one\n"), "", "bunzip2", None),
    bad("xz", "a.txt", lzma.compress(b"one\n"), "", "unxz", None),
    fine("a table in gzip", "a.csv.gz", gzip.compress(b"text,label\ngood,1\n"), [("good", "1")], "labeled"),
    fine("JSON in zstd", "a.jsonl.zst", zstd(b'{"text": "a", "label": 1}\n'), [("a", "1")], "labeled"),
]

FILES = [*TEXT, *COMPRESSED]
