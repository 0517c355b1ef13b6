"""Twins: two texts of one number of tokens, the difference of their maps, and patches from one into the other."""

from inspect import signature
from typing import Any

from pydantic import Field

from softlook.base.errors import ConfigError
from softlook.lens.patching import patch
from softlook.lens.trace import trace
from softlook.lens.twins import twins as trace_twins
from softlook.studio.answers.interventions import Body, output_probabilities
from softlook.studio.answers.maps import select_part
from softlook.studio.answers.predictions import Candidates
from softlook.studio.answers.selection import select_heads, to_slice
from softlook.studio.frames import encode_frame
from softlook.studio.live import LiveModel, ModelInput
from softlook.studio.recording import StudioTrace
from softlook.studio.session import Studio, TwinRecordings

MAX_CHARS = 100_000
STATES = ("before", "patched", "target")


class TwinTexts(Body):
    first: str = Field(max_length=MAX_CHARS)
    second: str = Field(max_length=MAX_CHARS)
    target: str | None = Field(None, max_length=MAX_CHARS)
    """Of an encoder-decoder: the target that both read; default: the translation of the first."""


class Patch(Body):
    """What the first twin gets from the second: outputs of heads, or the residual stream after a block."""

    layer: str | int
    """An attention, by its path or number, or the path of a block."""
    heads: list[int] | None = Field(None, max_length=1024)
    positions: list[int] | None = Field(None, max_length=1 << 16)
    position: int = -1
    """The position whose output is compared."""


def make_twins(studio: Studio, body: TwinTexts) -> TwinRecordings:
    """Trace two texts that differ in a few tokens. An encoder-decoder reads the same target after both."""
    live = studio.require_live("twins")
    one = live.encode(body.first, None, body.target)
    other = live.encode(body.second, None, body.target)
    with live.running() as model:
        traced = trace_twins(model, one.args[0], other.args[0], **_shared_inputs(live, one))
    recordings = []
    for given, recorded in ((one, traced.first_trace), (other, traced.second_trace)):
        recorded.tokens = given.tokens if one.source_tokens is None else one.tokens
        recorded.source_tokens = given.source_tokens
        recording = StudioTrace(recorded, given.title, live.name, live.task, live, one.predicted)
        recordings.append(studio.add(recording))
    return studio.add_twins(recordings[0], recordings[1], traced)


def _shared_inputs(live: LiveModel, given: ModelInput) -> dict[str, Any]:
    """The inputs of the model after the first one, by name."""
    names = list(signature(live.model.forward).parameters)[1:]
    return {**dict(zip(names, given.args[1:], strict=False)), **given.kwargs}


def describe(pair: TwinRecordings) -> dict[str, Any]:
    """Both recordings, the positions that differ, and how far the residual streams are apart after each block."""
    distance = {path: one[0].tolist() for path, one in pair.twins.distance().items()}
    return {
        "id": pair.id,
        "first": pair.first.info(),
        "second": pair.second.info(),
        "changed": pair.twins.changed,
        "distance": distance,
    }


def difference(pair: TwinRecordings, *, attention: str, head: str, rows: str = "", columns: str = "") -> bytes:
    """Weights of the second text minus those of the first."""
    path = pair.first.path(attention)
    layer = pair.first.trace[path]
    heads, (own_rows, own_columns) = select_heads(layer, head), select_part(layer, head, rows, columns)
    part = {"heads": heads.part, "rows": to_slice(own_rows), "columns": to_slice(own_columns)}
    found = pair.twins.difference(path, **part)[0]
    found = found.mean(0, keepdim=True) if heads.mean else found
    return encode_frame(found if head == "-1" else found[0])


def apply_patch(studio: Studio, pair: TwinRecordings, body: Patch) -> dict[str, Any]:
    """Run the first text with activations of the second: the most likely outputs before, patched, and of the second."""
    live, twins = pair.first.live, pair.twins
    if live is None:
        raise ConfigError("patching needs the model")
    path = str(body.layer) if body.layer in twins.second_trace.residual else pair.first.path(str(body.layer))
    with (
        live.running() as model,
        patch(model, twins.second_trace, path, heads=body.heads, positions=body.positions),
        trace(model, values=True) as recorded,
    ):
        model(twins.first, **twins.inputs)
    one = pair.first
    recorded.tokens, recorded.source_tokens = one.trace.tokens, one.trace.source_tokens
    patched = StudioTrace(recorded, one.title, one.model, one.task, live, one.predicted)
    studio.add(patched)
    return {"id": patched.id, **_three(one, patched, pair.second, body.position)}


def _three(first: StudioTrace, patched: StudioTrace, second: StudioTrace, position: int) -> dict[str, Candidates]:
    """The outputs that are most likely for one of them, with their probabilities in all three."""
    found = output_probabilities([first, patched, second], position)
    return {name: [[token, probabilities[i]] for token, probabilities in found] for i, name in enumerate(STATES)}
