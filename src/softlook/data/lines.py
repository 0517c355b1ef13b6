"""Lines of text files with numbers; invalid lines carry an error.

An invalid line does not end the file: the caller decides whether to skip it.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from softlook.base.errors import DataError, escape_control
from softlook.data.streams import (
    INVALID_CHARS,
    SUPPORTED_ENCODINGS,
    decode_block,
    encoding_of_head,
    find_invalid_char,
    iconv_command,
    open_stream,
    utf16_to_utf8,
)

MAX_LINE_CHARS = 1 << 20
"""Maximum characters of a line. A longer one is an error, or is split: it is never held in memory as a whole."""


class Line(NamedTuple):
    """A line without its line end, or a part of one that is too long."""

    number: int
    text: str
    error: DataError | None = None
    """What is wrong with it; `text` is then a substitute."""
    column: int = 1
    """Where in the line `text` starts."""
    ends_line: bool = True
    """Whether the line ends after `text`."""


def line_error(
    line: Line, path: Path, what: str, column: int | None = None, *, why: str = "", help: str = ""
) -> DataError:
    """An error in this line."""
    return DataError(what, file=path, line=line.number, column=column, excerpt=line.text, why=why, help=help)


def read_lines(
    path: Path, *, max_chars: int = MAX_LINE_CHARS, split_long: bool = False, blocks: Iterable[bytes] | None = None
) -> Iterator[Line]:
    r"""The lines of a UTF-8 file, or of a UTF-16 file with a byte order mark. Both \n and \r\n end a line.

    `blocks` are bytes from elsewhere, such as a pipe; the path is then only a name.

    >>> _ = Path("a.txt").write_bytes(b"one\r\ntwo\n\xff")
    >>> for line in read_lines(Path("a.txt")):
    ...     print(line.number, line.error or line.text)
    1 one
    2 two
    3 a.txt:3:1: the byte 0xff is not UTF-8 (byte offset 9)
        \xff
        ^
    why: ...
    help: iconv -f WINDOWS-1252 -t UTF-8 a.txt > a.utf8.txt, if the text is West European; ...
    """
    return iter(_LineReader(path, max_chars, split_long, blocks))


class _LineReader:
    """One pass over a file: the current line, column and byte offset."""

    def __init__(self, path: Path, max_chars: int, split_long: bool, blocks: Iterable[bytes] | None = None) -> None:
        self.path, self.max_chars, self.split_long, self.blocks = path, max_chars, split_long, blocks
        self.number, self.column, self.offset = 1, 1, 0
        self.is_utf16 = self.is_dropping = False

    def __iter__(self) -> Iterator[Line]:
        buffer = b""
        try:
            for chunk in self._utf8():
                buffer += self._after_dropped(chunk) if self.is_dropping else chunk
                end = buffer.rfind(b"\n") + 1
                yield from self._lines(buffer[:end])
                buffer = yield from self._limit_buffer(buffer[end:])
            yield from self._lines(buffer)
        except DataError as error:  # of the file, not of a line: add how far it could be read
            error.line = error.line or (self.number if self.offset else None)
            raise

    def _utf8(self) -> Iterator[bytes]:
        """The file as UTF-8 without a byte order mark."""
        blocks = open_stream(self.path) if self.blocks is None else iter(self.blocks)
        head = next(blocks, b"")
        name = encoding_of_head(head)
        if name.startswith("UTF-32") or name.endswith("without a byte order mark"):
            what, command = f"this file is encoded in {name}", iconv_command(self.path, name.split()[0])
            raise DataError(what, file=self.path, why=SUPPORTED_ENCODINGS, help=command)
        self.is_utf16 = name.startswith("UTF-16")
        self.offset = 0 if name == "UTF-8" else 2 if self.is_utf16 else 3
        head = head[self.offset :]
        if b"\n" not in head and b"\r" in head[:-1] and not self.is_utf16:
            raise self._carriage_return_error()
        yield from utf16_to_utf8(chain([head], blocks), name) if self.is_utf16 else chain([head], blocks)

    def _lines(self, block: bytes) -> Iterator[Line]:
        """Complete lines; at the end of the file, one without a line end."""
        if not block:
            return
        text, is_valid = decode_block(block)
        rows = text.split("\n")
        if is_valid and rows[-1] == "" and self.column == 1 and max(map(len, rows)) <= self.max_chars:
            rows.pop()
            for number, row in enumerate(rows, self.number):
                yield Line(number, row[:-1] if row.endswith("\r") else row)
            self.number, self.offset = self.number + len(rows), self.offset + len(block)
        else:
            yield from self._checked_lines(rows)

    def _checked_lines(self, rows: list[str]) -> Iterator[Line]:
        """The slow path, for rows that may be invalid. The last row has no line end."""
        for index, row in enumerate(rows):
            ends_line = index < len(rows) - 1
            if ends_line or row:
                yield from self._row(row, ends_line=ends_line)
            if ends_line:
                self.number, self.column, self.offset = self.number + 1, 1, self.offset + 1

    def _row(self, row: str, *, ends_line: bool) -> Iterator[Line]:
        if len(row) - row.endswith("\r") > self.max_chars and not self.split_long:
            yield Line(self.number, "", self._too_long_error(row))
            self._advance(row)
            return
        while self.split_long and len(row) > self.max_chars:
            yield self._part(row[: self.max_chars], ends_line=False)
            row = row[self.max_chars :]
        yield self._part(row, ends_line=ends_line)

    def _part(self, text: str, *, ends_line: bool) -> Line:
        content = text[:-1] if text.endswith("\r") and ends_line else text
        index = find_invalid_char(content)
        error = None if index is None else self._invalid_char_error(content, index)
        line = Line(
            self.number, INVALID_CHARS.sub("\ufffd", content) if error else content, error, self.column, ends_line
        )
        self._advance(text)
        return line

    def _advance(self, text: str) -> None:
        self.column += len(text)
        self.offset += len(text.encode("utf-8", "surrogateescape"))

    def _limit_buffer(self, buffer: bytes) -> Generator[Line, None, bytes]:
        """The rest of an incomplete line, kept small: a line may be larger than memory."""
        limit = max(4, self.max_chars)  # bytes: at least one character
        start = 0
        while self.split_long and len(buffer) - start > limit:
            window = buffer[start : start + limit + 1]
            cut = _find_cut(window, limit)
            yield from self._row(decode_block(window[:cut])[0], ends_line=False)
            start += cut
        buffer = buffer[start:]
        if len(buffer) > 4 * self.max_chars:  # a character has at most four bytes
            yield Line(self.number, "", self._too_long_error(buffer[:400].decode("utf-8", "replace")))
            self.is_dropping, self.offset, buffer = True, self.offset + len(buffer), b""
        return buffer

    def _after_dropped(self, chunk: bytes) -> bytes:
        end = chunk.find(b"\n") + 1
        self.offset += end or len(chunk)
        if not end:
            return b""
        self.number, self.is_dropping = self.number + 1, False
        return chunk[end:]

    def _invalid_char_error(self, text: str, index: int) -> DataError:
        code = ord(text[index])
        offset = self.offset + len(text[:index].encode("utf-8", "surrogateescape"))
        where = "" if self.is_utf16 else f" (byte offset {offset:,})"
        if code == 0:
            what, why, help = f"a NUL character{where}", "text has none: the file is damaged, or not text", ""
        elif self.is_utf16:
            what, why, help = "a lone UTF-16 surrogate", "its other half is missing: the file is damaged", ""
        else:
            what = f"the byte 0x{code - 0xDC00:02x} is not UTF-8{where}"
            is_binary = any(character < "\t" for character in text)
            why = "the line also has control characters: this is probably no text file"
            why, help = (why, "") if is_binary else (SUPPORTED_ENCODINGS, iconv_command(self.path))
        excerpt, column = text if self.column == 1 else "", index + self.column
        return DataError(what, file=self.path, line=self.number, column=column, excerpt=excerpt, why=why, help=help)

    def _carriage_return_error(self) -> DataError:
        name = quote(self.path.name)
        return DataError(
            "the lines of this file end in a carriage return alone, as on the first Macintosh",
            file=self.path,
            help=f"tr '\\r' '\\n' < {name} > {quote(f'{self.path.stem}.new{self.path.suffix}')}",
        )

    def _too_long_error(self, start: str) -> DataError:
        return DataError(
            f"this line has more than {self.max_chars:,} characters",
            file=self.path,
            line=self.number,
            column=self.max_chars + 1,
            why=f"it starts with {escape_control(start[:60])!r}. Such a line is hardly one example",
            help="break the file into lines, or raise --max-line-chars",
        )


def _find_cut(window: bytes, limit: int) -> int:
    """Where to split a long line: after a space if possible, never inside a character."""
    space = window.rfind(b" ", limit // 2, limit) + 1
    back = next((n for n in range(4) if window[limit - n] & 0xC0 != 0x80), 0)  # skip UTF-8 continuation bytes
    return space or limit - back
