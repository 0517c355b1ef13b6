"""Decomposition of attention scores: how much depends on the offset, on the key alone, and on query and key."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.lens.attention_trace import AttentionCall
from softlook.ops.arguments import AttentionArgs
from softlook.ops.backends.tiled import tile_scores

MAX_ROWS = 512
"""Queries of a longer map that are used, evenly spaced."""
MAX_STEPS, TOLERANCE = 500, 1e-12
"""Limits of the least-squares fit: steps, and the squared residual of the normal equations, relative to the start."""


@dataclass(frozen=True, eq=False)
class ScoreParts:
    """Three parts of the row-centered scores, which add up to them exactly. All are 0 where a key is masked."""

    offset: Float[Tensor, "B H t S"]
    """What depends on i - j: attention as a convolution."""
    key: Float[Tensor, "B H t S"]
    """What depends on the key alone: attention as a bag of words."""
    interaction: Float[Tensor, "B H t S"]
    """What is left: it takes query and key together."""
    by_offset: Float[Tensor, "B H n"]
    """The fitted function of the offset i - j, for each of `offsets`."""
    by_key: Float[Tensor, "B H S"]
    """The fitted function of the key."""
    offsets: Int[Tensor, " n"]
    """The offsets among the rows and keys that were used."""
    rows: Int[Tensor, " t"]
    """The queries that were used."""

    @property
    def shares(self) -> Float[Tensor, "B H 3"]:
        """Shares of the variance of the scores: offset, key, interaction. They add up to 1; NaN for constant scores.

        The share of a part is its covariance with the scores, divided by their variance. That of the interaction is
        the unexplained variance; that of offset or key can be negative where the two cancel.
        """
        parts = torch.stack([self.offset, self.key, self.interaction], -1)
        scores = parts.sum(-1, keepdim=True)
        return (parts * scores).sum((2, 3)) / scores.square().sum((2, 3))


def decompose_scores(
    call: AttentionCall,
    *,
    heads: slice = slice(None),
    rows: slice = slice(None),
    columns: slice = slice(None),
    queries: Bool[Tensor, "B T"] | None = None,
    max_rows: int = MAX_ROWS,
) -> ScoreParts:
    """Split the scores of heads into f(i - j) + g(j) + interaction, by least squares over all visible pairs.

    The softmax ignores a constant per query, so the scores are centered in each row first, as are the parts. f and g
    are fitted jointly; the interaction is orthogonal to both. A trend g(j) = a j gives the same weights as
    f(i - j) = -a (i - j), so it counts as offset. The scores include biases and the softcap.

    - `heads`, `rows`, `columns`: the consecutive heads, queries and keys of a part of the map.
    - `queries`: which queries count, such as those that are not padding; default: all.
    - `max_rows`: of more queries, only so many, evenly spaced, are used.

    >>> from softlook import masks
    >>> from softlook.blocks import AttentionCore
    >>> from softlook.ops.positions.relative_bias import alibi
    >>> core, key = AttentionCore(), torch.randn(1, 2, 10, 4)
    >>> only_alibi = AttentionCall(core, torch.zeros_like(key), key, masks.causal(), alibi(2), key.norm(dim=-1))
    >>> decompose_scores(only_alibi).shares[0, 0].round(decimals=4).abs()
    tensor([1., 0., 0.])
    """
    args = call.args
    chosen, keys = args.tile.rows[rows], args.tile.columns[columns]
    if not chosen or not keys or (chosen.step, keys.step) != (1, 1):
        raise ShapeError(
            f"consecutive queries and keys are decomposed, but {rows} and {columns} select no part of a map of "
            f"{args.sizes[2]} queries and {args.sizes[3]} keys"
        )
    device = args.query.device
    index = torch.linspace(chosen[0], chosen[-1], min(len(chosen), max_rows), device=device).round().long()
    scores = _read_scores(args, index, heads, keys)
    visible = scores > -torch.inf
    if queries is not None:
        visible &= queries[:, None, index, None]
    distance = index[:, None] + args.tile.shift - torch.arange(keys.start, keys.stop, device=device)
    offsets = torch.arange(int(distance.min()), int(distance.max()) + 1, device=device)
    weight = visible.to(scores.dtype)
    design = _Design(weight, weight.sum(-1, keepdim=True).clamp(min=1), distance - offsets[0], len(offsets))
    centered = design.center(scores.masked_fill(~visible, 0))
    by_offset, by_key = _assign_trend(*_fit(design, centered), offsets, weight.amax(2))
    offset, key = design.center(design.expand(by_offset)), design.center(by_key[:, :, None])
    interaction = centered - offset - key
    return ScoreParts(
        offset.float(), key.float(), interaction.float(), by_offset.float(), by_key.float(), offsets, index
    )


@dataclass(frozen=True)
class _Design:
    """The linear map from (f, g) to row-centered scores, and its transpose."""

    visible: Tensor
    """(B, H, t, S): 1 where a key is visible, 0 where it is masked."""
    count: Tensor
    """(B, H, t, 1): the number of visible keys, at least 1."""
    index: Tensor
    """(t, S): the index of the offset."""
    offsets: int
    """The number of offsets."""

    def center(self, scores: Tensor) -> Tensor:
        """Subtract the mean of each row's visible entries; 0 elsewhere."""
        scores = scores * self.visible
        return scores.addcmul_(scores.sum(-1, keepdim=True) / self.count, self.visible, value=-1)

    def expand(self, by_offset: Tensor) -> Tensor:
        return by_offset[:, :, self.index]

    def apply(self, x: Tensor) -> Tensor:
        return self.center(self.expand(x[..., : self.offsets]) + x[:, :, None, self.offsets :])

    def transpose(self, centered: Tensor) -> Tensor:
        """For centered scores: sums per offset, then per key."""
        sums = centered.new_zeros(*centered.shape[:2], self.offsets)
        sums.index_add_(2, self.index.flatten(), centered.flatten(2))
        return torch.cat([sums, centered.sum(2)], 2)


def _fit(design: _Design, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Solve the normal equations by conjugate gradients, scaled by the number of pairs per unknown."""
    residual = design.transpose(scores)
    x, scale = torch.zeros_like(residual), design.transpose(design.visible).clamp(min=1)
    direction = scaled = residual / scale
    start = product = (residual * scaled).sum(-1, keepdim=True)
    for _ in range(MAX_STEPS):
        if bool((product <= TOLERANCE * start).all()):
            break
        image = design.apply(direction)
        curvature = image.square().sum((2, 3))[..., None]
        step = torch.where(curvature > 0, product / curvature, 0)
        x, residual = x + step * direction, residual - step * design.transpose(image)
        scaled = residual / scale
        previous, product = product, (residual * scaled).sum(-1, keepdim=True)
        direction = scaled + torch.where(previous > 0, product / previous, 0) * direction
    return x[..., : design.offsets], x[..., design.offsets :]


def _assign_trend(by_offset: Tensor, by_key: Tensor, offsets: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Move the trend of g over the keys that are seen, which f can express as well, to f."""
    count = seen.sum(-1, keepdim=True).clamp(min=1)
    position = torch.arange(by_key.shape[2], device=by_key.device, dtype=by_key.dtype)
    position = (position - (seen * position).sum(-1, keepdim=True) / count) * seen
    by_key = (by_key - (seen * by_key).sum(-1, keepdim=True) / count) * seen
    slope = (position * by_key).sum(-1, keepdim=True) / position.square().sum(-1, keepdim=True).clamp(min=1)
    return by_offset - slope * offsets, by_key - slope * position


def _read_scores(args: AttentionArgs, rows: Tensor, heads: slice, keys: range) -> Tensor:
    """The scores of some queries and consecutive keys, -inf where masked, in float64. (B, h, t, s)"""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        tiles = [replace(args.tile, rows=range(first, last + 1), columns=keys)]
    else:
        tiles = [replace(args.tile, rows=range(row, row + 1), columns=keys) for row in rows.tolist()]
    return torch.cat([tile_scores(args, tile)[0][:, heads] for tile in tiles], 2).double()
