"""Statistics of attention patterns: weights at given offsets and on given groups of keys, entropy, visible keys."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.base.shapes import Tile
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.ops.statistics import Parts, RowTile, map_row_tiles


@dataclass(frozen=True, eq=False)
class PatternStatistics:
    """What is read from each row of a map."""

    offsets: Float[Tensor, "B H T n"]
    """The weight of the key at each offset; NaN where that key does not exist or is masked."""
    groups: Float[Tensor, "B H T m"]
    """The weight of each group of keys."""
    entropy: Float[Tensor, "B H T"]
    """In nats."""
    visible: Float[Tensor, "B H T"]
    """The number of keys that are not masked."""


def pattern_statistics(
    call: AttentionCall, offsets: Sequence[int] = (), groups: Float[Tensor, "B S m"] | None = None
) -> PatternStatistics:
    """Read every row of a map once, in row tiles: no map of all queries and keys exists.

    - `offsets`: distances i - j of a query to keys: 1 is the previous token, 0 the token itself.
    - `groups`: sets of keys as columns of 0 and 1.

    >>> from softlook.blocks import SelfAttention
    >>> from softlook.lens import trace
    >>> layer = SelfAttention(8, heads=2)
    >>> with torch.no_grad(), trace(layer) as recorded:
    ...     output = layer(torch.randn(1, 5, 8))
    >>> read = pattern_statistics(recorded["core"].calls[0], offsets=[0, 1])
    >>> read.offsets.shape, read.visible[0, 0]
    (torch.Size([1, 2, 5, 2]), tensor([5., 5., 5., 5., 5.]))
    """
    args = call.args
    B, H, T, S = args.sizes
    key_groups = args.query.new_zeros(B, S, 0) if groups is None else groups
    widths = {"offsets": (len(offsets),), "groups": (key_groups.shape[2],), "entropy": (), "visible": ()}
    results = {name: args.query.new_zeros((B, H, T, *width), dtype=torch.float32) for name, width in widths.items()}
    results["offsets"].fill_(torch.nan)
    chosen = torch.tensor(list(offsets), dtype=torch.long, device=args.query.device)

    def read(rows: RowTile) -> Parts:
        weights, tile = rows.weights, rows.tile
        if not len(tile.columns):
            return {}
        own = key_groups[tile.batch.start : tile.batch.stop, None, tile.columns.start : tile.columns.stop]
        return {
            "offsets": _weights_at(rows, chosen),
            "groups": weights @ own.to(weights.dtype),
            "entropy": -torch.xlogy(weights, weights).sum(-1),
            "visible": (rows.scores > -torch.inf).sum(-1).float(),
        }

    with torch.no_grad():
        for tile, parts in map_row_tiles(args, read):
            for name, part in parts.items():
                results[name][_tile_slices(tile)] = part.float()
    return PatternStatistics(**results)


def single_call(path: str, layer: AttentionTrace, length: int) -> AttentionCall:
    """The call of a layer that was called once, with self-attention among so many tokens."""
    if len(layer.calls) != 1:
        raise ConfigError(f"{path} was called {len(layer.calls)} times: trace a single forward pass without a KV cache")
    call = layer.calls[0]
    queries, keys = call.query.shape[2], call.key.shape[2]
    if (queries, keys) != (length, length):
        raise ConfigError(
            f"expected self-attention among {length} tokens, but {path} has {queries} queries and {keys} keys"
        )
    return call


def _weights_at(rows: RowTile, offsets: Tensor) -> Tensor:
    """The weights at offsets; NaN outside the map and where masked. (b, h, t, n)"""
    tile, weights = rows.tile, rows.weights
    queries = torch.arange(tile.rows.start, tile.rows.stop, device=weights.device) + tile.shift
    columns = queries[:, None] - offsets - tile.columns.start
    inside = (columns >= 0) & (columns < len(tile.columns))
    indices = columns.clamp(0, len(tile.columns) - 1).expand(*weights.shape[:3], -1)
    visible = inside & (rows.scores.gather(3, indices) > -torch.inf)
    return weights.gather(3, indices).masked_fill(~visible, torch.nan)


def _tile_slices(tile: Tile) -> tuple[slice, slice, slice]:
    return (
        slice(tile.batch.start, tile.batch.stop),
        slice(tile.heads.start, tile.heads.stop),
        slice(tile.rows.start, tile.rows.stop),
    )
