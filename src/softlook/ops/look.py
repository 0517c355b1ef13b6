"""Look: exact statistics of an attention map in O(N) memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.display import Displayed
from softlook.base.errors import ShapeError
from softlook.ops import statistics
from softlook.ops.arguments import (
    AttentionArgs,
    cast_for_autocast,
    check_tensor,
    check_value,
    disable_autocast,
    prepare_args,
)
from softlook.ops.attention import attention, check_dropout
from softlook.ops.backends import look_terms, look_triton
from softlook.ops.backends.plan import plan
from softlook.ops.bias import Bias
from softlook.ops.masks.base import Mask
from softlook.ops.scores import Score
from softlook.ops.selection import select_heads, weights_at

DEFAULT_STATS = ("lse", "entropy", "max_weight", "received")
PER_QUERY = ("lse", "entropy", "effective_keys", "max_weight", "mean_distance", "top_weights", "top_indices")
PER_KEY = ("received",)
POOLED = ("pooled_mean", "pooled_max")
ALL_STATS = PER_QUERY + PER_KEY + POOLED


class Statistic:
    """Descriptor of a statistic of a `Look`; raises AttributeError if it was not requested."""

    def __init__(self, meaning: str) -> None:
        self.__doc__ = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, look: None, owner: type) -> "Statistic": ...
    @overload
    def __get__(self, look: "Look", owner: type) -> Tensor: ...
    def __get__(self, look: "Look | None", owner: type) -> "Tensor | Statistic":
        if look is None:
            return self
        if self.name not in look.values:
            raise AttributeError(
                f"{self.name!r} is not among stats={tuple(look.values)} of this look: add it to stats="
            )
        return look.values[self.name]


@dataclass(frozen=True, eq=False, repr=False)
class Look(Displayed):
    """Statistics of an attention map. Weights are those before dropout; the share of a sink belongs to no key.

    >>> import torch
    >>> from softlook import look
    >>> query, key = torch.randn(2, 1, 1, 5, 4)
    >>> result = look(query, key, stats=("entropy", "received"))
    >>> result
    Look(entropy 1x1x5, received 1x1x5)
    >>> result.received.sum().round()
    tensor(5.)
    """

    values: Mapping[str, Tensor]
    args: AttentionArgs | None = None
    total_lse: Tensor | None = None
    """Log-sum-exp over all keys, where `args` holds a chunk of them."""
    backend: str = ""
    """What computed the statistics: "kernels" (Triton, on a GPU), or "tiles" of plain torch and the reason."""

    lse = Statistic("(B, H, T) log-sum-exp of the scores; -inf if fully masked. A weight is exp(score - lse).")
    entropy = Statistic("(B, H, T) -sum of w log w, in nats: 0 for one key, log n for n equal weights.")
    effective_keys = Statistic(
        "(B, H, T) participation ratio (sum w)^2 / sum w^2: n for n equal weights, at least 1, 0 if fully masked. "
        "Independent of a sink, which scales all weights alike."
    )
    max_weight = Statistic("(B, H, T) the largest weight.")
    mean_distance = Statistic("(B, H, T) sum of w |i - j|, in positions.")
    top_weights = Statistic("(B, H, T, top_k) the largest weights in descending order; 0 where there are fewer keys.")
    top_indices = Statistic("(B, H, T, top_k) the keys of `top_weights`; -1 where there are fewer.")
    received = Statistic("(B, H, S) sum over the queries of the weights of a key.")
    pooled_mean = Statistic("(B, H, bins, bins) the map, average-pooled.")
    pooled_max = Statistic("(B, H, bins, bins) the map, max-pooled.")

    def weights(self, *, heads: slice = slice(None), rows: slice = slice(None), columns: slice = slice(None)) -> Tensor:
        """Compute a part of the map: consecutive heads, and queries and keys with any step. (B, h, t, s)

        Only this part is computed, and each weight is that of the whole map.

        >>> import torch
        >>> from softlook import look, masks
        >>> query, key = torch.randn(2, 1, 2, 5000, 4)
        >>> result = look(query, key, mask=masks.causal())
        >>> result.weights(rows=slice(4000, 4003), columns=slice(2, 4)).shape
        torch.Size([1, 2, 3, 2])
        >>> result.weights(heads=slice(1, 2), rows=slice(0, None, 100), columns=slice(0, None, 100)).shape
        torch.Size([1, 1, 50, 50])
        """
        whole = self._require_args()
        tile = whole.tile
        chosen, tile.rows, tile.columns = tile.heads[heads], tile.rows[rows], tile.columns[columns]
        if chosen.step != 1:
            raise ShapeError(f"heads must be consecutive, got {heads}: select from the result")
        args, first = select_heads(whole, chosen)
        tile.heads = args.tile.heads
        lse = self._require_lse(whole, range(chosen.start - first, chosen.start - first + len(tile.heads)))
        with disable_autocast(args.query):
            if tile.rows.step == tile.columns.step == 1:
                part = statistics.block_weights(args, tile, lse)
            else:
                part = weights_at(args, _indices(tile.rows, lse), _indices(tile.columns, lse), lse)
        return part[:, first : first + len(chosen)]

    def mix(self, value: Tensor) -> Tensor:
        """Multiply the map with `value`, (B, G, S, E) or (S, E). (B, H, T, E)"""
        args = self._require_args()
        B, G, s, _ = args.key.shape
        value = value.expand(B, G, *value.shape) if value.ndim == 2 else value
        check_value(args, value)
        with disable_autocast(value):
            if self.total_lse is None and s == args.sizes[3]:
                attend = plan(args, value)
                if attend.kernel == "fused" and attend.native_mask:
                    return attend.run()
            return statistics.apply_weights(args, self.total_lse, value)

    def spread(self, amounts: Tensor) -> Tensor:
        """Multiply the transposed map with `amounts`, (B, H, T, E) or (T, E). (B, H, S, E)"""
        args = self._require_args()
        B, H, T, _ = args.sizes
        amounts = amounts.expand(B, H, *amounts.shape) if amounts.ndim == 2 else amounts
        check_tensor("amounts", amounts, like=args.query)
        if amounts.shape[:3] != (B, H, T):
            raise ShapeError(f"spread expects one vector per query, {(B, H, T, 'dim')}, got {tuple(amounts.shape)}")
        with disable_autocast(amounts):
            if look_terms.unsupported_reason(args, self.total_lse, amounts) is None:
                return look_triton.apply_transposed(args, self._require_lse(args, range(H)), amounts)
            return statistics.apply_transposed(args, self.total_lse, amounts).to(amounts.dtype)

    def __repr__(self) -> str:
        sizes = [f"{name} {'x'.join(map(str, value.shape))}" for name, value in self.values.items()]
        return f"Look({', '.join(sizes)})"

    def _require_lse(self, args: AttentionArgs, heads: range) -> Tensor:
        """The log-sum-exp over all keys, of these heads."""
        lse = self.total_lse if self.total_lse is not None else self.values.get("lse")
        if lse is not None:
            return lse[:, heads.start : heads.stop]
        part, first = select_heads(args, heads)
        lse = compute_values(part, frozenset({"lse"}), top_k=1, bins=1)[0]["lse"]
        return lse[:, first : first + len(heads)]

    def _require_args(self) -> AttentionArgs:
        if self.args is None:
            raise ValueError("this look was merged from chunks and holds no queries and keys: call it on each chunk")
        return self.args


def look(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    score: Score | None = None,
    stats: Iterable[str] = DEFAULT_STATS,
    top_k: int = 8,
    bins: int = 64,
    part: tuple[int, int] | None = None,
    lse: Float[Tensor, "B H T"] | None = None,
) -> Look:
    """Compute exact statistics of the attention map in memory linear in the length.

    `stats` are fields of `Look`; `top_k` is the number of keys in `top_weights`, `bins` the side of the pooled maps.
    Every statistic but `top_indices` is differentiable, as are `Look.mix` and `Look.spread`; tiles are recomputed in
    the backward pass, so memory stays O(N). Under `torch.no_grad()` it is faster.

    For keys in chunks (a chunked cache, a ring of devices), `part=(first, total)` is the chunk's position among all
    keys. Looks at chunks are merged by `softlook.ops.merge`. Statistics per key need the log-sum-exp over all keys:
    pass the merged one as `lse`.

    >>> import torch
    >>> from softlook import look, masks
    >>> query, key = torch.randn(2, 1, 2, 6, 4)
    >>> result = look(query, key, mask=masks.causal(), stats=("max_weight", "top_indices"), top_k=1)
    >>> result.max_weight[0, 0, 0], result.top_indices[0, 0, 0]
    (tensor(1.), tensor([0]))
    """
    args = prepare_args(
        query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score, part=part
    )
    requested = _check_stats(stats)
    _check_part(args, requested, sink, part, lse)
    _check_count("top_k", top_k)
    _check_count("bins", bins)
    with disable_autocast(args.query):
        values, backend = compute_values(args, requested, top_k=top_k, bins=bins, lse=lse)
    return Look({name: values[name] for name in ALL_STATS if name in requested}, args, lse, backend)


def attention_and_look(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    value: Float[Tensor, "B G S E"],
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    dropout: float = 0.0,
    score: Score | None = None,
    stats: Iterable[str] = DEFAULT_STATS,
    top_k: int = 8,
    bins: int = 64,
) -> tuple[Float[Tensor, "B H T E"], Look]:
    """Return the output of `attention` and a `Look` at its map.

    Both are differentiable. Without gradient and dropout, both come from one pass.

    >>> import torch
    >>> query, key, value = torch.randn(3, 1, 2, 6, 4)
    >>> output, result = attention_and_look(query, key, value, stats=("entropy",))
    >>> output.shape, result.entropy.shape
    (torch.Size([1, 2, 6, 4]), torch.Size([1, 2, 6]))
    """
    args = prepare_args(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    requested, (value,) = _check_stats(stats), cast_for_autocast(value)
    check_value(args, value)
    _check_count("top_k", top_k)
    _check_count("bins", bins)
    one_pass = check_dropout(dropout) == 0 and not args.requires_grad_with(value)
    with disable_autocast(value):
        values, backend = compute_values(args, requested, top_k=top_k, bins=bins, value=value if one_pass else None)
    output = values.pop("output", None)
    if output is None:
        output = attention(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            scale=scale,
            softcap=softcap,
            sink=sink,
            dropout=dropout,
            score=score,
        )
    return output, Look({name: values[name] for name in ALL_STATS if name in requested}, args, None, backend)


def compute_values(
    args: AttentionArgs,
    requested: frozenset[str],
    *,
    top_k: int,
    bins: int,
    lse: Tensor | None = None,
    value: Tensor | None = None,
) -> tuple[dict[str, Tensor], str]:
    """Compute the statistics by name, and with values the "output"; also return what computed them."""
    if not requested and value is None:
        return {}, "nothing"
    reason = look_terms.unsupported_reason(args, lse, value, stats=requested, top_k=top_k)
    options = {"top_k": top_k, "bins": bins, "lse": lse, "value": value}
    if reason is None:
        return look_triton.compute_statistics(args, requested, **options), "kernels"
    return statistics.compute_statistics(args, requested, **options), f"tiles: {reason}"


def _indices(part: range, like: Tensor) -> Tensor:
    return torch.arange(part.start, part.stop, part.step, device=like.device)


def _check_stats(stats: Iterable[str]) -> frozenset[str]:
    names = (stats,) if isinstance(stats, str) else tuple(stats)
    for name in names:
        if name not in ALL_STATS:
            close = get_close_matches(name, ALL_STATS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Choose from {', '.join(ALL_STATS)}."
            raise ValueError(f"unknown statistic {name!r}. {hint}")
    return frozenset(names)


def _check_part(
    args: AttentionArgs, requested: frozenset[str], sink: object, part: tuple[int, int] | None, lse: Tensor | None
) -> None:
    summed = requested & {*PER_KEY, *POOLED}
    if lse is not None:
        if lse.shape != args.query.shape[:3]:
            raise ShapeError(f"lse expects one value per query, {tuple(args.query.shape[:3])}, got {tuple(lse.shape)}")
        if requested != summed:
            raise ValueError(
                f"with lse=, stats may hold {', '.join((*PER_KEY, *POOLED))}, "
                f"got {', '.join(sorted(requested - summed))}: merge those from looks at the chunks"
            )
    elif part is not None and summed:
        raise ValueError(
            f"{', '.join(sorted(summed))} of a chunk of the keys needs the log-sum-exp over all keys: "
            "compute 'lse' of each chunk, merge them, and pass the result as lse="
        )
    elif part is not None and sink is not None:
        raise ValueError("a sink belongs to all keys together: look at the chunks without it")


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"{name} expects an integer >= 1, got {count}")
