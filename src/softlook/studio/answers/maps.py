"""Parts of attention maps as frames: tiles of the pyramid, weights, and an overview of all heads."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from softlook.base.errors import DataError
from softlook.lens.attention_trace import AttentionTrace
from softlook.lens.tiles import Pool, pool_map
from softlook.studio.answers.selection import MAX_CELLS, Heads, select_heads, to_range, to_slice
from softlook.studio.frames import Statistic, encode_frame, encode_weights

TileStatistic = Literal["max", "mean", "sample"]
TILE = 256
"""Cells on a side of a tile."""
MAX_FRAME = 1 << 20
"""Numbers of a frame of weights."""
MAX_OVERVIEW = 128


def tile(layer: AttentionTrace, *, head: str, level: int, row: int, column: int, pool: TileStatistic = "max") -> bytes:
    """A tile of the pyramid: at level l, a cell covers 2^l x 2^l weights.

    Cells are exact, except in tiles of more than `MAX_CELLS` weights: of those one row in 2^l is read, and a cell is
    the maximum or mean of its weights in that row; the frame then says "sampled".
    """
    _, _, T, S = layer.shape
    cell = 1 << min(max(level, 0), 30)
    rows, columns = (
        range(count)[max(index, 0) * TILE * cell :][: TILE * cell] for count, index in ((T, row), (S, column))
    )
    if min(level, row, column) < 0 or not rows or not columns:
        raise DataError(f"level {level} of a map of {T} queries and {S} keys has no tile ({row}, {column})")
    cells, statistic = pool_cells(layer, select_heads(layer, head), rows, columns, (cell, cell), pool)
    return encode_weights(cells[0] if len(cells) == 1 else cells, statistic)


def pool_cells(
    layer: AttentionTrace, heads: Heads, rows: range, columns: range, cell: tuple[int, int], pool: TileStatistic
) -> tuple[Tensor, Statistic]:
    """Cells of a part of the map, and what they are. (h, t, s)"""
    height, width = cell
    if cell == (1, 1):
        return heads.weights(layer, to_slice(rows), to_slice(columns)), "exact"
    if pool == "sample":
        return heads.weights(layer, to_slice(rows[::height]), to_slice(columns[::width])), "sampled"
    if len(rows) * len(columns) * len(range(layer.shape[1])[heads.part]) > MAX_CELLS:
        return _pool(layer, heads, rows[::height], columns, (1, width), pool), "sampled"
    return _pool(layer, heads, rows, columns, cell, pool), pool


def _pool(
    layer: AttentionTrace, heads: Heads, rows: range, columns: range, cell: tuple[int, int], pool: Pool
) -> Tensor:
    step = rows.step

    def weights(part: slice, keys: slice) -> Tensor:
        own = slice(rows.start + part.start * step, rows.start + part.stop * step, step)
        return heads.weights(layer, own, keys)[None]

    count = 1 if heads.mean else len(range(layer.shape[1])[heads.part])
    return pool_map(weights, range(len(rows)), columns, cell=cell, pool=pool, maps=count)[0]


def weights(layer: AttentionTrace, *, head: str, rows: str = "", columns: str = "") -> bytes:
    """Exact weights of a part of the map: (t, s) of one head or the mean, (H, t, s) of all heads."""
    part, (own_rows, own_columns) = select_heads(layer, head), select_part(layer, head, rows, columns)
    found = part.weights(layer, to_slice(own_rows), to_slice(own_columns))
    return encode_frame(found if head == "-1" else found[0])


def select_part(layer: AttentionTrace, head: str, rows: str, columns: str) -> tuple[range, range]:
    """Rows and columns of a request; raises an error if a frame could not hold them."""
    _, H, T, S = layer.shape
    own_rows, own_columns = to_range("rows", rows, T), to_range("columns", columns, S)
    count = len(own_rows) * len(own_columns) * (H if head == "-1" else 1)
    if count > MAX_FRAME:
        raise DataError(f"at most {MAX_FRAME:,} weights per request, got {count:,}: ask for fewer rows or columns")
    return own_rows, own_columns


def overview(layers: Iterable[AttentionTrace], size: int = 64) -> bytes:
    """Every head of every layer in at most `size` x `size` cells, each the maximum of its weights. (heads, t, s)"""
    if not 1 <= size <= MAX_OVERVIEW:
        raise DataError(f"size expects a number from 1 to {MAX_OVERVIEW}, got {size}")
    maps: list[Tensor] = []
    statistics: set[Statistic] = set()
    for layer in layers:
        _, _, T, S = layer.shape
        cells, statistic = pool_cells(
            layer, select_heads(layer, "-1"), range(T), range(S), (-(-T // size), -(-S // size)), "max"
        )
        maps.append(cells)
        statistics.add(statistic)
    height, width = (max(one.shape[axis] for one in maps) for axis in (1, 2))
    padded = [pad(one, (0, width - one.shape[2], 0, height - one.shape[1])) for one in maps]
    weakest: Statistic = "sampled" if "sampled" in statistics else "max" if "max" in statistics else "exact"
    return encode_weights(torch.cat(padded), weakest)
