"""CSV and TSV rows with line numbers.

CSV follows RFC 4180: a cell that starts with a quote ends at the next single quote, over line ends too, and two quotes
inside stand for one. In TSV quotes have no meaning, and every line is a row. An invalid row does not affect
the rows after it.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from softlook.base.errors import DataError
from softlook.data.lines import MAX_LINE_CHARS, Line, line_error

DELIMITERS = ",;\t|"
QUOTED = re.compile(r'[^"]*+(?:""[^"]*+)*+')
"""The inside of a quoted cell, up to the closing quote or the end of the line."""


class DelimitedRow(NamedTuple):
    """The cells of one row."""

    line: int
    cells: list[str]
    error: DataError | None = None


def delimited_rows(
    lines: Iterable[Line], delimiter: str, path: Path, *, has_quotes: bool = True, max_chars: int = MAX_LINE_CHARS
) -> Iterator[DelimitedRow]:
    """Rows of a CSV file, or without quotes of a TSV file. Blank lines are skipped.

    >>> lines = [Line(1, '1,"two'), Line(2, 'lines, ""quoted"" too"'), Line(3, '2,plain')]
    >>> for row in delimited_rows(lines, ",", Path("a.csv")):
    ...     print(row.line, row.cells)
    1 ['1', 'two\\nlines, "quoted" too']
    3 ['2', 'plain']
    """
    feed = _LineFeed(lines)
    for line in feed:
        if has_quotes and '"' in line.text:
            yield _QuotedRowParser(line, feed, delimiter, path, max_chars).parse()
        elif line.text or line.error:
            yield DelimitedRow(line.number, line.text.split(delimiter), line.error)


def guess_delimiter(lines: list[Line], path: Path) -> str:
    """The first of , ; tab | that gives every row the same number of cells.

    >>> guess_delimiter([Line(1, "text;label"), Line(2, "good, or so;1")], Path("a.csv"))
    ';'
    """
    for delimiter in DELIMITERS:
        widths = Counter(len(row.cells) for row in delimited_rows(lines, delimiter, path) if not row.error)
        width, count = widths.most_common(1)[0] if widths else (1, 0)
        if width > 1 and count >= 0.9 * widths.total():
            return delimiter
    return max(DELIMITERS, key=lambda delimiter: lines[0].text.count(delimiter)) if lines else ","


class _LineFeed:
    """An iterator of lines with push-back."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines, self.pushed_back = iter(lines), deque[Line]()

    def __iter__(self) -> Iterator[Line]:
        return self

    def __next__(self) -> Line:
        return self.pushed_back.popleft() if self.pushed_back else next(self.lines)

    def push_back(self, lines: list[Line]) -> None:
        self.pushed_back.extendleft(reversed(lines))


class _QuotedRowParser:
    """Parses one row with quotes, over as many lines as it takes."""

    def __init__(self, first: Line, feed: _LineFeed, delimiter: str, path: Path, max_chars: int) -> None:
        self.first, self.line, self.index = first, first, 0
        self.feed, self.delimiter, self.path, self.max_chars = feed, delimiter, path, max_chars
        self.following: list[Line] = []

    def parse(self) -> DelimitedRow:
        try:
            cells = list(self._cells())
        except DataError as error:
            # The wrong quote is probably on the first line: the following lines may be rows of their own.
            self.feed.push_back(self.following)
            return DelimitedRow(self.first.number, [], error)
        errors = (line.error for line in (self.first, *self.following) if line.error)
        return DelimitedRow(self.first.number, cells, next(errors, None))

    def _cells(self) -> Iterator[str]:
        while True:
            yield self._quoted() if self.line.text.startswith('"', self.index) else self._plain()
            if self.index == len(self.line.text):
                return
            if self.line.text[self.index] != self.delimiter:
                what = "there is text after the quote that closes this cell"
                help = 'write a quote inside a quoted cell twice: ""'
                raise line_error(self.line, self.path, what, self.index + 1, help=help)
            self.index += 1

    def _plain(self) -> str:
        start, end = self.index, self.line.text.find(self.delimiter, self.index)
        self.index = len(self.line.text) if end < 0 else end
        return self.line.text[start : self.index]

    def _quoted(self) -> str:
        opening, column = self.line, self.index + 1
        parts: list[str] = []
        size, start = 0, self.index + 1
        while True:
            match = QUOTED.match(self.line.text, start)
            assert match is not None  # the pattern also matches the empty string
            parts.append(match[0])
            self.index = match.end() + 1
            if match.end() < len(self.line.text):
                return "\n".join(parts).replace('""', '"')
            size, start = size + len(match[0]) + 1, 0
            following = next(self.feed, None) if size <= self.max_chars else None
            if following is None:
                why = f"there is no single quote in the next {size:,} characters"
                help = "close it, or write a quote that belongs to the text twice inside quotes"
                raise line_error(opening, self.path, "this quote is never closed", column, why=why, help=help)
            self.following.append(following)
            self.line = following


def ragged_row_error(path: Path, row: DelimitedRow, width: int) -> DataError:
    """The error for a row with a different number of cells than the first row."""
    has_space = any(cell[:2] == ' "' for cell in row.cells)
    is_short = len(row.cells) < width
    return DataError(
        f"expected {width:,} cell{'s' * (width != 1)} as in the first row, got {len(row.cells):,}",
        file=path,
        line=row.line,
        excerpt=" | ".join(islice(row.cells, 20)),
        why="a cell is missing" if is_short else "a cell too many, perhaps an unquoted delimiter inside a text",
        help="a quote only counts right after the delimiter, without a space" if has_space else "",
    )
