"""Text files as lines with their numbers. What is wrong with a line comes along with it, and does not end the file."""

from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from softlook.base.errors import DataError
from softlook.base.excerpt import escaped
from softlook.data.encoding import READABLE, UNFIT, decoded, encoding, how_to_convert, narrowed, unfit, unknown_encoding
from softlook.data.opening import stream

LONGEST = 1 << 20
"""Characters of the longest line that is taken as one. A longer one is a fault, or is split: never held as a whole."""


class Line(NamedTuple):
    """A line without its end, or a part of one that is too long."""

    number: int
    text: str
    fault: DataError | None = None
    """What is wrong with it; then `text` is a makeshift."""
    column: int = 1
    """Where in the line `text` begins."""
    ends: bool = True
    """Whether the line ends after it."""


def read_lines(
    path: Path, *, longest: int = LONGEST, split_long: bool = False, blocks: Iterable[bytes] | None = None
) -> Iterator[Line]:
    r"""The lines of a UTF-8 file, or of a UTF-16 file with a byte order mark. Both \n and \r\n end a line.

    Of what comes from elsewhere, a pipe above all, the bytes are handed in as `blocks`; the path is then a name.

    >>> _ = Path("a.txt").write_bytes(b"one\r\ntwo\n\xff")
    >>> for line in read_lines(Path("a.txt")):
    ...     print(line.number, line.fault or line.text)
    1 one
    2 two
    3 a.txt:3:1: the byte 0xff is no UTF-8 (byte offset 9)
        \xff
        ^
    why: ...
    help: iconv -f WINDOWS-1252 -t UTF-8 a.txt > a.utf8.txt, if the text is West European; ...
    """
    return iter(_Reading(path, longest, split_long, blocks))


class _Reading:
    """One way through a file: where it is now."""

    def __init__(self, path: Path, longest: int, split_long: bool, given: Iterable[bytes] | None = None) -> None:
        self.path, self.longest, self.split_long, self.given = path, longest, split_long, given
        self.number, self.column, self.offset = 1, 1, 0
        self.is_wide = self.is_dropping = False

    def __iter__(self) -> Iterator[Line]:
        held = b""
        try:
            for chunk in self._utf8():
                held += self._after_the_dropped(chunk) if self.is_dropping else chunk
                end = held.rfind(b"\n") + 1
                yield from self._lines(held[:end])
                held = yield from self._shortened(held[end:])
            yield from self._lines(held)
        except DataError as fault:  # of the file, not of a line: say how far it could be read
            fault.line = fault.line or (self.number if self.offset else None)
            raise

    def _utf8(self) -> Iterator[bytes]:
        """The file as UTF-8 without a mark."""
        blocks = stream(self.path) if self.given is None else iter(self.given)
        head = next(blocks, b"")
        name = encoding(head)
        if name.startswith("UTF-32") or name.endswith("without a byte order mark"):
            raise unknown_encoding(self.path, name)
        self.is_wide = name.startswith("UTF-16")
        self.offset = 0 if name == "UTF-8" else 2 if self.is_wide else 3
        head = head[self.offset :]
        if b"\n" not in head and b"\r" in head[:-1] and not self.is_wide:
            raise self._old_ends()
        yield from narrowed(chain([head], blocks), name) if self.is_wide else chain([head], blocks)

    def _lines(self, block: bytes) -> Iterator[Line]:
        """Whole lines; at the end of the file, one without its end."""
        if not block:
            return
        text, is_clean = decoded(block)
        rows = text.split("\n")
        if is_clean and rows[-1] == "" and self.column == 1 and max(map(len, rows)) <= self.longest:
            rows.pop()
            for number, row in enumerate(rows, self.number):
                yield Line(number, row[:-1] if row.endswith("\r") else row)
            self.number, self.offset = self.number + len(rows), self.offset + len(block)
        else:
            yield from self._with_care(rows)

    def _with_care(self, rows: list[str]) -> Iterator[Line]:
        """The same for rows of which something may be wrong. After the last one no line ends."""
        for place, row in enumerate(rows):
            ends = place < len(rows) - 1
            if ends or row:
                yield from self._row(row, ends=ends)
            if ends:
                self.number, self.column, self.offset = self.number + 1, 1, self.offset + 1

    def _row(self, row: str, *, ends: bool) -> Iterator[Line]:
        if len(row) - row.endswith("\r") > self.longest and not self.split_long:
            yield Line(self.number, "", self._too_long(row))
            self._pass(row)
            return
        while self.split_long and len(row) > self.longest:
            yield self._part(row[: self.longest], ends=False)
            row = row[self.longest :]
        yield self._part(row, ends=ends)

    def _part(self, text: str, *, ends: bool) -> Line:
        seen = text[:-1] if text.endswith("\r") and ends else text
        place = unfit(seen)
        fault = None if place is None else self._unfit(seen, place)
        line = Line(self.number, UNFIT.sub("\ufffd", seen) if fault else seen, fault, self.column, ends)
        self._pass(text)
        return line

    def _pass(self, text: str) -> None:
        self.column += len(text)
        self.offset += len(text.encode("utf-8", "surrogateescape"))

    def _shortened(self, held: bytes) -> Generator[Line, None, bytes]:
        """What is left to hold of a line whose end is not in sight: a line may be longer than memory."""
        most = max(4, self.longest)  # bytes, so that there is room for a character
        start = 0
        while self.split_long and len(held) - start > most:
            window = held[start : start + most + 1]
            cut = _cut(window, most)
            yield from self._row(decoded(window[:cut])[0], ends=False)
            start += cut
        held = held[start:]
        if len(held) > 4 * self.longest:  # no character has more than four bytes
            yield Line(self.number, "", self._too_long(held[:400].decode("utf-8", "replace")))
            self.is_dropping, self.offset, held = True, self.offset + len(held), b""
        return held

    def _after_the_dropped(self, chunk: bytes) -> bytes:
        end = chunk.find(b"\n") + 1
        self.offset += end or len(chunk)
        if not end:
            return b""
        self.number, self.is_dropping = self.number + 1, False
        return chunk[end:]

    def _unfit(self, text: str, place: int) -> DataError:
        code = ord(text[place])
        at = self.offset + len(text[:place].encode("utf-8", "surrogateescape"))
        where = "" if self.is_wide else f" (byte offset {at:,})"
        if code == 0:
            what, why, help = f"a NUL character{where}", "text holds none: the file is damaged, or is no text", ""
        elif self.is_wide:
            what, why, help = "half a character of UTF-16", "its other half is missing: the file is damaged", ""
        else:
            what = f"the byte 0x{code - 0xDC00:02x} is no UTF-8{where}"
            why, help = READABLE, how_to_convert(self.path)
        place += self.column
        excerpt = text if self.column == 1 else ""
        return DataError(what, file=self.path, line=self.number, column=place, excerpt=excerpt, why=why, help=help)

    def _old_ends(self) -> DataError:
        name = quote(self.path.name)
        return DataError(
            "the lines of this file end in a carriage return alone, as on the first Macintosh",
            file=self.path,
            help=f"tr '\\r' '\\n' < {name} > {quote(f'{self.path.stem}.new{self.path.suffix}')}",
        )

    def _too_long(self, start: str) -> DataError:
        return DataError(
            f"this line has more than {self.longest:,} characters",
            file=self.path,
            line=self.number,
            column=self.longest + 1,
            why=f"it begins {escaped(start[:60])!r}. So long a line is hardly one example, and would fill the memory",
            help="break the file into lines, or raise --longest-line",
        )


def _cut(held: bytes, most: int) -> int:
    """Where to part a line that is too long: after a space if there is one, never inside a character."""
    space = held.rfind(b" ", most // 2, most) + 1
    back = next((n for n in range(4) if held[most - n] & 0xC0 != 0x80), 0)  # the others only go on with a character
    return space or most - back
