"""GET /api/traces/...: maps, lanes and numbers of recorded traces."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from softlook.studio.answers import cells, maps, predictions, rows, values
from softlook.studio.routes.context import ERRORS, FRAME, AskHead, AskTrace, Attention, Range, StudioOf

router = APIRouter(prefix="/api", tags=["traces"], responses=ERRORS)
Number = Annotated[int, Query(ge=0)]
Position = Annotated[int, Query(description="below 0 from the end")]


@router.get("/info")
def info(studio: StudioOf) -> dict[str, Any]:
    """The traces, the model and the runs of this studio."""
    return studio.info()


@router.get("/traces/{id}")
def trace_info(ask: AskTrace) -> dict[str, Any]:
    """The tokens and attentions of a trace."""
    return ask.recording.info()


@router.get("/traces/{id}/tile", responses=FRAME)
def tile(
    ask: AskHead,
    level: Number = 0,
    row: Number = 0,
    column: Number = 0,
    pool: Literal["max", "mean", "sample"] = "max",
) -> Response:
    """A tile of a map's pyramid: at level n a cell covers 2^n x 2^n weights."""
    return ask.answer(lambda: maps.tile(ask.layer, head=ask.head, level=level, row=row, column=column, pool=pool))


@router.get("/traces/{id}/weights", responses=FRAME)
def weights(
    ask: AskHead,
    rows: Range = "",
    columns: Range = "",
    kind: values.Kind = "weights",
    token: Annotated[int | None, Query(ge=0, description="the token id whose logit is attributed")] = None,
) -> Response:
    """A part of a map: the weights, these times the norms of what they weight, or what they add to a logit."""
    part = {"head": ask.head, "rows": rows, "columns": columns}
    if kind == "weights":
        return ask.answer(lambda: maps.weights(ask.layer, **part))
    return ask.answer(lambda: values.weighted(ask.recording, ask.path, kind, token=token, **part))


@router.get("/traces/{id}/overview", responses=FRAME)
def overview(
    ask: AskTrace, size: Annotated[int, Query(ge=1, le=maps.MAX_OVERVIEW)] = 64, attention: Attention = ""
) -> Response:
    """All heads of all attentions, or of one, max-pooled to at most `size` x `size` cells."""
    recording = ask.recording
    layers = [recording.layer(attention)] if attention else list(recording.trace.values())
    return ask.answer(lambda: maps.overview(layers, size))


@router.get("/traces/{id}/lanes", responses=FRAME)
def lanes(
    ask: AskHead,
    name: Annotated[str, Query(max_length=20, description="one lane as a frame; default: all as JSON")] = "",
) -> Response:
    """Statistics beside a map: entropy, largest weight and mean distance of each query, mass of each key."""
    layer, head = ask.layer, ask.head
    return ask.answer(lambda: rows.lane(layer, head=head, name=name) if name else rows.lanes(layer, head=head))


@router.get("/traces/{id}/strong")
def strong(ask: AskHead) -> Response:
    """The columns and diagonals with the largest mean weight."""
    return ask.answer(lambda: rows.strong(ask.layer, head=ask.head))


@router.get("/traces/{id}/scores", responses=FRAME)
def scores(ask: AskHead, row: Number) -> Response:
    """The scores of one query; the offset of the frame is their log-sum-exp."""
    return ask.answer(lambda: cells.scores(ask.layer, head=ask.head, row=row))


@router.get("/traces/{id}/qk")
def qk(ask: AskHead, rows: Range = "", columns: Range = "") -> Response:
    """Queries and keys of a head, the norms of its values, its scale, and the log-sum-exp of each query."""
    return ask.answer(lambda: cells.vectors(ask.layer, head=ask.head, rows=rows, columns=columns))


@router.get("/traces/{id}/explain")
def explain(ask: AskHead, row: Number, column: Number) -> Response:
    """How one weight is computed, with its numbers, and the lines of Python that reproduce it."""
    return ask.answer(lambda: cells.explain(ask.layer, path=ask.path, head=ask.head, row=row, column=column))


@router.get("/traces/{id}/rollout", responses=FRAME)
def rollout(
    ask: AskTrace,
    row: Annotated[int | None, Query(ge=0)] = None,
    sources: Annotated[str, Query(max_length=4000, description="groups of tokens, as 0:4,4:9")] = "",
    stack: Annotated[str, Query(max_length=40, description="encoder or decoder")] = "",
) -> Response:
    """Attention rollout: how much of each token, or group of tokens, reaches each position through all layers."""
    return ask.answer(lambda: predictions.rollout(ask.recording, row=row, sources=sources, stack=stack))


@router.get("/traces/{id}/head_table")
def head_table(ask: AskTrace) -> Response:
    """Scores of every self-attention head on this text: sink, previous token, local and others."""
    return ask.answer(lambda: predictions.head_scores(ask.recording))


@router.get("/traces/{id}/logit_lens")
def logit_lens(ask: AskTrace, position: Position = -1) -> Response:
    """The most likely tokens after each block."""
    return ask.answer(lambda: predictions.lens(ask.recording, position))


@router.get("/traces/{id}/next")
def next_tokens(
    ask: AskTrace, position: Position = -1, k: Annotated[int, Query(ge=1, le=predictions.MAX_TOKENS)] = 10
) -> Response:
    """The most likely outputs at a position: [token, logit, probability]."""
    return ask.answer(lambda: predictions.next_tokens(ask.recording, position, k))
