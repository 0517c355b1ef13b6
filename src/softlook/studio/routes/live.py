"""POST /api/...: what needs the model. New traces, interventions, twins, generation and beams."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from softlook.studio.answers import decoding, interventions, twins
from softlook.studio.answers.interventions import Body
from softlook.studio.routes.context import ERRORS, FRAME, MEDIA_TYPE, AskTrace, Attention, Head, Range, StudioOf
from softlook.studio.routes.events import EVENTS, event_response

router = APIRouter(prefix="/api", tags=["model"], responses=ERRORS)


class TraceText(Body):
    """A text, a second text of a pair, and the target of an encoder-decoder (default: its own translation)."""

    text: str = Field(max_length=twins.MAX_CHARS)
    pair: str | None = Field(None, max_length=twins.MAX_CHARS)
    target: str | None = Field(None, max_length=twins.MAX_CHARS)


@router.post("/trace")
def trace(body: TraceText, studio: StudioOf) -> dict[str, Any]:
    """A new trace of the model reading a text."""
    return studio.record(body.text, body.pair, body.target).info()


@router.post("/traces/{id}/intervene")
def intervene(body: interventions.Intervention, ask: AskTrace, studio: StudioOf) -> dict[str, Any]:
    """A forward pass with heads ablated, temperatures changed and tokens hidden; the outputs before and after."""
    return interventions.intervene(studio, ask.recording, body)


@router.post("/twins")
def make_twins(body: twins.TwinTexts, studio: StudioOf) -> dict[str, Any]:
    """Traces of two texts with the same number of tokens."""
    return twins.describe(twins.make_twins(studio, body))


@router.get("/twins/{id}/difference", responses=FRAME)
def difference(
    id: str, studio: StudioOf, attention: Attention, head: Head = "-1", rows: Range = "", columns: Range = ""
) -> Response:
    """Weights of the second text minus those of the first."""
    pair = studio.find_twins(id)
    frame = twins.difference(pair, attention=attention, head=head, rows=rows, columns=columns)
    return Response(frame, media_type=MEDIA_TYPE)


@router.post("/twins/{id}/patch")
def patch(id: str, body: twins.Patch, studio: StudioOf) -> dict[str, Any]:
    """The outputs for the first text with activations of the second."""
    return twins.apply_patch(studio, studio.find_twins(id), body)


@router.post("/generate", responses=EVENTS)
def generate(body: decoding.Generation, studio: StudioOf) -> Response:
    """Generate token by token, with the candidates of each step."""
    studio.require_live("generate")
    return event_response(lambda: decoding.generate(studio, body))


@router.post("/beams", responses=EVENTS)
def beams(body: decoding.Beams, studio: StudioOf) -> Response:
    """Search with beams, with the candidates of each step that were kept and dropped."""
    studio.require_live("beams")
    return event_response(lambda: decoding.beams(studio, body))
