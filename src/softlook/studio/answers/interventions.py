"""Interventions: heads are ablated or sharpened, tokens are hidden, and the outputs are compared."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from softlook.base.errors import ConfigError, DataError
from softlook.lens.ablation import ablate
from softlook.lens.interventions import attention_temperature, mask_keys
from softlook.lens.trace import trace
from softlook.lens.trace_description import column_tokens
from softlook.studio.live import LiveModel
from softlook.studio.recording import StudioTrace
from softlook.studio.session import Studio

SHOWN = 10
"""Outputs that are compared, of each of both predictions."""


class Body(BaseModel):
    """A request; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class HeadSelection(Body):
    layer: str | int
    """The path of an attention, or its number."""
    heads: list[int] = Field(min_length=1, max_length=1024)


class Ablation(HeadSelection):
    amount: float = Field(1.0, ge=0, le=1)
    replacement: Literal["zero", "mean"] = "zero"


class Temperature(HeadSelection):
    value: float = Field(gt=0, le=1e6)


class Intervention(Body):
    """What is changed during a forward pass, and the position whose output is compared."""

    ablate: list[Ablation] = Field(default=[], max_length=4096)
    temperature: list[Temperature] = Field(default=[], max_length=4096)
    mask: list[int] = Field(default=[], max_length=1 << 16)
    position: int = -1


def intervene(studio: Studio, recording: StudioTrace, body: Intervention) -> dict[str, Any]:
    """Run the model again with changes: the new recording, and the most likely outputs before and after."""
    live = require_live(recording, "intervene")
    inputs = model_inputs(recording)
    with live.running() as model, ExitStack() as changes:
        for one in body.ablate:
            path, replacement = recording.path(str(one.layer)), one.replacement
            changes.enter_context(ablate(model, path, one.heads, replacement, amount=one.amount))
        for one in body.temperature:
            changes.enter_context(attention_temperature(model, recording.path(str(one.layer)), one.heads, one.value))
        if body.mask:
            changes.enter_context(mask_keys(model, body.mask, layers=_layers_of_source(recording)))
        with trace(model, values=True) as changed:
            model(**inputs)
    changed.tokens, changed.source_tokens = recording.trace.tokens, recording.trace.source_tokens
    new = StudioTrace(changed, recording.title, recording.model, recording.task, live, recording.predicted)
    studio.add(new)
    outputs = output_probabilities([recording, new], body.position)
    return {
        "id": new.id,
        "trace": new.info(),
        "before": [[name, before] for name, (before, _) in outputs],
        "after": [[name, after] for name, (_, after) in outputs],
        "delta": [[name, after - before] for name, (before, after) in outputs],
    }


def output_probabilities(recordings: Sequence[StudioTrace], position: int = -1) -> list[tuple[str, list[float]]]:
    """The outputs that are most likely in one of several recordings, with their probabilities in each of them."""
    probabilities = [_probabilities(recording, position) for recording in recordings]
    tops = [one.topk(min(SHOWN, len(one))).indices.tolist() for one in probabilities]
    ids = list(dict.fromkeys(id for top in tops for id in top))
    return [
        (name, [one[id].item() for one in probabilities])
        for name, id in zip(_names(recordings[0], ids), ids, strict=True)
    ]


def _probabilities(recording: StudioTrace, position: int) -> Tensor:
    """The probabilities of all outputs at a position."""
    logits = recording.trace.logits
    if logits is None:
        raise ConfigError(f"{recording.model} has no logits to compare")
    row = logits[0].float()
    if row.ndim == 2:
        if not -len(row) <= position < len(row):
            raise DataError(f"position expects a number from 0 to {len(row) - 1}, got {position}")
        row = row[position]
    return row.softmax(-1)


def _names(recording: StudioTrace, ids: Sequence[int]) -> list[str]:
    if recording.live is None or "next" not in recording.live.capabilities:
        return [f"output {id}" for id in ids]
    return recording.live.output_names(ids)


def require_live(recording: StudioTrace, capability: str) -> LiveModel:
    """The model of a recording; an error without one."""
    if recording.live is None:
        raise ConfigError(f"the trace {recording.title!r} is recorded: {capability} needs the model")
    recording.live.require(capability)
    return recording.live


def model_inputs(recording: StudioTrace) -> dict[str, Tensor]:
    """The inputs of the model's last forward pass, by the names of its parameters."""
    found = {name: calls[-1] for name, calls in recording.trace.inputs.items() if "." not in name}
    if not found:
        raise ConfigError(f"the trace {recording.title!r} does not hold the inputs of the model")
    return found


def _layers_of_source(recording: StudioTrace) -> list[str]:
    """The attentions whose keys are the tokens of the columns: all, except the self-attention of a decoder."""
    width = len(column_tokens(recording.trace))
    kinds = [(one["path"], one["columns"], one["kind"]) for one in recording.info()["attentions"]]
    has_cross = any(kind == "cross" for _, _, kind in kinds)
    return [path for path, columns, kind in kinds if columns == width and not (has_cross and kind == "causal")]
