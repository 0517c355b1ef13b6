"""From what was counted in a table to what a person should know, the gravest first."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from softlook.data.counts import REMEMBERED
from softlook.data.facts import Finding
from softlook.data.findings import FEW, ORDER, in_both, out_of, repeats
from softlook.data.odd import ODDITIES
from softlook.recipes.tables_counts import ColumnCounts, TableCounts
from softlook.tabular.encoding.categories import CategoryColumn
from softlook.tabular.encoding.columns import Columns
from softlook.tabular.encoding.kinds import Learned
from softlook.tabular.encoding.numbers import NumberColumn
from softlook.tabular.wording import many, named, percent

UNEVEN = 20
"""Times rarer than the commonest that a class is when accuracy alone says little."""
OFTEN = 5
"""So often each value of a column has to occur, on average, for it to be strange that it never errs."""
HARDLY = 0.9
"""Share of cells that are missing from where on a column is worth a word."""
NAMED = 5
"""Columns of which the same is said, by name."""
INSTEAD = {"a missing value in words": "leave such cells empty"}
"""What to do about odd characters, where it is not what one does about them in a text."""
Told = Iterator[Finding]


def findings(
    counts: TableCounts, columns: Columns, labels: Mapping[str, int], shared: Mapping[str, tuple[int, int | None]]
) -> list[Finding]:
    """All that is worth saying; `labels` are the classes, and how often each comes."""
    found = (
        *_amount(counts),
        *_repeats(counts, shared),
        *_labels(counts, labels),
        *_columns(counts, columns.learned),
        *_characters(counts),
    )
    return sorted(found, key=lambda finding: ORDER.index(finding.severity))


def _amount(counts: TableCounts) -> Told:
    if counts.rows < FEW:
        yield Finding("warning", f"{many(counts.rows, 'row')} are few", "gather more")
    if counts.unlabelled:
        whole = counts.rows + counts.unlabelled
        names = " and ".join(counts.target)
        yield Finding("note", f"{out_of(counts.unlabelled, whole)} rows have no {names} and are left out")


def _repeats(counts: TableCounts, shared: Mapping[str, tuple[int, int | None]]) -> Told:
    yield from repeats("rows", counts.duplicates, counts.rows, _row(counts.first.get("duplicates")))
    if len(counts.seen) >= REMEMBERED:
        yield Finding("note", f"repeats were looked for among the first {REMEMBERED:,} rows only")
    yield from in_both("rows", {name: (number, _row(first)) for name, (number, first) in shared.items()})


def _labels(counts: TableCounts, labels: Mapping[str, int]) -> Told:
    if len(labels) < 2:
        return
    (most, many), (least, few) = max(labels.items(), key=_often), min(labels.items(), key=_often)
    if many >= UNEVEN * few:
        what = f"{out_of(many, counts.rows)} rows are {most!r:.40}, and {few:,} {least!r:.40}"
        yield Finding("warning", what, "look at AUC and not only at accuracy, or try --class-weights balanced")
    twice = [same for same in _spelled_alike(labels) if len(same) > 1]
    if twice:
        what = f"classes that differ in nothing but capitals and blanks: {'; '.join(map(named, twice[:NAMED]))}"
        yield Finding("warning", what, "spell each in one way, if each pair is meant as one")
    if counts.disputed:
        grave = "warning" if counts.disputed > 0.05 * counts.rows else "note"
        what = f"rows that differ from another in nothing but {counts.target[0]!r:.80}: {counts.disputed:,}"
        yield Finding(grave, what, "no model tells them apart", _row(counts.first["disputed"]))


def _spelled_alike(labels: Iterable[str]) -> list[list[str]]:
    """Labels by what is left of them without capitals and blanks."""
    found: dict[str, list[str]] = {}
    for label in labels:
        found.setdefault("".join(label.casefold().split()), []).append(label)
    return list(found.values())


def _columns(counts: TableCounts, columns: Sequence[Learned]) -> Told:
    nothing = [column.name for column in columns if _carries_nothing(column)]
    if nothing:
        yield Finding("note", f"cells are all alike, or all missing: {named(nothing, NAMED)}", _leave(nothing))
    hardly = [column.name for column in columns if HARDLY <= column.missing < 1]
    if hardly:
        yield Finding("note", f"{percent(HARDLY)} of the cells are missing, or more: {named(hardly, NAMED)}")
    if counts.rows < FEW:
        return
    own = [column.name for column in columns if _is_id(counts.columns[column.name], column)]
    if own:
        yield Finding("warning", f"every row has a value of its own, as in an id: {named(own, NAMED)}", _leave(own))
    names = " and ".join(counts.target)
    telling = [column.name for column in columns if _tells(counts.columns[column.name], counts.rows)]
    if telling:
        help_ = f"ask whether that is known before {names} is; if not, {_leave(telling)}"
        yield Finding("warning", f"one column alone tells {names} without fail: {named(telling, NAMED)}", help_)


def _characters(counts: TableCounts) -> Told:
    for name, seen in counts.columns.items():
        for kind in ODDITIES:
            if often := seen.odd.get(kind.name):
                grave = "warning" if often > 0.01 * counts.rows else "note"
                what = f"{out_of(often, counts.rows)} cells of {name!r:.80} hold {kind.name}"
                yield Finding(grave, what, INSTEAD.get(kind.name, kind.help), _row(seen.odd_at[kind.name]))


def _carries_nothing(column: Learned) -> bool:
    if column.missing:
        return column.missing == 1.0
    if isinstance(column, CategoryColumn):
        return len(column.values) == 1 and not column.others
    return isinstance(column, NumberColumn) and column.always is not None


def _is_id(seen: ColumnCounts, column: Learned) -> bool:
    """Words that never come again, or whole numbers that count rows; other amounts, and texts, may well be unique."""
    if isinstance(column, CategoryColumn):
        return column.is_id
    if not isinstance(column, NumberColumn) or column.missing or not seen.known or not seen.is_whole:
        return False
    return max(seen.known) - min(seen.known) < 2 * len(seen.known)


def _tells(seen: ColumnCounts, rows: int) -> bool:
    """Whether values that come again and again always come with the same answer."""
    answers = seen.answers or {}
    return len(answers) * OFTEN <= rows and len(set(answers.values())) > 1


def _leave(names: Sequence[str]) -> str:
    return f"leave it out: --ignore {shlex.join(names)}" if len(names) <= NAMED else "leave them out: --ignore"


def _often(label: tuple[str, int]) -> int:
    return label[1]


def _row(number: int | None) -> str:
    return "" if number is None else f"row {number:,}"
