"""POST /v1/tables/predict."""

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from fastapi import APIRouter, Request, Response
from torch import Tensor

from softlook.base.errors import DataError
from softlook.serve.engine.request import EngineRequest, ServerLimits
from softlook.serve.loaded_model import Cell, Label, LoadedTable
from softlook.serve.protocol import responses
from softlook.serve.protocol.parsing import ParsingRoute
from softlook.serve.protocol.preprocess import offload
from softlook.serve.protocol.requests import PredictionRequest
from softlook.serve.routes import MODEL_ERRORS, get_context, json_response

router = APIRouter(route_class=ParsingRoute)
CHUNK_ROWS = 128
"""Rows of a request that are predicted together; requests with few rows run between two chunks."""
MAX_SHOWN_NAMES = 12
"""Column names listed in an error."""
EXPLANATION_DIGITS = 6
"""Decimals of the attention on a column."""


@router.post("/v1/tables/predict", response_model=responses.PredictionList, responses=MODEL_ERRORS)
async def predict(body: PredictionRequest, request: Request) -> Response:
    """Predict table rows."""
    context = get_context(request)
    deployment, limits = context.registry.get_table(body.model), context.registry.limits
    loaded = deployment.loaded
    requests = await offload(lambda: table_requests(body, loaded, limits), 100 * _num_rows(body))
    tensors = await context.submit(deployment, requests, request).tensors()
    num_chunks = _num_chunks(body)
    outputs = torch.cat(tensors[:num_chunks])
    attention = torch.cat(tensors[num_chunks:]) if body.explain else None
    context.metrics.table_rows.labels(body.model).inc(len(outputs))
    return json_response(await offload(lambda: _response(body, loaded, outputs, attention), 100 * len(outputs)))


def table_requests(body: PredictionRequest, loaded: LoadedTable, limits: ServerLimits) -> list[EngineRequest]:
    """The rows of a request in chunks; with `explain`, all chunks twice."""
    table, count = loaded.table, _num_rows(body)
    if body.probabilities and not table.classes:
        raise DataError(f'{loaded.name} is a regression model, which has no probabilities: remove "probabilities"')
    if body.explain and not table.can_explain:
        raise DataError(f'{loaded.name} has no attention over columns: remove "explain"')
    num_cells = count * len(table.columns) * (1 + body.explain)
    if num_cells > limits.max_request_tokens or _num_chunks(body) * (1 + body.explain) > limits.max_queue:
        maximum = min(limits.max_request_tokens, limits.max_queue * CHUNK_ROWS * len(table.columns))
        raise DataError(
            f"{count:,} rows of {len(table.columns)} columns{', explained,' * body.explain} are {num_cells:,} cells; "
            f"the maximum is {maximum:,}. Send fewer rows"
        )
    chunks = table.encode(_columns(body, loaded, count), CHUNK_ROWS)
    return [
        EngineRequest((), rows=chunk, attention_only=explain)
        for explain in (False, True)[: 1 + body.explain]
        for chunk in chunks
    ]


def _num_rows(body: PredictionRequest) -> int:
    if (body.rows is None) == (body.columns is None):
        raise DataError('expected either "rows", a list of {column: cell}, or "columns", {column: list of cells}')
    return len(next(iter(body.columns.values()))) if body.columns is not None else len(body.rows or ())


def _num_chunks(body: PredictionRequest) -> int:
    return -(-_num_rows(body) // CHUNK_ROWS)


def _columns(body: PredictionRequest, loaded: LoadedTable, count: int) -> dict[str, Sequence[Cell]]:
    """All feature columns; absent cells are missing."""
    names = loaded.table.columns
    if body.columns is not None:
        _check_names(body.columns, loaded)
        uneven = next((name for name, cells in body.columns.items() if len(cells) != count), None)
        if uneven is not None:
            other, first = len(body.columns[uneven]), next(iter(body.columns))
            raise DataError(
                f"columns must be equally long; {first!r:.80} has {count:,} cells, {uneven!r:.80} {other:,}"
            )
        return {name: body.columns.get(name) or [None] * count for name in names}
    rows = body.rows or []
    for index, row in enumerate(rows):
        _check_names(row, loaded, f"row {index}: ")
    return {name: [row.get(name) for row in rows] for name in names}


def _check_names(names: Iterable[str], loaded: LoadedTable, where: str = "") -> None:
    known = loaded.table.columns
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    message = f"{where}{loaded.name} has no feature {_join([f'{name!r:.80}' for name in unknown])}."
    if all(name in loaded.table.target for name in unknown):
        raise DataError(f"{message} It is the target: remove it")
    close = get_close_matches(unknown[0][:80], known, n=1)
    hint = f" Did you mean {close[0]!r:.80}?" if close else ""
    raise DataError(f"{message}{hint} Its features are {_join(list(known))}")


def _join(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_SHOWN_NAMES]) + ", ..." * (len(names) > MAX_SHOWN_NAMES)


def _response(
    body: PredictionRequest, loaded: LoadedTable, outputs: Tensor, attention: Tensor | None
) -> responses.PredictionList:
    table = loaded.table
    is_finite = outputs.isfinite().all(1)
    if not is_finite.all():
        row = int((~is_finite).long().argmax())
        raise DataError(f"row {row}: the prediction is not finite. One of its cells is far outside the training range")
    return responses.PredictionList(
        model=body.model,
        target=list(table.target),
        classes=list(table.classes),
        predictions=table.decode(outputs),
        probabilities=_records(map(class_name, table.classes), outputs) if body.probabilities else None,
        explanations=None if attention is None else _records(table.columns, attention, EXPLANATION_DIGITS),
    )


def _records(names: Iterable[str], rows: Tensor, digits: int | None = None) -> list[dict[str, Any]]:
    """Rows as objects, rounded to so many decimals; NaN becomes null."""
    keys = list(names)
    cells = [[None if x != x else x if digits is None else round(x, digits) for x in row] for row in rows.tolist()]
    return [dict(zip(keys, row, strict=True)) for row in cells]


def class_name(label: Label) -> str:
    """A class as the key of its probability: strings unchanged, everything else as JSON.

    >>> class_name(">50K"), class_name(True), class_name(3)
    ('>50K', 'true', '3')
    """
    return label if isinstance(label, str) else json.dumps(label)
