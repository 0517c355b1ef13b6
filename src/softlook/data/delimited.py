"""CSV and TSV: rows of cells, each with the line it begins on. A bad row costs itself, never the rows after it.

CSV is as RFC 4180 has it: a cell that begins with a quote goes on to the next single one, over line ends too, and two
quotes inside stand for one. In TSV a quote is a character like any other, and every line is a row.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from softlook.base.errors import DataError
from softlook.data.lines import LONGEST, Line

DELIMITERS = ",;\t|"
QUOTED = re.compile(r'[^"]*+(?:""[^"]*+)*+')
"""The inside of a quoted cell, up to the quote that closes it or to the end of the line."""


class Row(NamedTuple):
    """The cells of one row."""

    line: int
    cells: list[str]
    fault: DataError | None = None


def split_rows(lines: Iterable[Line], delimiter: str) -> Iterator[Row]:
    """Lines cut at a delimiter, without regard to quotes. Blank lines are passed over.

    >>> list(split_rows([Line(1, 'He said "hi"\\tEr sagte "hi"')], "\\t"))
    [Row(line=1, cells=['He said "hi"', 'Er sagte "hi"'], fault=None)]
    """
    for line in lines:
        if line.text or line.fault:
            yield Row(line.number, line.text.split(delimiter), line.fault)


def quoted_rows(lines: Iterable[Line], delimiter: str, path: Path, longest: int = LONGEST) -> Iterator[Row]:
    """Rows as RFC 4180 has them. Blank lines are passed over.

    >>> lines = [Line(1, '1,"two'), Line(2, 'lines, ""quoted"" too"'), Line(3, '2,plain')]
    >>> for row in quoted_rows(lines, ",", Path("a.csv")):
    ...     print(row.line, row.cells)
    1 ['1', 'two\\nlines, "quoted" too']
    3 ['2', 'plain']
    """
    feed = _Feed(lines)
    for line in feed:
        if '"' not in line.text:
            if line.text or line.fault:
                yield Row(line.number, line.text.split(delimiter), line.fault)
        else:
            yield _Quoted(line, feed, delimiter, path, longest).row()


def guess_delimiter(lines: list[Line], path: Path) -> str:
    """The character between the cells: the first of , ; tab | that gives every row the same number of cells.

    >>> guess_delimiter([Line(1, "text;label"), Line(2, "good, or so;1")], Path("a.csv"))
    ';'
    """
    for delimiter in DELIMITERS:
        widths = Counter(len(row.cells) for row in quoted_rows(lines, delimiter, path) if not row.fault)
        width, often = widths.most_common(1)[0] if widths else (1, 0)
        if width > 1 and often >= 0.9 * widths.total():
            return delimiter
    return max(DELIMITERS, key=lambda delimiter: lines[0].text.count(delimiter)) if lines else ","


class _Feed:
    """Lines, some of which can be handed back."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines, self.back = iter(lines), deque[Line]()

    def __iter__(self) -> Iterator[Line]:
        return self

    def __next__(self) -> Line:
        return self.back.popleft() if self.back else next(self.lines)

    def hand_back(self, lines: list[Line]) -> None:
        self.back.extendleft(reversed(lines))


class _Quoted:
    """One row with quotes in it, read cell by cell, over as many lines as it takes."""

    def __init__(self, first: Line, feed: _Feed, delimiter: str, path: Path, longest: int) -> None:
        self.first, self.line, self.at = first, first, 0
        self.feed, self.delimiter, self.path, self.longest = feed, delimiter, path, longest
        self.more: list[Line] = []

    def row(self) -> Row:
        try:
            cells = list(self._cells())
        except DataError as fault:
            # The quote that spoils the row is likely on its first line: the next ones may be rows of their own.
            self.feed.hand_back(self.more)
            return Row(self.first.number, [], fault)
        faults = (line.fault for line in (self.first, *self.more) if line.fault)
        return Row(self.first.number, cells, next(faults, None))

    def _cells(self) -> Iterator[str]:
        while True:
            yield self._quoted() if self.line.text.startswith('"', self.at) else self._plain()
            if self.at == len(self.line.text):
                return
            if self.line.text[self.at] != self.delimiter:
                raise self._fault(
                    "there is text after the quote that closes this cell",
                    self.line,
                    self.at + 1,
                    help='write a quote inside a quoted cell twice: ""',
                )
            self.at += 1

    def _plain(self) -> str:
        start, end = self.at, self.line.text.find(self.delimiter, self.at)
        self.at = len(self.line.text) if end < 0 else end
        return self.line.text[start : self.at]

    def _quoted(self) -> str:
        opening, column = self.line, self.at + 1
        inside: list[str] = []
        size, start = 0, self.at + 1
        while True:
            found = QUOTED.match(self.line.text, start)
            assert found is not None  # it matches nothing too
            inside.append(found[0])
            self.at = found.end() + 1
            if found.end() < len(self.line.text):
                return "\n".join(inside).replace('""', '"')
            size, start = size + len(found[0]) + 1, 0
            after = next(self.feed, None) if size <= self.longest else None
            if after is None:
                raise self._fault(
                    "this quote is never closed",
                    opening,
                    column,
                    why=f"no single quote follows in the next {size:,} characters",
                    help="close it, or write a quote that belongs to the text twice inside quotes",
                )
            self.more.append(after)
            self.line = after

    def _fault(self, what: str, line: Line, column: int, *, why: str = "", help: str = "") -> DataError:
        return DataError(what, file=self.path, line=line.number, column=column, excerpt=line.text, why=why, help=help)


def ragged(path: Path, row: Row, width: int) -> DataError:
    """The error for a row with another number of cells than the first row."""
    spaced = any(cell[:2] == ' "' for cell in row.cells)
    hint = "a quote counts only right after the delimiter, without a space" if spaced else ""
    few = len(row.cells) < width
    return DataError(
        f"this row has {_cells(len(row.cells))}, the first row {width}",
        file=path,
        line=row.line,
        excerpt=" | ".join(islice(row.cells, 20)),
        why="a cell is missing" if few else "a cell too many, perhaps a delimiter inside a text without quotes",
        help=hint,
    )


def _cells(count: int) -> str:
    return f"{count:,} cell{'s' * (count != 1)}"
