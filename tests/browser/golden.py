"""Numbers of the library that the page must compute too: writes web/src/math/golden.json."""

import base64
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.lens.rollout import attention_rollout
from softlook.lens.trace import Trace
from softlook.ops.masks import Mask, causal, window

PATH = Path(__file__).parents[2] / "web/src/math/golden.json"
HEADS, GROUPS, ROWS, DIM = 4, 2, 7, 5


def encode(values: Tensor, dtype: str = "f32") -> dict[str, Any]:
    """An array of a recording; see web/PROTOCOL.md."""
    kinds = {"f32": torch.float32, "f16": torch.float16, "u8": torch.uint8}
    data = values.to(kinds[dtype]).contiguous().numpy().tobytes()
    return {"dtype": dtype, "shape": list(values.shape), "data": base64.b64encode(data).decode()}


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def call_of(core: AttentionCore, columns: int = ROWS, mask: Any = None, bias: Tensor | None = None) -> AttentionCall:
    query, key = numbers(1, HEADS, ROWS, DIM, seed=1), numbers(1, GROUPS, columns, DIM, seed=2)
    return AttentionCall(core, query.half().float(), key.half().float(), mask, bias, key.norm(dim=-1))


def case(call: AttentionCall, mask: dict[str, Any], dtype: str = "f32") -> dict[str, Any]:
    """A recorded attention and its weights."""
    args = call.args
    recorded = {
        "path": "core",
        "query": encode(call.query[0], dtype),
        "key": encode(call.key[0], dtype),
        "lse": encode(call.lse()[0].float()),
        "value_norm": encode(call.value_norm[0]),
        "scale": args.scale,
        "softcap": args.softcap,
        "mask": mask,
        "bias": encode(call.bias[0]) if isinstance(call.bias, Tensor) else None,
    }
    return {"attention": recorded, "weights": call.weights()[0].flatten().tolist()}


def cases() -> dict[str, dict[str, Any]]:
    """Recorded attentions under every mask, with and without soft cap, bias and sink."""
    dense = numbers(ROWS, ROWS, seed=3) > 0
    bias = numbers(1, HEADS, ROWS, ROWS, seed=4)
    causal_window: Mask = causal() & window(2)
    return {
        "no mask": case(call_of(AttentionCore()), {"causal": False}),
        "causal": case(call_of(AttentionCore(), mask=causal()), {"causal": True}),
        "causal, more keys than queries": case(call_of(AttentionCore(), 9, causal()), {"causal": True}),
        "window": case(call_of(AttentionCore(), mask=causal_window), {"causal": True, "window": 3}),
        "dense": case(call_of(AttentionCore(), mask=dense), {"causal": False, "dense": encode(dense, "u8")}),
        "softcap and bias": case(call_of(AttentionCore(softcap=2.0), bias=bias, mask=causal()), {"causal": True}),
        "temperature": case(call_of(AttentionCore(scale=0.1)), {"causal": False}),
        "half precision": case(call_of(AttentionCore()), {"causal": False}, "f16"),
    }


def rollout() -> dict[str, Any]:
    calls = [call_of(AttentionCore(scale=scale), mask=causal()) for scale in (0.3, 1.0)]
    trace = Trace({f"blocks.{index}": AttentionTrace([call]) for index, call in enumerate(calls)}, {})
    maps = [call.weights()[0].mean(0).flatten().tolist() for call in calls]
    return {"rows": ROWS, "maps": maps, "flow": attention_rollout(trace)[0].flatten().tolist()}


def golden() -> dict[str, Any]:
    halves = torch.tensor([0.0, -1.5, 65504.0, 6e-8, 1e-5, 0.1, float("inf")]).half()
    return {
        "cases": cases(),
        "rollout": rollout(),
        "halves": {"array": encode(halves, "f16"), "values": [float(one) for one in halves[:-1]]},
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(golden(), indent=1) + "\n", encoding="utf-8")
