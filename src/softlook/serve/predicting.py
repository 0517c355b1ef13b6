"""The page of tables: what is said of rows, how likely it is, and which columns were looked at."""

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.serve import replies
from softlook.serve.asking import Ask
from softlook.serve.limits import Limits
from softlook.serve.pages import ASKED, counter_of, router, written
from softlook.serve.schemas import PredictionRequest
from softlook.serve.tables import Cell, Label, ServedTable
from softlook.serve.wording import aside

try:
    from fastapi import Request, Response
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault

PART = 128
"""Rows that are answered together, of a request that has more: in between comes whoever has few."""
SHOWN = 12
"""Names of columns that an error lists."""
DIGITS = 6
"""Of a share of the look; more is noise."""


@router.post("/v1/tables/predict", response_model=replies.Predictions, responses=ASKED)
async def predict(asked: PredictionRequest, request: Request) -> Response:
    """What a table's model says of each row."""
    counter = counter_of(request)
    seat = counter.hall.table(asked.model)
    asks = await aside(lambda: asks_for(asked, seat.served, counter.hall.limits), 100 * _count(asked))
    found = await counter.wait(seat, asks, request).numbers()
    answers, looks = (torch.cat(some) if some else None for some in (found[: _parts(asked)], found[_parts(asked) :]))
    assert answers is not None
    counter.metrics.rows.labels(asked.model).inc(len(answers))
    return written(await aside(lambda: _reply(asked, seat.served, answers, looks), 100 * len(answers)))


def asks_for(asked: PredictionRequest, served: ServedTable, limits: Limits) -> list[Ask]:
    """A request's rows in parts; where they are to be explained, all of them twice."""
    table, count = served.table, _count(asked)
    _check(asked, served)
    product = count * len(table.columns) * (1 + asked.explain)
    parts = _parts(asked) * (1 + asked.explain)
    if product > limits.product or parts > limits.queue:
        raise DataError(
            f"{count:,} rows of {len(table.columns)} columns{', explained,' * asked.explain} are {product:,} cells; "
            f"at most {min(limits.product, limits.queue * PART * len(table.columns)):,} are answered. "
            "Ask for fewer rows at a time"
        )
    read = table.read(_cells(asked, served, count), PART)
    return [Ask((), rows=part, looks=looks) for looks in (False, True)[: 1 + asked.explain] for part in read]


def _count(asked: PredictionRequest) -> int:
    if (asked.rows is None) == (asked.columns is None):
        raise DataError('give "rows", a list of {column: cell}, or "columns", {column: list of cells}: one of the two')
    return len(next(iter(asked.columns.values()))) if asked.columns is not None else len(asked.rows or ())


def _parts(asked: PredictionRequest) -> int:
    return -(-_count(asked) // PART)


def _check(asked: PredictionRequest, served: ServedTable) -> None:
    """Can what is wanted beside the answers be told?"""
    if asked.probabilities and not served.table.classes:
        raise DataError(f'{served.name} predicts numbers, which have no probabilities: leave out "probabilities"')
    if asked.explain and not served.table.explains:
        raise DataError(f'{served.name} looks at no columns, so it cannot say at which: leave out "explain"')


def _cells(asked: PredictionRequest, served: ServedTable, count: int) -> dict[str, Sequence[Cell]]:
    """Every column of the table; what is not there is missing."""
    names = served.table.columns
    if asked.columns is not None:
        _check_names(asked.columns, served)
        uneven = next((name for name, cells in asked.columns.items() if len(cells) != count), None)
        if uneven is not None:
            many, first = len(asked.columns[uneven]), next(iter(asked.columns))
            raise DataError(f"columns are of one length; {first!r:.80} has {count:,} cells, {uneven!r:.80} {many:,}")
        return {name: asked.columns.get(name) or [None] * count for name in names}
    rows = asked.rows or []
    for number, row in enumerate(rows):
        _check_names(row, served, f"row {number}: ")
    return {name: [row.get(name) for row in rows] for name in names}


def _check_names(names: Iterable[str], served: ServedTable, where: str = "") -> None:
    known = served.table.columns
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    listed = ", ".join(f"{name!r:.80}" for name in unknown[:SHOWN]) + ", ..." * (len(unknown) > SHOWN)
    told = f"{where}{served.name} does not read {listed}."
    if all(name in served.table.target for name in unknown):
        raise DataError(f"{told} It is what is predicted: leave it out")
    close = get_close_matches(unknown[0][:80], known, n=1)
    meant = f" Did you mean {close[0]!r:.80}?" if close else ""
    reads = ", ".join(list(known)[:SHOWN]) + ", ..." * (len(known) > SHOWN)
    raise DataError(f"{told}{meant} It reads {reads}")


def _reply(asked: PredictionRequest, served: ServedTable, answers: Tensor, looks: Tensor | None) -> replies.Predictions:
    table = served.table
    sound = answers.isfinite().all(1)
    if not sound.all():
        row = int((~sound).long().argmax())
        raise DataError(f"row {row}: what the model says is no number. One of its cells is far beyond all it has seen")
    return replies.Predictions(
        model=asked.model,
        target=list(table.target),
        classes=list(table.classes),
        predictions=table.told(answers),
        probabilities=_named(map(spelled, table.classes), answers.tolist()) if asked.probabilities else None,
        explanations=None if looks is None else _shares(table.columns, looks),
    )


def _shares(columns: Mapping[str, str], looks: Tensor) -> list[dict[str, Any]]:
    rows = [[None if share != share else round(share, DIGITS) for share in row] for row in looks.tolist()]
    return _named(columns, rows)


def _named(names: Iterable[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    listed = list(names)
    return [dict(zip(listed, row, strict=True)) for row in rows]


def spelled(label: Label) -> str:
    """A class as the name of its probability: a text as it is, everything else as JSON writes it.

    >>> spelled(">50K"), spelled(True), spelled(3)
    ('>50K', 'true', '3')
    """
    return label if isinstance(label, str) else json.dumps(label)
