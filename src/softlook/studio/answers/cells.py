"""The numbers behind a cell: query, key, score, log-sum-exp, weight, and the lines that reproduce them."""

from typing import Any

import torch
from torch import Tensor

from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.ops.selection import scores_at
from softlook.studio.answers.selection import check_index, find_call, one_head, to_range
from softlook.studio.frames import encode_frame

MAX_VECTORS = 64


def scores(layer: AttentionTrace, *, head: str, row: int) -> bytes:
    """The scores of one query, after scale, softcap, bias and mask; the offset of the frame is the log-sum-exp.

    The weight of key j is exp(score_j - offset).
    """
    number, (call, own) = one_head(layer, head), find_call(layer, row)
    keys = torch.arange(call.key.shape[2], device=call.key.device)
    found = torch.full((layer.shape[3],), -torch.inf)
    with torch.no_grad():
        part = scores_at(call.args, torch.tensor([own], device=call.query.device), keys)
    found[call.first_key : call.first_key + len(keys)] = part[0, number, 0].float().cpu()
    return encode_frame(found, offset=_lse(call, number, own))


def vectors(layer: AttentionTrace, *, head: str, rows: str, columns: str) -> dict[str, Any]:
    """Queries, keys and norms of values of one head, its scale, and the log-sum-exp of each query."""
    number = one_head(layer, head)
    own_rows = to_range("rows", rows, layer.shape[2])[:MAX_VECTORS]
    found = [find_call(layer, row) for row in own_rows]
    call = found[-1][0]  # the last call has the keys of the earlier ones
    keys = to_range("columns", columns, call.key.shape[2])[:MAX_VECTORS]
    group = number // (call.query.shape[1] // call.key.shape[1])
    return {
        "query": [one.query[0, number, index].tolist() for one, index in found],
        "key": call.key[0, group, keys.start : keys.stop].tolist(),
        "value_norm": call.value_norm[0, group, keys.start : keys.stop].tolist(),
        "scale": _scale(call),
        "lse": [_lse(one, number, index) for one, index in found],
    }


def explain(layer: AttentionTrace, *, path: str, head: str, row: int, column: int) -> dict[str, Any]:
    """How one weight is computed, with its numbers, and the lines of Python that reproduce it from a saved trace."""
    number, (call, own) = one_head(layer, head), find_call(layer, row)
    check_index("column", column, layer.shape[3])
    part = {"heads": slice(number, number + 1), "rows": slice(row, row + 1), "columns": slice(column, column + 1)}
    weight, lse = layer.weights(**part).item(), _lse(call, number, own)
    key = column - call.first_key
    formula: list[dict[str, Any]] = []
    if 0 <= key < call.key.shape[2]:
        formula = _score_terms(call, number, own, key)
    formula += [{"name": "log-sum-exp", "value": _finite(lse)}, {"name": "weight", "value": weight}]
    lines = [
        "from softlook.lens import load_trace",
        "",
        'trace = load_trace("trace.safetensors")  # written by trace.save("trace.safetensors")',
        f"layer = trace[{path!r}]",
        f"layer.weights(heads=slice({number}, {number + 1}), rows=slice({row}, {row + 1}), "
        f"columns=slice({column}, {column + 1}))  # {weight:.6g}",
    ]
    return {"formula": formula, "python": "\n".join(lines)}


def _score_terms(call: AttentionCall, head: int, row: int, key: int) -> list[dict[str, Any]]:
    """The score, and of a dot product the product and the factor."""
    index = (torch.tensor([one], device=call.query.device) for one in (row, key))
    with torch.no_grad():
        score = scores_at(call.args, *index)[0, head, 0, 0].item()
    terms: list[dict[str, Any]] = []
    if call.args.score is None:
        query, keys = call.args.query[0, head, row], call.args.key[0, head // call.args.group_size, key]
        product, scale = _dot(query, keys), call.args.scale
        rest = score - product * scale
        terms = [{"name": "q·k", "value": product}, {"name": "scale", "value": scale}]
        if abs(rest) > 1e-4 * max(1.0, abs(score)):
            terms.append({"name": "mask, bias and softcap", "value": _finite(rest)})
    return [*terms, {"name": "score", "value": _finite(score)}]


def _dot(query: Tensor, key: Tensor) -> float:
    return (query.double() @ key.double()).item()


def _lse(call: AttentionCall, head: int, row: int) -> float:
    return call.lse(slice(head, head + 1), slice(row, row + 1))[0, 0, row].item()


def _scale(call: AttentionCall) -> float | None:
    return call.args.scale if call.args.score is None else None


def _finite(value: float) -> float | None:
    """The number, or None: JSON has no infinity."""
    return value if abs(value) < float("inf") else None
