"""Weights times the norms of the projected values, and contributions of values to a logit."""

from typing import Literal

import torch

from softlook.base.errors import ConfigError, DataError
from softlook.lens.contributions import logit_contributions
from softlook.lens.value_weighted import value_weighted_attention
from softlook.studio.answers.maps import select_part
from softlook.studio.answers.selection import select_heads, to_slice
from softlook.studio.frames import encode_frame
from softlook.studio.recording import StudioTrace

Kind = Literal["weights", "value_weighted", "contribution"]


def weighted(
    recording: StudioTrace, path: str, kind: Kind, *, head: str, rows: str, columns: str, token: int | None = None
) -> bytes:
    """A part of a map, (t, s) or of all heads (H, t, s): p |W_O v|, or what each key adds to a logit at one row.

    - `token`: the id of the token whose logit is attributed; default: the most likely one at the row.
    """
    live = recording.live
    if live is None:
        raise ConfigError(f"{kind} needs the model, and the trace {recording.title!r} is recorded")
    layer = recording.trace[path]
    heads, (own_rows, own_columns) = select_heads(layer, head), select_part(layer, head, rows, columns)
    if kind == "value_weighted":
        part = {"heads": heads.part, "rows": to_slice(own_rows), "columns": to_slice(own_columns)}
        found = value_weighted_attention(live.model, recording.trace, path, **part)[0]
    else:
        live.require("contributions")
        if len(own_rows) != 1:
            raise DataError(f"contributions belong to the logit of one row, got {len(own_rows)} rows")
        sources = _sources(recording, own_rows.start, token)[path][0]
        found = sources[heads.part, None, own_columns.start : own_columns.stop]
    found = found.mean(0, keepdim=True) if heads.mean else found
    return encode_frame(found if head == "-1" else found[0])


def _sources(recording: StudioTrace, row: int, token: int | None) -> dict[str, torch.Tensor]:
    """What each source token adds to a logit at a row, through each head of each layer."""
    live, logits = recording.live, recording.trace.logits
    ids = recording.trace.inputs.get("ids")
    if live is None or logits is None or ids is None:
        raise ConfigError("contributions need a language model and its logits")
    chosen = int(logits[0, row].argmax()) if token is None else token
    with live.running() as model:
        return dict(logit_contributions(model, ids[-1], token=chosen, position=row).sources)
