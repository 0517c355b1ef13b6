"""The recorded calls of an attention layer, and any part of their map, computed on demand."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.attention import AttentionCore
from softlook.lens.tiles import Pool, pool_map
from softlook.ops.arguments import AttentionArgs, disable_autocast, prepare_args
from softlook.ops.bias import Bias, as_bias
from softlook.ops.log_sum_exp import log_sum_exp, log_sum_exp_of
from softlook.ops.look import Look, compute_values
from softlook.ops.masks import Mask
from softlook.ops.selection import select_heads

ALL = slice(None)
FEW, MANY_SCORES = 4, 1 << 22
"""Where a map of a head has more scores, and less than one in `FEW` queries is requested, only those are computed."""
LANES = ("lse", "entropy", "max_weight", "mean_distance", "top_weights", "top_indices")
"""Statistics per query that `AttentionTrace.lanes` returns."""


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of an attention layer: everything that its map is computed from."""

    core: AttentionCore
    """The attention function with its scale, softcap, sink and score."""
    query: Float[Tensor, "B H T D"]
    key: Float[Tensor, "B G S _"]
    mask: Mask | Tensor | None
    bias: Bias | Tensor | None
    value_norm: Float[Tensor, "B G S"]
    """The Euclidean norm of each value."""
    value: Float[Tensor, "B G S E"] | None = None
    output: Float[Tensor, "B H T E"] | None = None
    """The output of each head, before the output projection. Values and outputs are recorded on request."""
    first_key: int = 0
    """The position of the first key: above 0 once a sliding-window cache has dropped keys."""

    @cached_property
    def args(self) -> AttentionArgs:
        """The arguments of the attention function, validated."""
        core = self.core
        return prepare_args(
            self.query.detach(),
            self.key.detach(),
            mask=self.mask,
            bias=self.bias,
            scale=core.scale,
            softcap=core.softcap,
            sink=core.sink,
            score=core.score,
        )

    def look(self, **options: Any) -> Look:
        """Exact statistics of the map in O(N) memory; `options` are those of `softlook.look`."""
        with torch.no_grad():
            return self.core.look(self.query, self.key, self.mask, self.bias, **options)

    @cached_property
    def row_look(self) -> Look:
        """The log-sum-exp of each query, from which any part of the map follows."""
        return Look({"lse": self.lse()}, self.args)

    def lse(self, heads: slice = ALL, rows: slice = ALL) -> Float[Tensor, "B h T"]:
        """Log-sum-exp of the scores of each query; with `rows`, those of other queries may be NaN.

        It is computed once for each head, and in long maps for each query, that is requested.
        """
        known, chosen = self._known_lse, range(self.query.shape[1])[heads]
        missing = [head for head in chosen if head not in known or bool(known[head][:, rows].isnan().any())]
        if missing:
            args, first = select_heads(self.args, range(missing[0], missing[-1] + 1))
            (_, _, T, S), chosen_rows = args.sizes, range(self.query.shape[2])[rows]
            few = T * S > MANY_SCORES and len(chosen_rows) * FEW < T
            with disable_autocast(args.query):
                lse = log_sum_exp_of(args, chosen_rows) if few else log_sum_exp(args)
            for index in range(lse.shape[1]):
                head = missing[0] - first + index
                whole = known[head].clone() if head in known else lse.new_full((len(lse), T), torch.nan)
                whole[:, rows if few else ALL] = lse[:, index]
                known[head] = whole
        return torch.stack([known[head] for head in chosen], 1)

    def weights(self, *, heads: slice = ALL, rows: slice = ALL, columns: slice = ALL) -> Float[Tensor, "B h t s"]:
        """Attention weights of consecutive heads, and of queries and keys with any step."""
        chosen = range(self.query.shape[1])[heads]
        if chosen.step != 1 or not chosen:
            raise ShapeError(f"heads must be consecutive, and at least one, got {heads}")
        args, first = select_heads(self.args, chosen)
        start = chosen.start - first
        lse = self.lse(slice(start, start + args.sizes[1]), rows)
        with torch.no_grad():
            look = Look({"lse": lse}, args)
            return look.weights(heads=slice(first, first + len(chosen)), rows=rows, columns=columns)

    @cached_property
    def _known_lse(self) -> dict[int, Tensor]:
        return {}


@dataclass(frozen=True)
class Part:
    """The part of a selection of rows and columns that belongs to one call."""

    call: AttentionCall
    rows: slice
    columns: slice
    margins: tuple[int, int]
    """Selected keys before and after those of the call."""

    def pad(self, block: Tensor) -> Tensor:
        """The block with zeros for the other keys."""
        return nn.functional.pad(block, self.margins) if any(self.margins) else block


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """The calls of one attention layer: one in a forward pass, one per step in an RNN or with a KV cache.

    The queries of several calls follow one another; keys that a call did not have have the weight 0.
    """

    calls: list[AttentionCall] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries and keys of the map."""
        if not self.calls:
            raise ConfigError("this layer was not called: run the model inside the context of `trace`")
        keys = max(call.first_key + call.key.shape[2] for call in self.calls)
        B, H, _, _ = self.calls[0].query.shape
        return B, H, sum(call.query.shape[2] for call in self.calls), keys

    @property
    def lse(self) -> Float[Tensor, "B H T"]:
        """Log-sum-exp of the scores of each query: a weight is exp(score - lse)."""
        return torch.cat([call.lse() for call in self.calls], 2)

    def look(self, **options: Any) -> Look:
        """Exact statistics of the map of a single call; `options` are those of `softlook.look`."""
        if len(self.calls) != 1:
            raise ConfigError(
                f"this layer was called {len(self.calls)} times: use its `lanes`, or the look of each of its `calls`"
            )
        return self.calls[0].look(**options)

    def weights(self, *, heads: slice = ALL, rows: slice = ALL, columns: slice = ALL) -> Float[Tensor, "B h t s"]:
        """Attention weights of consecutive heads, and of queries and keys with any step, before dropout.

        Only this part is computed. The queries of several calls follow one another; keys that a call did not have
        have the weight 0.

        >>> from softlook.lens import trace
        >>> from softlook.models import GPT, GPTConfig
        >>> model = GPT(GPTConfig(vocab_size=10, context=500, dim=16, depth=2, heads=4)).eval()
        >>> with torch.no_grad(), trace(model) as recorded:
        ...     logits = model(torch.randint(10, (1, 500)))
        >>> recorded["blocks.1.attn"].weights(heads=slice(2, 3), rows=slice(400, 410), columns=slice(0, 5)).shape
        torch.Size([1, 1, 10, 5])
        >>> recorded["blocks.1.attn"].weights(rows=slice(0, None, 10), columns=slice(0, None, 10)).shape
        torch.Size([1, 4, 50, 50])
        """
        parts = [
            part.pad(part.call.weights(heads=heads, rows=part.rows, columns=part.columns))
            for part in self._parts(rows, columns)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def gradient_times_attention(
        self, output: Float[Tensor, ""], *, heads: slice = ALL, rows: slice = ALL, columns: slice = ALL
    ) -> Float[Tensor, "B h t s"]:
        """A part of attention x gradient: each weight times the derivative of `output`, a logit for example, by it.

        Exact and without the map: with O = A V, the derivative by A_ij is the product of dO_i and v_j. It needs
        `trace(model, grad=True)` and costs one backward pass.

        >>> from softlook.lens import trace
        >>> from softlook.models import GPT, GPTConfig
        >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
        >>> with trace(model, grad=True) as recorded:
        ...     logits = model(torch.tensor([[3, 1, 4]]))
        >>> recorded["blocks.1.attn"].gradient_times_attention(logits[0, -1, 5], rows=slice(2, 3)).shape
        torch.Size([1, 4, 1, 3])
        """
        parts = list(self._parts(rows, columns))
        outputs = [_differentiable_output(part.call) for part in parts]
        gradients = torch.autograd.grad(output, outputs, retain_graph=True, materialize_grads=True, allow_unused=True)
        products = []
        for part, gradient in zip(parts, gradients, strict=True):
            call = part.call
            assert call.value is not None
            value = call.value.repeat_interleave(call.args.group_size, 1)[:, heads, part.columns].float()
            derivative = gradient[:, heads, part.rows].float() @ value.mT
            weights = call.weights(heads=heads, rows=part.rows, columns=part.columns)
            products.append(part.pad(weights * derivative))
        return torch.cat(products, 2)

    def tile(
        self, level: int, row: int, column: int, *, heads: slice = ALL, size: int = 256, pool: Pool = "max"
    ) -> Float[Tensor, "B h t s"]:
        """A tile of the map's pyramid: at level l a cell is the maximum or mean of 2^l x 2^l weights, exact.

        Tile (row, column) holds up to `size` x `size` cells; the tiles at the edges are smaller.

        >>> from softlook.lens import trace
        >>> from softlook.models import GPT, GPTConfig
        >>> model = GPT(GPTConfig(vocab_size=10, context=500, dim=16, depth=1, heads=4)).eval()
        >>> with torch.no_grad(), trace(model) as recorded:
        ...     logits = model(torch.randint(10, (1, 500)))
        >>> recorded["blocks.0.attn"].tile(1, 0, 0, size=128).shape, recorded["blocks.0.attn"].tile(1, 0, 0).shape
        (torch.Size([1, 4, 128, 128]), torch.Size([1, 4, 250, 250]))
        """
        _, _, T, S = self.shape
        cell = 1 << max(level, 0)
        rows, columns = range(T)[row * size * cell :][: size * cell], range(S)[column * size * cell :][: size * cell]
        if min(level, row, column) < 0 or not rows or not columns:
            raise ShapeError(f"level {level} of a map of {T} queries and {S} keys has no tile ({row}, {column})")
        return self._pool(heads, rows, columns, (cell, cell), pool)

    def overview(self, *, heads: slice = ALL, size: int = 1024, pool: Pool | None = "max") -> Float[Tensor, "B h t s"]:
        """The whole map in at most `size` x `size` cells: the maximum or mean of each cell, or one of its weights.

        `pool=None` takes the first weight of each cell: it computes no others, and may miss thin structures.
        """
        _, _, T, S = self.shape
        cell = -(-T // size), -(-S // size)
        if pool is None:
            return self.weights(heads=heads, rows=slice(None, None, cell[0]), columns=slice(None, None, cell[1]))
        return self._pool(heads, range(T), range(S), cell, pool)

    def lanes(self, *, heads: slice = ALL, top_k: int = 8) -> dict[str, Tensor]:
        """Exact statistics beside the map, in O(N) memory, by their names in `Look`.

        Per query lse, entropy, max_weight, mean_distance, top_weights and top_indices; per key received.
        """
        _, _, _, S = self.shape
        results: list[dict[str, Tensor]] = []
        for call in self.calls:
            chosen = range(call.query.shape[1])[heads]
            args, first = select_heads(call.args, chosen)
            with torch.no_grad(), disable_autocast(args.query):
                values, _ = compute_values(args, frozenset({*LANES, "received"}), top_k=top_k, bins=1)
            values = {name: value[:, first : first + len(chosen)] for name, value in values.items()}
            values["top_indices"] += call.first_key * (values["top_indices"] >= 0)
            margins = call.first_key, S - call.first_key - call.key.shape[2]
            values["received"] = nn.functional.pad(values["received"], margins)
            results.append(values)
        lanes = {name: torch.cat([values[name] for values in results], 2) for name in LANES}
        return lanes | {"received": torch.stack([values["received"] for values in results]).sum(0)}

    def _pool(self, heads: slice, rows: range, columns: range, cell: tuple[int, int], pool: Pool) -> Tensor:
        B, H, _, _ = self.shape
        maps = B * len(range(H)[heads])
        for part in self._parts(slice(rows.start, rows.stop), slice(columns.start, columns.stop)):
            part.call.lse(heads, part.rows)  # at once: each strip would otherwise compute its own

        def weights(part: slice, keys: slice) -> Tensor:
            return self.weights(heads=heads, rows=part, columns=keys)

        return pool_map(weights, rows, columns, cell=cell, pool=pool, maps=maps)

    def _parts(self, rows: slice, columns: slice) -> Iterator[Part]:
        """The parts of a selection, call by call."""
        _, _, T, S = self.shape
        chosen_rows, chosen_columns = range(T)[rows], range(S)[columns]
        if not chosen_rows or not chosen_columns or min(chosen_rows.step, chosen_columns.step) < 1:
            raise ShapeError(f"{rows} and {columns} select no part of a map of {T} queries and {S} keys")
        first_row = 0
        for call in self.calls:
            own_rows, _ = _intersect(chosen_rows, first_row, call.query.shape[2])
            own_columns, margins = _intersect(chosen_columns, call.first_key, call.key.shape[2])
            if own_rows.start < own_rows.stop:
                yield Part(call, own_rows, own_columns, margins)
            first_row += call.query.shape[2]


def _intersect(chosen: range, first: int, count: int) -> tuple[slice, tuple[int, int]]:
    """The chosen indices among `count` from `first` on, from 0, and how many of the others are before and after."""
    before = len(range(chosen.start, min(first, chosen.stop), chosen.step))
    until = len(range(chosen.start, min(first + count, chosen.stop), chosen.step))
    own = chosen[before:until]
    start = max(own.start - first, 0)
    return slice(start, max(own.stop - first, start), chosen.step), (before, len(chosen) - until)


def _differentiable_output(call: AttentionCall) -> Tensor:
    if call.output is None or not call.output.requires_grad:
        raise ConfigError(
            "attention x gradient needs the graph of the model: use `trace(model, grad=True)` without `torch.no_grad()`"
        )
    if call.core.training and call.core.dropout:
        raise ConfigError("attention x gradient needs the model without dropout: call model.eval() first")
    if call.bias is not None and as_bias(call.bias).has_relative_values:
        raise ConfigError("attention x gradient is not defined for relative values, which a weight multiplies too")
    return call.output
