"""Attention through torch's compiled FlexAttention: soft caps, sinks and symbolic biases in a fused kernel."""

import math
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from softlook.base.shapes import Tile
from softlook.ops.masks.algebra import Mask
from softlook.ops.masks.kinds import Band
from softlook.ops.masks.prepared import prepared
from softlook.ops.question import Question

SIDE = 128
"""Queries and keys of one block of a block mask."""
NARROWEST = 16
SMALLER = {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 64, "fwd_num_stages": 2, "bwd_num_stages": 1}
"""Tiles that leave room for a bias that is read from a table. As it comes, a GPU may run out of fast memory for it."""
SHAPES = 1024
"""How many shapes may be compiled before torch gives up. It says so: with a whole graph it never goes on unfused."""


def attend(question: Question, value: Tensor, dropout: float) -> Tensor:
    """Each query's average of the values. (B, H, T, E)"""
    assert not dropout, "why_not has refused dropout"
    mask, query, scale = question.mask, question.query, question.scale
    if scale <= 0:  # the kernel looks for the largest product before it scales it
        query, scale = query * scale, 1.0
    aux = {"return_lse": True} if question.sink is not None else {}
    with torch._dynamo.config.patch(recompile_limit=SHAPES, accumulated_recompile_limit=SHAPES):
        answer = _compiled()(
            query,
            question.key,
            value,
            score_mod=_score_mod(question),
            block_mask=None if mask is None else _block_mask(mask, question.sizes, question.query.device),
            scale=scale,
            enable_gqa=question.repeats > 1,
            kernel_options=SMALLER if question.bias is not None and query.is_cuda else None,
            **aux,
        )
    if question.sink is None:
        return answer
    output, lse = answer
    kept = (lse - question.sink[:, None]).sigmoid()
    return (output * kept[..., None]).to(value.dtype)


def why_not(question: Question, value: Tensor, dropout: float) -> str | None:
    """What this kernel cannot do, if it is asked for here."""
    device, bias, narrowest = question.query.device.type, question.bias, min(question.query.shape[3], value.shape[3])
    reasons = {
        "it knows dot products only": question.score is not None,
        "it has no dropout": dropout > 0,
        "it has no float64": question.query.dtype == torch.float64,
        f"the bias {bias} depends on the content": bias is not None and bias.entry(*question.sizes[2:]) is None,
        "on the CPU it gives no gradient": device == "cpu" and question.learns_with(value),
        "on the CPU it gives no log-sum-exp, which a sink needs": device == "cpu" and question.sink is not None,
        "a size is 0": 0 in question.sizes or 0 in value.shape,
        f"on a GPU its heads are at least {NARROWEST} wide": device == "cuda" and narrowest < NARROWEST,
        "it needs Triton, which is not installed": device == "cuda" and find_spec("triton") is None,
        f"it does not run on {device}": device not in ("cpu", "cuda"),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


@cache
def _flex() -> Any:
    import torch.nn.attention.flex_attention as flex  # noqa: PLC0415  (loads the compiler: only this path should pay)

    return flex


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(_flex().flex_attention, fullgraph=True)


def _score_mod(question: Question) -> Callable[..., Tensor] | None:
    cap = question.softcap
    entry = None if question.bias is None else question.bias.entry(*question.sizes[2:])
    if cap is None and entry is None:
        return None

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if cap is not None:
            score = cap * torch.tanh(score / cap)
        return score if entry is None else score + entry(b, h, i, j)

    return score_mod


def _block_mask(mask: Mask, sizes: tuple[int, int, int, int], device: torch.device) -> Any:
    """The block mask. One band serves every sequence and every head."""
    sizes = (1, 1, *sizes[2:]) if isinstance(mask, Band) else sizes
    return prepared(mask, "blocks", (sizes, device), lambda: _blocks(mask, sizes, device))


def _blocks(mask: Mask, sizes: tuple[int, int, int, int], device: torch.device) -> Any:
    """Which blocks of the map hold anything, and which are full: worked out for one row of blocks at a time."""
    (B, H, T, S), shift = sizes, sizes[3] - sizes[2]
    some, every = [], []
    for start in range(0, T, SIDE):
        rows = range(start, min(start + SIDE, T))
        seen = mask.on(Tile(range(B), range(H), rows, range(S), T, S, device))
        seen = seen.expand(seen.shape[0], seen.shape[1], len(rows), S)
        # What lies beyond the edge is not seen, so that a block at the edge is never taken for full.
        cells = torch.nn.functional.pad(seen, (0, -S % SIDE, 0, -len(rows) % SIDE))
        blocks = cells.unflatten(-1, (-1, SIDE)).transpose(-2, -3).flatten(-2)
        some.append(blocks.any(-1))
        every.append(blocks.all(-1))
    held, full = torch.stack(some, -2), torch.stack(every, -2)  # (b, h, row blocks, column blocks)
    return _flex().BlockMask.from_kv_blocks(
        *_listed(held & ~full), *_listed(full), BLOCK_SIZE=SIDE, mask_mod=_mask_mod(mask, shift), seq_lengths=(T, S)
    )


def _mask_mod(mask: Mask, shift: int) -> Callable[..., Tensor]:
    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return mask.at(b, h, i, j, shift)

    return mask_mod


def _listed(cells: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row are set, and which: the set ones first."""
    return cells.sum(-1, dtype=torch.int32), cells.int().argsort(dim=-1, descending=True, stable=True).int()


def block_mask_bytes(question: Question) -> int:
    """What the list of blocks takes up."""
    B, H, T, S = question.sizes
    return 0 if question.mask is None else 8 * B * H * math.ceil(T / SIDE) * math.ceil(S / SIDE)
