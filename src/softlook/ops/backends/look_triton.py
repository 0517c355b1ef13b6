"""Statistics of an attention map by Triton kernels: block sizes and launches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softlook.ops.arguments import HALF_DTYPES, AttentionArgs
from softlook.ops.backends import sdpa, sdpa_cuda
from softlook.ops.backends.look_terms import LOG2E, bias_terms, mask_terms

PARTS_BYTES = 1 << 28
"""Memory for sums over a segment of keys per query; with more, heads take turns."""
PER_SEGMENT = frozenset({"lse", "entropy", "max_weight", "received", "pooled_mean", "pooled_max"})
"""Statistics that the pass over the keys yields once the log-sum-exp is known."""


@dataclass(frozen=True)
class Blocks:
    """Queries and keys per block, warps, and stages of the pipeline that loads them."""

    queries: int
    keys: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Gather:
    """Queries per program, numbers of each of their keys that are loaded at once, and warps."""

    rows: int
    width: int
    warps: int


BLOCKS = {
    "rows": {64: Blocks(128, 128, 4, 3), 128: Blocks(128, 128, 8, 2), 256: Blocks(64, 32, 4, 2)},
    "output": {64: Blocks(64, 64, 4, 3), 128: Blocks(128, 128, 8, 3), 256: Blocks(64, 32, 4, 2)},
    "top": {64: Blocks(64, 64, 4, 3), 128: Blocks(64, 64, 4, 3), 256: Blocks(64, 32, 4, 2)},
    "keys": {64: Blocks(128, 128, 4, 3), 128: Blocks(128, 128, 4, 2), 256: Blocks(64, 64, 4, 2)},
    "spread": {64: Blocks(64, 64, 4, 2), 128: Blocks(64, 64, 4, 2), 256: Blocks(64, 32, 4, 1)},
}
"""By purpose and width. Measured on an H200 by `benchmarks/look_gpu.py --tune`."""
REDUCE = (128, 32)
"""Queries and segments that are reduced at once."""
TOP_GATHER = Gather(1, 32, 1)
"""For the scores of the cells with the largest weights. One warp reduces a row without waiting for others."""
TOP = frozenset({"top_weights", "top_indices"})


class Launcher:
    """The kernels with the arguments of one map."""

    def __init__(self, args: AttentionArgs) -> None:
        from softlook.ops.backends import look_kernels, look_top_kernels  # noqa: PLC0415  (importing Triton is slow)

        self.kernels, self.top_kernels, self.args = look_kernels, look_top_kernels, args
        B, self.H, self.T, total = args.sizes
        self.BH, self.S = B * self.H, args.key.shape[2]
        self.shift = total - self.T - args.first_key
        self.query, self.key = _rows_contiguous(args.query), _rows_contiguous(args.key)
        self.scale = args.scale * LOG2E
        if args.softcap is None and args.bias is None:  # it multiplies the largest product: it must be positive
            self.query = -self.query if args.scale < 0 else self.query
            self.scale = max(abs(self.scale), 1e-30)
        self.span, self.limits, ids, dense = mask_terms(args)
        table, bias = bias_terms(args)
        softcap = None if args.softcap is None else args.softcap * LOG2E
        self.terms = (self.span, self.limits, ids, dense, table, bias, self.scale, softcap)
        D = args.query.shape[3]
        self.options = {
            "D": D,
            "BLOCK_D": _block_width(D),
            "MASKED": ids is not None or dense is not None,
            "PRECISION": "tf32" if args.query.dtype in HALF_DTYPES else "tf32x3",
        }

    def queries(
        self, stats: frozenset[str], value: Tensor | None = None, sink: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Statistics per query, and with values the output."""
        args, shape = self.args, self.args.query.shape[:3]
        chosen = ("lse", *(name for name in PER_QUERY[1:] if name in stats))
        results = {name: self.query.new_empty(shape, dtype=torch.float32) for name in chosen}
        E = 16 if value is None else value.shape[3]
        if value is not None:
            value = _rows_contiguous(value)
            results["output"] = value.new_empty((*shape, E))
        blocks = _blocks("rows" if value is None else "output", max(args.query.shape[3], E))
        self.kernels.stats_q[self.BH, -(-self.T // blocks.queries)](
            self.query,
            self.key,
            value,
            results.get("output"),
            tuple(results.get(name) for name in PER_QUERY),
            sink,
            (*self.query.stride()[:3], *self.key.stride()[:3], *((0, 0, 0) if value is None else value.stride()[:3])),
            (self.H, args.group_size, self.T, self.S),
            self.terms,
            E=E,
            BLOCK_E=_block_width(E),
            BLOCK_M=blocks.queries,
            BLOCK_N=blocks.keys,
            num_warps=blocks.warps,
            num_stages=blocks.stages,
            **self.options,
        )
        return results

    def top(self, top_k: int, lse: Tensor) -> dict[str, Tensor]:
        """The largest weights of each query, and their keys."""
        shape, K = self.args.query.shape[:3], max(2, 1 << (top_k - 1).bit_length())
        blocks, gather = _blocks("top", self.args.query.shape[3]), TOP_GATHER
        segments, lanes = torch.empty((2, *shape, K), dtype=torch.int32, device=self.query.device)
        strides = (*self.query.stride()[:3], *self.key.stride()[:3])
        sizes = (self.H, self.args.group_size, self.T, self.S)
        self.top_kernels.top_cells[self.BH, -(-self.T // blocks.queries)](
            self.query,
            self.key,
            segments,
            lanes,
            strides,
            sizes,
            self.terms,
            BLOCK_M=blocks.queries,
            BLOCK_N=blocks.keys,
            K=K,
            num_warps=blocks.warps,
            num_stages=blocks.stages,
            **self.options,
        )
        weights = self.query.new_empty((*shape, top_k), dtype=torch.float32)
        indices = torch.empty((*shape, top_k), dtype=torch.int64, device=self.query.device)
        self.top_kernels.top_of_cells[self.BH, -(-self.T // gather.rows)](
            self.query,
            self.key,
            segments,
            lanes,
            lse.contiguous(),
            weights,
            indices,
            strides,
            (*sizes, top_k, self.args.first_key),
            self.terms,
            D=self.options["D"],
            BLOCK_D=self.options["BLOCK_D"],
            BLOCK_R=gather.rows,
            CHUNK=min(self.options["BLOCK_D"], gather.width),
            K=K,
            num_warps=max(gather.warps, K * K // 256),
        )
        return {"top_weights": weights, "top_indices": indices}

    def keys(self, stats: frozenset[str], lse: Tensor, bins: int, *, from_parts: bool) -> dict[str, Tensor]:
        """Statistics per key and pooled maps; with `from_parts`, also the entropy and the largest weight."""
        pooled = bool(stats & {"pooled_mean", "pooled_max"})
        blocks = _blocks("keys", self.args.query.shape[3])
        segments = Segments(self.S, bins if pooled else 1, blocks.keys, choose=pooled)
        rows = Segments(self.T, bins if pooled else 1, REDUCE[0])
        chosen = {
            "entropy": from_parts and "entropy" in stats,
            "max": "pooled_max" in stats or (from_parts and "max_weight" in stats),
            "mass": "pooled_mean" in stats,
        }
        shape, new = self.args.query.shape[:3], self.query.new_empty
        results: dict[str, Any] = {"received": new((*shape[:2], self.S), dtype=torch.float32)}
        if from_parts:
            results |= {name: new(shape, dtype=torch.float32) for name in stats & {"entropy", "max_weight"}}
        cells = {
            name: new((self.BH, rows.count, segments.count), dtype=torch.float32)
            for name in stats & {"pooled_mean", "pooled_max"}
        }
        lse = lse.contiguous()
        for heads, parts in self._head_chunks(chosen, segments.count):
            self._launch_keys(blocks, segments, heads, lse, received=results["received"], parts=parts)
            if any(part is not None for part in parts):
                self._launch_reduce(segments, rows, heads, parts, results | cells)
        return results | {name: _pool(name, part, rows, segments, shape) for name, part in cells.items()}

    def spread(self, lse: Tensor, amounts: Tensor) -> Tensor:
        """Multiply the transposed map with `amounts` (B, H, T, E). (B, H, S, E)"""
        amounts, E = _rows_contiguous(amounts), amounts.shape[3]
        blocks = _blocks("spread", max(self.args.query.shape[3], E))
        result = amounts.new_empty((*amounts.shape[:2], self.S, E))
        segments = Segments(self.S, 1, blocks.keys)
        self._launch_keys(blocks, segments, range(self.BH), lse.contiguous(), amounts=amounts, spread=result)
        return result

    def _head_chunks(self, chosen: dict[str, bool], segments: int) -> Iterator[tuple[range, tuple[Any, ...]]]:
        """Heads of all sequences, as many as fit, and the memory of their parts."""
        size = 4 * segments * self.T * sum(chosen.values())
        heads = min(self.BH, max(1, PARTS_BYTES // size)) if size else self.BH
        memory = [
            self.query.new_empty((heads, segments, self.T), dtype=torch.float32) if used else None
            for used in chosen.values()
        ]
        for first in range(0, self.BH, heads):
            yield range(first, min(first + heads, self.BH)), tuple(memory)

    def _launch_keys(
        self,
        blocks: Blocks,
        segments: "Segments",
        heads: range,
        lse: Tensor,
        *,
        amounts: Tensor | None = None,
        received: Tensor | None = None,
        spread: Tensor | None = None,
        parts: tuple[Any, ...] = (None, None, None),
    ) -> None:
        E = 16 if amounts is None else amounts.shape[3]
        rest = (0, 0, 0) if amounts is None else amounts.stride()[:3]
        self.kernels.stats_kv[len(heads), segments.count](
            self.query,
            self.key,
            lse,
            amounts,
            received,
            spread,
            parts,
            (*self.query.stride()[:3], *self.key.stride()[:3], *rest),
            (self.H, self.args.group_size, self.T, self.S, heads.start, segments.bins, segments.per_bin),
            self.terms,
            E=E,
            BLOCK_E=_block_width(E),
            BLOCK_M=blocks.queries,
            BLOCK_N=segments.size,
            WARPS=blocks.warps,
            num_warps=blocks.warps,
            num_stages=blocks.stages,
            **self.options,
        )

    def _launch_reduce(
        self,
        segments: "Segments",
        rows: "Segments",
        heads: range,
        parts: tuple[Any, ...],
        results: dict[str, Any],
    ) -> None:
        self.kernels.reduce_parts[len(heads), rows.count](
            parts,
            *(results.get(name) for name in ("entropy", "max_weight", "pooled_mean", "pooled_max")),
            self.limits,
            self.span,
            (self.H, self.T, self.S, heads.start, rows.bins, rows.per_bin, segments.bins, segments.per_bin),
            BLOCK_M=rows.size,
            BLOCK_N=segments.size,
            SEGMENTS=REDUCE[1],
        )


class Segments:
    """A division of a length into bins as equal as possible, and of each bin into segments of at most `size`.

    With `choose`, the size is at most that and the one that wastes the least.
    """

    def __init__(self, length: int, bins: int, size: int, *, choose: bool = False) -> None:
        self.bins = max(1, min(length, bins))
        width = -(-length // self.bins)
        sizes = [size >> power for power in range(3) if size >> power >= 32] if choose else []
        # Narrower blocks cost more per key.
        self.size = min(sizes or [size], key=lambda one: -(-width // one) * (one + 16))
        self.per_bin = -(-width // self.size)
        self.count = self.bins * self.per_bin


PER_QUERY = ("lse", "entropy", "max_weight", "effective_keys", "mean_distance")


def compute_statistics(
    args: AttentionArgs,
    stats: frozenset[str],
    *,
    top_k: int,
    bins: int,
    lse: Tensor | None = None,
    value: Tensor | None = None,
) -> dict[str, Tensor]:
    """Compute the requested statistics by name; with values, also the attention "output"."""
    launcher = Launcher(args)
    summed, rest = stats & {"received", "pooled_mean", "pooled_max"}, stats - TOP
    fused = fused_output(args, value) if value is not None and summed and rest <= PER_SEGMENT else None
    if fused is not None:
        output, lse = fused
        results = {"output": output, "lse": lse} | launcher.keys(rest, lse, bins, from_parts=True)
    else:
        results = {} if lse is not None else launcher.queries(rest, value, args.sink)
        lse = results["lse"] if lse is None else lse
        if summed:
            results |= launcher.keys(summed, lse, bins, from_parts=False)
    return results | launcher.top(top_k, lse) if stats & TOP else results


def apply_transposed(args: AttentionArgs, lse: Tensor, amounts: Tensor) -> Tensor:
    """Multiply the transposed map with `amounts` (B, H, T, E). (B, H, S, E)"""
    return Launcher(args).spread(lse, amounts)


def fused_output(args: AttentionArgs, value: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the output and the log-sum-exp of torch's kernel that suits these arguments, or None."""
    query, key, causal = args.query, args.key, args.mask is not None
    plain = args.softcap is args.sink is args.score is None and sdpa.has_native_mask(args) and args.scale > 0
    if not plain or args.first_key or query.shape[1] != key.shape[1] or query.shape[3] != value.shape[3]:
        return None
    if query.shape[2] != key.shape[2] or not sdpa_cuda.suits_cudnn(query, key, value, None):
        return None
    cudnn = torch.ops.aten._scaled_dot_product_cudnn_attention
    output, lse = cudnn(query, key, value, None, True, 0.0, causal, scale=args.scale)[:2]
    return output, lse.reshape(query.shape[:3])


def _pool(name: str, cells: Tensor, rows: Segments, columns: Segments, shape: torch.Size) -> Tensor:
    """Reduce segments to bins. (B, H, R, R)"""
    cells = cells.view(*shape[:2], rows.bins, rows.per_bin, columns.bins, columns.per_bin)
    if rows.per_bin == columns.per_bin == 1:
        return cells[:, :, :, 0, :, 0]
    return cells.amax((3, 5)) if name == "pooled_max" else cells.sum((3, 5))


def _blocks(purpose: str, width: int) -> Blocks:
    return next(blocks for limit, blocks in BLOCKS[purpose].items() if width <= limit)


def _block_width(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


def _rows_contiguous(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()
