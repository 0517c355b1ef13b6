"""GET /api/runs/...: training runs, also while they train; and /api/table/...: a table model."""

import time
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from softlook.base.errors import ConfigError
from softlook.studio.answers.interventions import Body
from softlook.studio.routes.context import ERRORS, StudioOf
from softlook.studio.routes.events import EVENTS, Event, event_response
from softlook.studio.session import Runs, Studio, Table

router = APIRouter(prefix="/api", responses=ERRORS)
POLL_SECONDS = 0.5
CELLS = str | float | int | bool | None


class Row(Body):
    """Cells by column."""

    row: dict[str, CELLS]


class Since(Body):
    """The first line of the event log that is sent; default: those that are written from now on."""

    first: int | None = None


@router.get("/runs", tags=["runs"])
def runs(studio: StudioOf) -> list[dict[str, Any]]:
    """The training runs, newest first."""
    return [] if studio.runs is None else studio.runs.all()


@router.get("/runs/{id:path}/curves", tags=["runs"])
def curves(id: str, studio: StudioOf) -> dict[str, Any]:
    """Loss, learning rate, gradient norm, tokens per second and validation scores by step."""
    return _runs(studio).curves(id)


@router.get("/runs/{id:path}/samples", tags=["runs"])
def samples(id: str, studio: StudioOf) -> list[dict[str, Any]]:
    """Outputs of the model at each evaluation."""
    return _runs(studio).samples(id)


@router.get("/runs/{id:path}/attention", tags=["runs"])
def attention(id: str, studio: StudioOf) -> dict[str, Any]:
    """The attention on a fixed text at each evaluation, as traces."""
    found = _runs(studio).checkpoints(id)
    traces = [studio.checkpoint(id, one["step"]) for one in found]
    return {"checkpoints": [{**one, "trace": trace.id} for one, trace in zip(found, traces, strict=True)]}


@router.post("/runs/{id:path}/events", tags=["runs"], responses=EVENTS)
def events(id: str, studio: StudioOf, body: Since | None = None) -> Response:
    """The events of a run as they are written; ends when the run has finished."""
    source = _runs(studio)
    lines, _ = source.lines(id, 0)
    first = None if body is None else body.first
    return event_response(lambda: follow(source, studio, id, len(lines) if first is None else first))


def follow(source: Runs, studio: Studio, id: str, first: int) -> Iterator[Event]:
    """Events "step" with each new line of the log, then "done". An event "wait" says that nothing is new."""
    while not studio.closing.is_set():
        lines, active = source.lines(id, first)
        first += len(lines)
        yield from (("step", line) for line in lines)
        if not active:
            break
        yield "wait", {}
        time.sleep(POLL_SECONDS)
    yield "done", {}


@router.get("/table/columns", tags=["table"])
def columns(studio: StudioOf) -> dict[str, Any]:
    """The columns of the table, and a row to begin with."""
    return _table(studio).columns()


@router.post("/table/predict", tags=["table"])
def predict(body: Row, studio: StudioOf) -> dict[str, Any]:
    """The prediction for a row, and its attention as a trace."""
    answer, recording = _table(studio).predict(body.row)
    return {**answer, "attention": studio.add(recording).info()}


@router.get("/table/importance", tags=["table"])
def importance(studio: StudioOf) -> dict[str, Any]:
    """Attention and permutation importance of every column."""
    return _table(studio).importance()


def _runs(studio: Studio) -> Runs:
    if studio.runs is None:
        raise ConfigError("there are no runs here: softlook studio RUN shows a run and those beside it")
    return studio.runs


def _table(studio: Studio) -> Table:
    if studio.table is None:
        raise ConfigError("no table model is loaded: softlook studio RUN with a run of `softlook train table`")
    return studio.table
