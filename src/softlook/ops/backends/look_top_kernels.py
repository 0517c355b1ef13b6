"""Triton kernels that find the largest weights of each query without sorting its scores.

The keys are cells of a grid: segments of BLOCK_N consecutive keys, times BLOCK_N lanes, one per position in a segment.
One of the k largest scores of a query cannot lie in a segment with k better ones beside it, each by its largest score,
nor in such a lane. So they are among the k x k cells where the k best segments and the k best lanes meet: those scores
are computed once more. Ties are in the order of the keys everywhere; otherwise a tied key might be lost.
"""
# ruff: noqa: PLR0913, PLR0917  (kernels take pointers and sizes as positional arguments)
# pyright: reportMissingImports=false, reportInvalidTypeForm=false, reportOptionalCall=false

from typing import no_type_check  # shape checks in tests would wrap the functions that Triton compiles

from softlook.ops.backends.look_kernels import (
    LOG2E,
    apply_terms,
    block_scores,
    key_bounds,
    key_limits,
    load_block,
    score_factor,
    tl,
    triton,
)

LAST = tl.constexpr(2147483647)


@triton.jit
@no_type_check
def insert_segment(best, col0, top, at, K: tl.constexpr):
    """Replace the last of each row's K best segments if `best`, the largest score of the next segment, is larger."""
    least = tl.min(top, 1)
    offsets = tl.arange(0, K)[None, :]
    order = tl.where(top == least[:, None], at * K + offsets, -LAST)  # of equal ones the last is replaced
    replaced = (order == tl.max(order, 1)[:, None]) & (best > least)[:, None]
    return tl.where(replaced, best[:, None], top), tl.where(replaced, col0, at)


@triton.jit
@no_type_check
def top_cells(
    query, key, segments, lanes, strides, sizes, terms,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, K: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The first keys of the K best segments of BLOCK_M queries, and their K best lanes; -1 where there are fewer."""
    H, R, T, S = sizes
    span, limits, _ids, _dense, _table, _bias, _scale, _softcap = terms
    bh = tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    row0 = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_M  # the longest rows of a causal map first
    rows = row0 + tl.arange(0, BLOCK_M)
    qb, qh, qt, kb, kh, ks = strides
    q = load_block(query + b * qb + h * qh, row0, qt, T, D, BLOCK_M, BLOCK_D, True)
    k_base = key + b * kb + h // R * kh
    first, stop = key_limits(limits, b, S)
    last = tl.minimum(row0 + BLOCK_M, T) - 1
    begin, middle, after, end = key_bounds(row0, last, first, stop, span, MASKED, BLOCK_N)
    top = tl.full((BLOCK_M, K), float("-inf"), tl.float32)
    at = tl.full((BLOCK_M, K), -1, tl.int32)
    best = tl.full((BLOCK_M, BLOCK_N), float("-inf"), tl.float32)
    origin = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for phase in tl.static_range(3):
        start, until = begin, middle
        if phase == 1:
            start, until = middle, after
        elif phase == 2:
            start, until = after, end
        for col0 in tl.range(start, until, BLOCK_N):
            cols = col0 + tl.arange(0, BLOCK_N)
            k = load_block(k_base, col0, ks, S, D, BLOCK_N, BLOCK_D, phase != 1)
            x = block_scores(q, k, rows, cols, b, h, first, stop, T, S, terms, phase != 1, PRECISION)
            larger = x > best
            best = tl.where(larger, x, best)
            origin = tl.where(larger, col0, origin)
            top, at = insert_segment(tl.max(x, 1), col0, top, at, K)
    offsets, in_rows = (bh * T + rows) * K, rows < T
    tl.store(segments + offsets[:, None] + tl.arange(0, K)[None, :], at, in_rows[:, None])
    cols = origin + tl.arange(0, BLOCK_N)[None, :]
    for n in range(K):
        peak = tl.max(best, 1)
        col = tl.min(tl.where(best == peak[:, None], cols, LAST), 1)
        tl.store(lanes + offsets + n, tl.where(peak == float("-inf"), -1, col % BLOCK_N), in_rows)
        best = tl.where(cols == col[:, None], float("-inf"), best)


@triton.jit
@no_type_check
def top_of_cells(
    query, key, segments, lanes, lse, top_weights, top_indices, strides, sizes, terms,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr, CHUNK: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The `top_k` largest weights of BLOCK_R queries among the cells where their segments and lanes meet."""
    H, R, T, S, top_k, first_key = sizes
    _span, limits, _ids, _dense, _table, _bias, _scale, _softcap = terms
    bh = tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    rows = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)
    in_rows, at_rows = rows < T, bh * T + rows
    cell = tl.arange(0, K * K)
    segment = tl.load(segments + at_rows[:, None] * K + (cell // K)[None, :], in_rows[:, None], -1)
    lane = tl.load(lanes + at_rows[:, None] * K + (cell % K)[None, :], in_rows[:, None], -1)
    cols = tl.where((segment >= 0) & (lane >= 0), segment + lane, LAST)
    known = tl.minimum(cols, S - 1).to(tl.int64)
    qb, qh, qt, kb, kh, ks = strides
    q_base, k_base = query + b * qb + h * qh, key + b * kb + h // R * kh
    x = tl.zeros((BLOCK_R, K * K), tl.float32)
    for d0 in tl.static_range(0, BLOCK_D, CHUNK):
        d = d0 + tl.arange(0, CHUNK)
        q_pointers = q_base + tl.minimum(rows, T - 1).to(tl.int64)[:, None] * qt + d[None, :]
        k_pointers = k_base + known[:, :, None] * ks + d[None, None, :]
        if D == BLOCK_D:  # without a mask, each thread loads several numbers at once
            q, k = tl.load(q_pointers), tl.load(k_pointers)
        else:
            q = tl.load(q_pointers, (d < D)[None, :], 0.0)
            k = tl.load(k_pointers, (d < D)[None, None, :], 0.0)
        x += tl.sum(q.to(tl.float32)[:, None, :] * k.to(tl.float32), 2)
    first, stop = key_limits(limits, b, S)
    x = apply_terms(x, rows[:, None], cols, b, h, first, stop, T, S, terms, True) * score_factor(terms)
    total = tl.load(lse + at_rows, in_rows, 0.0) * LOG2E
    total = tl.where(total == float("-inf"), 0.0, total)
    for n in range(top_k):
        peak = tl.max(x, 1)
        col = tl.min(tl.where(x == peak[:, None], cols, LAST), 1)
        weight = tl.exp2(peak - total)
        tl.store(top_weights + at_rows * top_k + n, weight, in_rows)
        tl.store(top_indices + at_rows * top_k + n, tl.where(weight > 0, col + first_key, -1).to(tl.int64), in_rows)
        x = tl.where(cols == col[:, None], float("-inf"), x)
