"""Pooled parts of an attention map, computed by strips of rows."""

from collections.abc import Callable, Iterator
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from softlook.base.errors import ConfigError

Pool = Literal["max", "mean"]
STRIP_ELEMENTS = 1 << 20
"""Weights that are held at once."""


def pool_map(
    weights: Callable[[slice, slice], Tensor],
    rows: range,
    columns: range,
    *,
    cell: tuple[int, int],
    pool: Pool,
    maps: int = 1,
) -> Tensor:
    """Pool consecutive rows and columns to cells of `cell` weights: their maximum, or their mean. (B, h, t, s)

    `weights` computes the weights of slices of rows and columns, for `maps` = B h maps. The last cells may be smaller.

    >>> attention = torch.arange(9.0).view(1, 1, 3, 3)
    >>> pool_map(lambda rows, columns: attention[..., rows, columns], range(3), range(3), cell=(2, 2), pool="mean")
    tensor([[[[2.0000, 3.5000],
              [6.5000, 8.0000]]]])
    """
    if pool not in get_args(Pool):
        raise ConfigError(f"pool must be one of {', '.join(get_args(Pool))}, got {pool!r}")
    height, width = min(cell[0], max(len(rows), 1)), min(cell[1], max(len(columns), 1))  # without padding beyond
    pooled: list[Tensor] = []
    cells: list[Tensor] = []
    for strip in _strips(rows, height, maps * len(columns)):
        part = weights(slice(strip.start, strip.stop), slice(columns.start, columns.stop))
        cells.append(_pool_columns(_pool_rows(part, height, pool), width, pool))  # over rows first: it is vectorized
        if (strip.stop - rows.start) % height == 0 or strip.stop == rows.stop:  # strips of one row of cells, or several
            parts = torch.stack(cells)
            pooled.append(parts.amax(0) if pool == "max" else parts.sum(0))
            cells = []
    result = torch.cat(pooled, 2)
    if pool == "max":
        return result
    heights, widths = (_counts(part, size, result) for part, size in ((rows, height), (columns, width)))
    return result / (heights[:, None] * widths)


def _strips(rows: range, height: int, width: int) -> Iterator[range]:
    """Strips of rows of cells, or of a part of one, with about `STRIP_ELEMENTS` weights."""
    count = max(STRIP_ELEMENTS // max(width, 1), 1)
    step = count // height * height if count >= height else count
    for first in range(rows.start, rows.stop, height if step < height else step):
        last = min(first + max(step, height), rows.stop)
        for start in range(first, last, step):
            yield range(start, min(start + step, last))


def _pool_columns(weights: Tensor, width: int, pool: Pool) -> Tensor:
    if width == 1:
        return weights
    cells = pad(weights, (0, -weights.shape[3] % width)).unflatten(3, (-1, width))
    return cells.amax(-1) if pool == "max" else cells.sum(-1)


def _pool_rows(weights: Tensor, height: int, pool: Pool) -> Tensor:
    if height == 1:
        return weights
    cells = pad(weights, (0, 0, 0, -weights.shape[2] % height)).unflatten(2, (-1, height))
    return cells.amax(3) if pool == "max" else cells.sum(3)


def _counts(part: range, size: int, like: Tensor) -> Tensor:
    """How many rows or columns each cell covers."""
    return torch.tensor([min(size, part.stop - start) for start in range(part.start, part.stop, size)]).to(like)
