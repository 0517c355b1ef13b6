"""Rows that stand side by side and look at the same keys: their queries become those of one row, and nothing is copied.

Several ways to say one sentence share what was made of its source; with that, one matrix product serves them all.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from softlook.base.errors import ShapeError

MANY = 16
"""Sources from which on two plain products are faster on a CPU than torch's tiles, which few queries do not fill."""


def folded(query: Float[Tensor, "B H T D"], sources: int) -> Float[Tensor, "N H KT D"]:
    """The queries of all rows that share a source, one after the other.

    >>> folded(torch.randn(6, 4, 1, 8), 2).shape
    torch.Size([2, 4, 3, 8])
    """
    B, H, T, D = query.shape
    if sources < 1 or B % sources:
        raise ShapeError(f"{B} rows cannot share {sources} sources evenly: not a multiple")
    return query.view(sources, B // sources, H, T, D).transpose(1, 2).reshape(sources, H, -1, D)


def unfolded(mixed: Float[Tensor, "N H KT D"], rows: int) -> Float[Tensor, "B H T D"]:
    """The answers of folded queries, each in its own row again."""
    N, H, _, D = mixed.shape
    return mixed.view(N, H, rows // N, -1, D).transpose(1, 2).reshape(rows, H, -1, D)


def look_together(
    query: Float[Tensor, "N H K D"],
    key: Float[Tensor, "N G S D"],
    value: Float[Tensor, "N G S D"],
    *,
    allowed: Float[Tensor, "N #H #K S"] | None,
    scale: float,
) -> Float[Tensor, "NK HD"]:
    """The K queries of each source look at its keys, but for what `allowed` adds to their scores: a row for each.

    >>> query, (key, value) = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 2, 5, 8)
    >>> look_together(query, key, value, allowed=None, scale=1.0).shape
    torch.Size([6, 32])
    """
    (N, H, K, D), G = query.shape, key.shape[1]
    if N >= MANY and G == H and query.device.type == "cpu":
        mixed = _by_products(query, key, value, allowed, scale)
    else:
        mixed = scaled_dot_product_attention(query, key, value, allowed, scale=scale, enable_gqa=G != H)
    return mixed.transpose(1, 2).reshape(N * K, H * D)


def _by_products(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """The same as attention, with all scores at once."""
    scores = torch.bmm((query * scale).flatten(0, 1), key.flatten(0, 1).transpose(1, 2)).unflatten(0, query.shape[:2])
    if allowed is not None:
        scores += allowed
    return torch.bmm(scores.softmax(-1).flatten(0, 1), value.flatten(0, 1)).unflatten(0, query.shape[:2])
