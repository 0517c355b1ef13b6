"""What a model predicts: the next token, the logit lens; and rollout and scores of heads."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import ConfigError, DataError
from softlook.lens.head_scores import MEASURED, text_scores
from softlook.lens.logit_lens import logit_lens
from softlook.lens.rollout import attention_rollout
from softlook.lens.trace import Trace
from softlook.studio.answers.selection import check_index, to_range
from softlook.studio.frames import encode_frame
from softlook.studio.recording import StudioTrace

MAX_ROLLOUT = 1024
"""Tokens of a whole rollout; of more, that of groups of tokens."""
LENS_TOKENS, MAX_TOKENS = 5, 50

Candidates = list[list[Any]]
"""[token, probability] or [token, logit, probability], the most likely first."""


def next_tokens(recording: StudioTrace, position: int = -1, k: int = 10) -> Candidates:
    """The most likely outputs at a position: [token, logit, probability]."""
    logits, live = recording.trace.logits, recording.live
    if live is None or logits is None:
        return _recorded(recording, "next", position)[: max(k, 1)]
    row = logits[0].float()
    if row.ndim == 2:
        row = row[_position(position, len(row))]
    values, ids = row.topk(min(max(k, 1), MAX_TOKENS, len(row)))
    names = live.output_names(ids.tolist())
    probabilities = row.softmax(-1)[ids]
    return [list(one) for one in zip(names, values.tolist(), probabilities.tolist(), strict=True)]


def lens(recording: StudioTrace, position: int = -1) -> list[dict[str, Any]]:
    """The most likely tokens after each block: [{block, tokens: [[token, probability]]}].

    A last row, "output", is that of the model where it differs from the last block's, as with n-gram counts.
    """
    live = recording.live
    if live is None:
        return _recorded(recording, "logit_lens", position)
    live.require("logit_lens")
    streams = recording.trace.residual
    length = min((stream.shape[1] for path, stream in streams.items() if not path.startswith("encoder")), default=0)
    chosen = _position(position, length)
    with live.running() as model:
        found = logit_lens(model, recording.trace, positions=slice(chosen, chosen + 1))
    output = recording.trace.logits
    if output is not None and not torch.allclose(output[:, chosen : chosen + 1], list(found.values())[-1], atol=1e-2):
        found = {**found, "output": output[:, chosen : chosen + 1]}
    return [{"block": path, "tokens": top_tokens(logits[0, 0], live.output_names)} for path, logits in found.items()]


def top_tokens(logits: Tensor, names: Any, k: int = LENS_TOKENS) -> Candidates:
    """The most likely tokens with their probabilities."""
    probabilities, ids = logits.float().softmax(-1).topk(min(k, logits.shape[-1]))
    return [list(one) for one in zip(names(ids.tolist()), probabilities.tolist(), strict=True)]


def _recorded(recording: StudioTrace, name: str, position: int) -> Any:
    """An answer that was recorded for every position."""
    if name not in recording.answers:
        raise ConfigError(f"the trace {recording.title!r} has no {name}: it needs the model")
    answers = recording.answers[name]
    return answers[_position(position, len(answers))]


def _position(position: int, count: int) -> int:
    if not -count <= position < count:
        raise DataError(f"position expects a number from 0 to {count - 1}, or below 0 from the end; got {position}")
    return position % count


def rollout(recording: StudioTrace, *, row: int | None = None, sources: str = "", stack: str = "") -> bytes:
    """Attention rollout of one stack of self-attention: a row, (S,); or all rows, by token or by group, (S, n).

    - `sources`: groups of tokens, as "0:4,4:9".
    - `stack`: "encoder" or "decoder" of an encoder-decoder.
    """
    layers = self_attention(recording, stack)
    length = recording.trace[layers[0]].shape[2]
    if not sources and length > MAX_ROLLOUT:
        raise DataError(f"the rollout of {length:,} tokens needs groups of tokens: add sources=0:100,100:200")
    groups = _groups(sources, length) if sources else None
    flow = attention_rollout(recording.trace, groups, layers=layers)[0]
    if row is not None:
        check_index("row", row, len(flow))
        flow = flow[row]
    return encode_frame(flow.float())


def _groups(text: str, length: int) -> Tensor:
    groups = torch.zeros(length, len(parts := text.split(",")))
    for column, part in enumerate(parts):
        chosen = to_range("sources", part, length)
        groups[chosen.start : chosen.stop, column] = 1
    return groups


def self_attention(recording: StudioTrace, stack: str = "") -> list[str]:
    """The paths of one stack of self-attention: of an encoder-decoder, that of the encoder by default."""
    found: dict[str, list[str]] = {}
    for one in recording.info()["attentions"]:
        if one["kind"] != "cross":
            found.setdefault(one["stack"], []).append(one["path"])
    name = stack or next(iter(found), "")
    if name not in found:
        raise DataError(f"the trace has no self-attention {stack!r:.40}: expected one of {', '.join(found) or 'none'}")
    return found[name]


def head_scores(recording: StudioTrace) -> dict[str, Any]:
    """Scores of every self-attention head on this text: {columns, measured, rows: [{path, head, values}]}."""
    rows: list[dict[str, Any]] = []
    columns: list[str] = []
    for stack in {one["stack"]: None for one in recording.info()["attentions"] if one["kind"] != "cross"}:
        paths = self_attention(recording, stack)
        part = Trace({path: recording.trace[path] for path in paths}, {})
        length = recording.trace[paths[0]].shape[2]
        scores = text_scores(part, _ids(recording.trace, length))
        columns = list(next(iter(scores.values())))
        rows += _rows(scores)
    return {"columns": columns, "measured": {name: MEASURED[name] for name in columns}, "rows": rows}


def _rows(scores: Mapping[str, Mapping[str, Tensor]]) -> list[dict[str, Any]]:
    return [
        {"path": path, "head": head, "values": {name: _number(values[head]) for name, values in own.items()}}
        for path, own in scores.items()
        for head in range(len(next(iter(own.values()))))
    ]


def _ids(trace: Trace, length: int) -> Tensor:
    """The token ids of the trace, where they are known; zeros, equally rare, elsewhere."""
    known = [ids for calls in trace.inputs.values() for ids in calls if ids.shape == (1, length)]
    return known[0] if known else torch.zeros(1, length, dtype=torch.long)


def _number(value: Tensor) -> float | None:
    return None if value.isnan() else value.item()
