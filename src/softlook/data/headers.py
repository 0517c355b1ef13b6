"""Whether the first row of a table names its columns, and what the names are."""

import re
from collections import Counter
from pathlib import Path

from softlook.base.errors import DataError
from softlook.data.delimited import Row
from softlook.data.names import KNOWN, is_language

MOST = 4096
"""Columns."""
NAME = re.compile(r"[^\W\d][\w .\-/#()]{0,39}|#[\w ]{1,39}|")
NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?\s*")


def has_header(rows: list[list[str]]) -> bool:
    """Whether the first row is made of names. Where in doubt it is not: a guess should not cost an example.

    >>> has_header([["text", "label"], ["good", "1"]]), has_header([["Go.", "Va !"], ["Run!", "Cours !"]])
    (True, False)
    """
    first, rest = rows[0], rows[1:]
    if not all(NAME.fullmatch(cell.strip()) for cell in first) or not any(first):
        return False
    words = [cell.strip().casefold() for cell in first]
    if any(word in KNOWN for word in words) or all(map(is_language, words)):
        return True
    return any(_differs(cell, [row[place] for row in rest if place < len(row)]) for place, cell in enumerate(first))


def _differs(first: str, rest: list[str]) -> bool:
    """Whether a cell stands out from those below: no number above numbers, or a word above a few that repeat."""
    if len(rest) < 2 or not first:
        return False
    numbers = sum(NUMBER.fullmatch(cell) is not None for cell in rest)
    if numbers >= 0.9 * len(rest):
        return not NUMBER.fullmatch(first)
    distinct = set(rest)
    return len(rest) >= 10 and 1 < len(distinct) <= len(rest) / 5 and first not in distinct


def column_names(path: Path, row: Row, *, is_header: bool) -> tuple[str, ...]:
    """The names in a first row, or their numbers. No two columns may share a name."""
    if len(row.cells) > MOST:
        raise _fault(path, row, f"{len(row.cells):,} columns; at most {MOST:,} are taken", "is the delimiter right?")
    if not is_header:
        return tuple(str(place) for place, _ in enumerate(row.cells, 1))
    names = tuple(cell.strip() or f"column {place}" for place, cell in enumerate(row.cells, 1))
    name, often = Counter(names).most_common(1)[0]
    if often > 1:
        raise _fault(path, row, f"{often:,} columns are named {name!r:.80}", "give each column a name of its own")
    return names


def _fault(path: Path, row: Row, what: str, help: str) -> DataError:
    return DataError(what, file=path, line=row.line, excerpt=" | ".join(row.cells[:20]), help=help)
