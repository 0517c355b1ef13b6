"""How a file's characters are written, and what to say where they cannot be read."""

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote

from softlook.base.errors import DataError
from softlook.data.files import packing_of
from softlook.data.opening import stream

UNFIT = re.compile("[\x00\ud800-\udfff]")
"""What no text holds: NUL, and halves of characters, which also stand for bytes that could not be read."""
MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF8, "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
READABLE = "softlook reads UTF-8, and UTF-16 that begins with a byte order mark"


def encoding_of(path: Path) -> str:
    """How a file's characters are written, by its first bytes.

    >>> _ = Path("a.txt").write_text("words", encoding="utf-16-le")
    >>> _ = Path("b.txt").write_text("words", encoding="utf-8-sig")
    >>> encoding_of(Path("a.txt")), encoding_of(Path("b.txt"))
    ('UTF-16LE without a byte order mark', 'UTF-8 with a byte order mark')
    """
    return encoding(next(stream(path), b""))


def unfit(text: str) -> int | None:
    """Where a text has its first character that no text holds.

    >>> unfit("a\\x00"), unfit("fine")
    (1, None)
    """
    found = UNFIT.search(text)
    return found.start() if found else None


def encoding(head: bytes) -> str:
    """The encoding of a file that begins so."""
    for mark, name in MARKS:
        if head.startswith(mark):
            return name
    zeros = head[: 1 << 12 : 2].count(0), head[1 : 1 << 12 : 2].count(0)
    many, few = max(zeros), min(zeros)
    if many >= max(3, 0.2 * min(len(head), 1 << 12)) and few < many / 8:  # every second byte, or nearly
        return f"UTF-16{'LE' if zeros[1] == many else 'BE'} without a byte order mark"
    return "UTF-8"


def decoded(block: bytes) -> tuple[str, bool]:
    """The characters, and whether all of them are ones that text holds. A byte that cannot be read becomes half one."""
    try:
        return block.decode("utf-8"), b"\0" not in block
    except UnicodeDecodeError:
        return block.decode("utf-8", "surrogateescape"), False


def narrowed(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """UTF-16 as UTF-8, in which half characters stay visible as bytes that cannot be read."""
    decoder = codecs.getincrementaldecoder(name)("surrogatepass")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogatepass")
    if decoder.getstate()[0]:
        yield b"\xff"  # an odd byte at the end


def unknown_encoding(path: Path, name: str) -> DataError:
    """The error for a file in an encoding that softlook does not read."""
    return DataError(
        f"this file is written in {name}", file=path, why=READABLE, help=how_to_convert(path, name.split()[0])
    )


def how_to_convert(path: Path, name: str = "WINDOWS-1252") -> str:
    """The command that makes UTF-8 of a file.

    >>> how_to_convert(Path("a.txt"), "UTF-16LE")
    'iconv -f UTF-16LE -t UTF-8 a.txt > a.utf8.txt'
    """
    if packing_of(path):
        return f"unpack it, and convert it with iconv -f {name} -t UTF-8"
    command = f"iconv -f {name} -t UTF-8 {quote(path.name)} > {quote(f'{path.stem}.utf8{path.suffix}')}"
    others = ", if the text is West European; iconv -l lists the others"
    return command + (others if name == "WINDOWS-1252" else "")
