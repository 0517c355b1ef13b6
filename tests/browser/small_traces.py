"""Traces without a model: as long as a test wants, under every kind of mask."""

from typing import Any

import torch

from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.lens.trace import Trace
from softlook.ops.masks import causal, window


def map_call(length: int, *, heads: int = 2, columns: int = 0, mask: Any = None) -> AttentionCall:
    """One attention, without a model: as long as a test wants. Its first key is a sink."""
    generator = torch.Generator().manual_seed(length)
    query, key = (torch.randn(1, heads, size, 16, generator=generator) for size in (length, columns or length))
    query[..., 0], key[:, :, 0, 0] = 1.5, 8.0
    return AttentionCall(AttentionCore(), query, key, mask, None, key.norm(dim=-1))


def map_trace(length: int, *, heads: int = 2, tokens: list[str] | None = None) -> Trace:
    """A trace of one causal layer, without a model."""
    words = tokens if tokens is not None else [f"w{index}" for index in range(length)]
    call = map_call(length, heads=heads, mask=causal())
    return Trace({"blocks.0.attn": AttentionTrace([call])}, {}, tokens=words)


def mask_trace() -> Trace:
    """A trace of 120 queries under every kind of mask, one attention each."""
    dense = torch.rand(120, 120, generator=torch.Generator().manual_seed(0)) > 0.5
    masks = {"full": None, "causal": causal(), "window": causal() & window(20), "dense": dense}
    layers = {name: AttentionTrace([map_call(120, mask=mask)]) for name, mask in masks.items()}
    layers["cross"] = AttentionTrace([map_call(90, columns=150)])
    return Trace(layers, {}, tokens=[f"w{index}" for index in range(120)])
