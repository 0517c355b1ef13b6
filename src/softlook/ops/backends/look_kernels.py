"""Triton kernels of a look: statistics per query, statistics per key, and their reduction.

A block of scores is computed at a time and never stored. Scores are in units of log 2: a weight is exp2(score - lse).

`terms` are the arguments of a map as nested tuples; those that a call does not have are None and cost nothing:
(span, limits, ids, dense, table, bias, scale, softcap). Query i sees keys from i + shift - left to i + shift + right,
span = (shift, left, right), from starts[b] up to stops[b], limits = (starts, stops), with its document's id, and where
the dense mask is set. Without Triton the kernels can be imported, but not run.
"""
# ruff: noqa: PLR0913, PLR0915, PLR0917, C901  (kernels take pointers and sizes as positional arguments)
# pyright: reportMissingImports=false, reportInvalidTypeForm=false, reportOptionalCall=false
# pyright: reportPossiblyUnboundVariable=false

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, no_type_check  # shape checks in tests would wrap the functions that Triton compiles

if find_spec("triton") is not None:  # included in torch builds for GPUs
    import triton as installed_triton
    import triton.language as triton_language

    triton: Any = installed_triton
    tl: Any = triton_language
else:
    triton = SimpleNamespace(jit=lambda kernel: kernel)
    tl = SimpleNamespace(constexpr=float)

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-1e4)
"""exp2 of it is 0, and 0 times it is 0."""


@triton.jit
@no_type_check
def key_limits(limits, b, S):
    """The first key of a sequence and the end of its keys."""
    starts, stops = limits
    first, stop = 0, S
    if starts is not None:
        first = tl.maximum(tl.load(starts + b), 0)
    if stops is not None:
        stop = tl.minimum(tl.load(stops + b), S)
    return first, stop


@triton.jit
@no_type_check
def segment(index, length, bins, per_bin, SIZE: tl.constexpr):
    """Bounds of a segment. Each bin is divided into `per_bin` segments of at most SIZE."""
    bin = index // per_bin
    start = bin * length // bins + (index % per_bin) * SIZE
    stop = tl.minimum(start + SIZE, (bin + 1) * length // bins)
    return start, stop


@triton.jit
@no_type_check
def phase_bounds(begin, end, full_begin, full_end, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """Divide [begin, end) into blocks before, inside and after [full_begin, full_end), which needs no mask."""
    begin = begin // BLOCK * BLOCK
    end = tl.maximum(tl.cdiv(end, BLOCK) * BLOCK, begin)
    if MASKED:
        return begin, begin, begin, end
    middle = tl.maximum(begin, tl.minimum(tl.cdiv(tl.maximum(full_begin, 0), BLOCK) * BLOCK, end))
    after = tl.maximum(middle, tl.minimum(tl.maximum(full_end, 0) // BLOCK * BLOCK, end))
    return begin, middle, after, end


@triton.jit
@no_type_check
def block_scores(
    q, k, rows, cols, b, h, first, stop, T, S, terms, MASKED: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Scores (rows, cols), -inf where masked; divided by `score_factor`."""
    x = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    return apply_terms(x, rows[:, None], cols[None, :], b, h, first, stop, T, S, terms, MASKED)


@triton.jit
@no_type_check
def apply_terms(x, row, col, b, h, first, stop, T, S, terms, MASKED: tl.constexpr):
    """Scores from products of queries and keys, whose indices `row` and `col` broadcast to them."""
    span, limits, ids, dense, table, bias, scale, softcap = terms
    shift, left, right = span
    starts, _stops = limits
    if softcap is not None:
        x = softcap - 2 * softcap / (1 + tl.exp2(x * (scale / softcap * (2 * LOG2E))))  # softcap * tanh(x / softcap)
    elif table is not None or bias is not None:
        x = x * scale
    inside = (row < T) & (col < S)
    if table is not None:
        x += LOG2E * tl.load(table + h * (T + S - 1) + (row - col + S - 1), inside, 0.0)
    if bias is not None:
        values, sb, sh, st, ss = bias
        offsets = row.to(tl.int64) * st + col * ss
        x += LOG2E * tl.load(values + b * sb + h * sh + offsets, inside, 0.0).to(tl.float32)
    if MASKED:
        end = row * 0 + stop
        if right is not None:
            end = tl.minimum(end, row + (shift + right + 1))
        visible = col < end
        if left is not None:
            visible &= col >= tl.maximum(row + (shift - left), first)
        elif starts is not None:
            visible &= col >= first
        if ids is not None:
            query_ids, key_ids, sq, sk = ids
            own = tl.load(query_ids + b * sq + row, row < T, -1)
            visible &= own == tl.load(key_ids + b * sk + col, col < S, -2)
        if dense is not None:
            cells, mb, mh, mt, ms = dense
            offsets = row.to(tl.int64) * mt + col * ms
            visible &= tl.load(cells + b * mb + h * mh + offsets, inside, 0) != 0
        x = tl.where(visible, x, float("-inf"))
    return x


@triton.jit
@no_type_check
def score_factor(terms):
    """What remains to be multiplied with block scores: it is fused into the subtraction of the log-sum-exp."""
    _span, _limits, _ids, _dense, table, bias, scale, softcap = terms
    factor = scale
    if softcap is not None or table is not None or bias is not None:
        factor = 1.0
    return factor


@triton.jit
@no_type_check
def load_block(base, start, stride, count, width, ROWS: tl.constexpr, WIDTH: tl.constexpr, CHECK: tl.constexpr):
    """Vectors (ROWS, WIDTH) from `start` on; 0 beyond `count`."""
    r, d = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    pointers = base + tl.cast(start, tl.int64) * stride + (r * stride + d)
    if CHECK:
        return tl.load(pointers, (start + r < count) & (d < width), 0.0)
    return tl.load(pointers, d < width, 0.0) if width != WIDTH else tl.load(pointers)


@triton.jit
@no_type_check
def key_bounds(row0, last, first, stop, span, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """Blocks of keys that queries from `row0` to `last` see: before, inside and after those that need no mask."""
    shift, left, right = span
    begin, end, full_begin, full_end = first, stop, first, stop
    if left is not None:
        begin, full_begin = tl.maximum(begin, row0 + shift - left), tl.maximum(first, last + shift - left)
    if right is not None:
        end, full_end = tl.minimum(end, last + shift + right + 1), tl.minimum(stop, row0 + shift + right + 1)
    return phase_bounds(begin, end, full_begin, full_end, MASKED, BLOCK)


@triton.jit
@no_type_check
def stats_q(
    query, key, value, output, results, sink, strides, sizes, terms,
    D: tl.constexpr, E: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Statistics of BLOCK_M queries in one pass over their keys, with a running maximum (online softmax)."""
    lse_ptr, entropy_ptr, max_ptr, keys_ptr, distance_ptr = results
    H, R, T, S = sizes
    span, limits, _ids, _dense, _table, _bias, _scale, _softcap = terms
    shift, _left, _right = span
    factor = score_factor(terms)
    bh = tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    row0 = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_M  # the longest rows of a causal map first
    rows = row0 + tl.arange(0, BLOCK_M)
    last = tl.minimum(row0 + BLOCK_M, T) - 1
    qb, qh, qt, kb, kh, ks, vb, vh, vs = strides
    q = load_block(query + b * qb + h * qh, row0, qt, T, D, BLOCK_M, BLOCK_D, True)
    k_base = key + b * kb + h // R * kh
    first, stop = key_limits(limits, b, S)
    begin, middle, after, end = key_bounds(row0, last, first, stop, span, MASKED, BLOCK_N)
    zeros = tl.zeros((BLOCK_M,), tl.float32)
    peak, total, plogp, squares, distance = zeros - float("inf"), zeros, zeros, zeros, zeros
    if value is not None:
        v_base = value + b * vb + h // R * vh
        average = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
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
            new_peak = tl.maximum(peak, tl.max(x, 1) * factor)
            safe = tl.where(new_peak == float("-inf"), 0.0, new_peak)
            logs = x * factor - safe[:, None]
            if phase != 1 or _bias is not None:
                logs = tl.maximum(logs, LOWEST)  # a finite number, for its product with a weight of 0
            p = tl.exp2(logs)
            decay = tl.exp2(peak - safe)
            if entropy_ptr is not None:
                drop = tl.where(peak == float("-inf"), 0.0, peak - safe)
                plogp = decay * (plogp + total * drop) + tl.sum(p * logs, 1)
            total = total * decay + tl.sum(p, 1)
            if keys_ptr is not None:
                squares = squares * decay * decay + tl.sum(p * p, 1)
            if distance_ptr is not None:
                gap = tl.abs(rows[:, None] + shift - cols[None, :]).to(tl.float32)
                distance = distance * decay + tl.sum(p * gap, 1)
            if value is not None:
                v = load_block(v_base, col0, vs, S, E, BLOCK_N, BLOCK_E, phase != 1)
                average = tl.dot(p.to(v.dtype), v, average * decay[:, None], input_precision=PRECISION)
            peak = new_peak
    masked = total == 0
    peak = tl.where(masked, 0.0, peak)
    lse = tl.where(masked, float("-inf"), peak + tl.log2(tl.where(masked, 1.0, total)))
    if sink is not None:
        logit = tl.load(sink + h) * LOG2E
        larger = tl.maximum(lse, logit)
        lse = larger + tl.log2(tl.exp2(lse - larger) + tl.exp2(logit - larger))
    drop = tl.where(masked, 0.0, peak - lse)
    share = tl.where(masked, 0.0, tl.exp2(drop))
    at_rows, in_rows = bh * T + rows, rows < T
    tl.store(lse_ptr + at_rows, lse * LN2, in_rows)
    if entropy_ptr is not None:
        tl.store(entropy_ptr + at_rows, -LN2 * share * (plogp + total * drop), in_rows)
    if max_ptr is not None:
        tl.store(max_ptr + at_rows, share, in_rows)
    if keys_ptr is not None:
        effective = tl.maximum(total * total / tl.where(masked, 1.0, squares), 1.0)
        tl.store(keys_ptr + at_rows, tl.where(masked, 0.0, effective), in_rows)
    if distance_ptr is not None:
        tl.store(distance_ptr + at_rows, share * distance, in_rows)
    if value is not None:
        e = tl.arange(0, BLOCK_E)
        pointers = output + at_rows[:, None] * E + e[None, :]
        tl.store(pointers, (average * share[:, None]).to(output.dtype.element_ty), in_rows[:, None] & (e < E)[None, :])


@triton.jit
@no_type_check
def stats_kv(
    query, key, lse, amounts, received, spread, parts, strides, sizes, terms,
    D: tl.constexpr, E: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WARPS: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sums over the queries for a segment of at most BLOCK_N keys, given the log-sum-exp of each query.

    `parts` are sums over these keys per query, (heads, segments, T): of -w log w, the largest w, and of w.
    """
    entropy_part, max_part, mass_part = parts
    H, R, T, S, first_bh, bins, per_bin = sizes
    span, limits, _ids, _dense, _table, _bias, _scale, _softcap = terms
    shift, left, right = span
    factor = score_factor(terms)
    bh = tl.program_id(0).to(tl.int64) + first_bh
    b, h = bh // H, bh % H
    qb, qh, qt, kb, kh, ks, ub, uh, ut = strides
    q_base, lse_base = query + b * qb + h * qh, lse + bh * T
    col0, col1 = segment(tl.program_id(1), S, bins, per_bin, BLOCK_N)
    cols = col0 + tl.arange(0, BLOCK_N)
    k = load_block(key + b * kb + h // R * kh, col0, ks, col1, D, BLOCK_N, BLOCK_D, True)
    first, stop = key_limits(limits, b, S)
    inside = (col0 >= first) & (col1 <= stop) & (col1 - col0 == BLOCK_N)
    stop = tl.minimum(stop, col1)
    begin, end, full_begin, full_end = 0, T, 0, T
    if right is not None:
        begin, full_begin = tl.maximum(col0 - shift - right, 0), col1 - 1 - shift - right
    if left is not None:
        end, full_end = tl.minimum(T, col1 + left - shift), tl.minimum(T, col0 + left - shift + 1)
    full_end = tl.where(inside, full_end, 0)
    end = tl.where((col1 > first) & (stop > col0), end, 0)
    begin, middle, after, end = phase_bounds(begin, end, full_begin, full_end, MASKED, BLOCK_M)
    # Rows that one thread holds are summed in every step, those of different threads once at the end.
    mass = tl.zeros((WARPS, 8, BLOCK_N), tl.float32)
    if amounts is not None:
        u_base = amounts + b * ub + h * uh
        gathered = tl.zeros((BLOCK_N, BLOCK_E), tl.float32)
    for phase in tl.static_range(3):
        start, until = begin, middle
        if phase == 1:
            start, until = middle, after
        elif phase == 2:
            start, until = after, end
        for row0 in tl.range(start, until, BLOCK_M):
            rows = row0 + tl.arange(0, BLOCK_M)
            q = load_block(q_base, row0, qt, T, D, BLOCK_M, BLOCK_D, phase != 1)
            row_lse = tl.load(lse_base + rows, rows < T, float("-inf")) * LOG2E
            row_lse = tl.where(row_lse == float("-inf"), 1e30, row_lse)  # no weights
            x = block_scores(q, k, rows, cols, b, h, first, stop, T, S, terms, phase != 1, PRECISION)
            logs = x * factor - row_lse[:, None]
            if phase != 1 or _bias is not None:
                logs = tl.maximum(logs, LOWEST)
            p = tl.exp2(logs)
            if received is not None:
                mass += tl.sum(tl.sum(tl.reshape(p, (BLOCK_M // (16 * WARPS), WARPS, 2, 8, BLOCK_N)), 2), 0)
            at_rows = (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * T + rows
            if entropy_part is not None:
                tl.store(entropy_part + at_rows, tl.sum(p * logs, 1) * -LN2, rows < T)
            if max_part is not None:
                tl.store(max_part + at_rows, tl.max(p, 1), rows < T)
            if mass_part is not None:
                tl.store(mass_part + at_rows, tl.sum(p, 1), rows < T)
            if amounts is not None:
                u = load_block(u_base, row0, ut, T, E, BLOCK_M, BLOCK_E, phase != 1)
                gathered = tl.dot(tl.trans(p).to(u.dtype), u, gathered, input_precision=PRECISION)
    if received is not None:
        tl.store(received + bh * S + cols, tl.sum(tl.sum(mass, 0), 0), cols < col1)
    if amounts is not None:
        e = tl.arange(0, BLOCK_E)
        pointers = spread + (bh * S + cols)[:, None] * E + e[None, :]
        tl.store(pointers, gathered.to(spread.dtype.element_ty), (cols < col1)[:, None] & (e < E)[None, :])


@triton.jit
@no_type_check
def reduce_parts(
    parts, entropy, max_weight, mean_cells, max_cells, limits, span, sizes,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """Reduce the parts of `stats_kv` over segments for each query, and over a segment of queries for each cell.

    Only what `stats_kv` wrote is read: segments that some key of is visible to the query.
    """
    entropy_part, max_part, mass_part = parts
    H, T, S, first_bh, row_bins, rows_per_bin, bins, per_bin = sizes
    shift, left, right = span
    local = tl.program_id(0).to(tl.int64)
    bh = local + first_bh
    row0, row1 = segment(tl.program_id(1), T, row_bins, rows_per_bin, BLOCK_M)
    rows = row0 + tl.arange(0, BLOCK_M)
    row_bin = tl.program_id(1) // rows_per_bin
    height = (row_bin + 1) * T // row_bins - row_bin * T // row_bins
    first, stop = key_limits(limits, bh // H, S)
    sums, maxima = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    count = bins * per_bin
    for one in range(0, count, SEGMENTS):
        index = one + tl.arange(0, SEGMENTS)
        col0, col1 = segment(index, S, bins, per_bin, BLOCK_N)
        seen = (index < count) & (col0 < col1) & (col0 < stop) & (col1 > first)
        seen = seen[:, None] & (rows < row1)[None, :]
        if right is not None:
            seen &= col0[:, None] <= (rows + (shift + right))[None, :]
        if left is not None:
            seen &= col1[:, None] > (rows + (shift - left))[None, :]
        offsets = (local * count + index)[:, None] * T + rows[None, :]
        cells = (bh * tl.num_programs(1) + tl.program_id(1)) * count + index
        if entropy_part is not None:
            sums += tl.sum(tl.load(entropy_part + offsets, seen, 0.0), 0)
        if max_part is not None:
            block = tl.load(max_part + offsets, seen, 0.0)
            maxima = tl.maximum(maxima, tl.max(block, 0))
            if max_cells is not None:
                tl.store(max_cells + cells, tl.max(block, 1), index < count)
        if mass_part is not None:
            width = (index // per_bin + 1) * S // bins - index // per_bin * S // bins
            mean = tl.sum(tl.load(mass_part + offsets, seen, 0.0), 1) / (height * width)
            tl.store(mean_cells + cells, mean, index < count)
    if entropy is not None:
        tl.store(entropy + bh * T + rows, sums, rows < row1)
    if max_weight is not None:
        tl.store(max_weight + bh * T + rows, maxima, rows < row1)
