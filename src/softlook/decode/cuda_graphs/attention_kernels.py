"""Triton kernels of attention for one new token per row."""
# ruff: noqa: PLR0913, PLR0915, PLR0917  (kernels take pointers and sizes as positional arguments)
# pyright: reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false, reportOptionalCall=false

from softlook.decode.cuda_graphs.kernels import pdl_sync, tl, triton


@triton.jit
def rotate(x, swapped, d, cos_ptr, sin_ptr, position, D: tl.constexpr):
    """Rotary embedding of a head x (D,): pairs i and i + D / 2 rotated by a position's angle; `swapped` is x with its
    halves exchanged."""
    half: tl.constexpr = D // 2
    cos, sin = (
        tl.load(cos_ptr + position * half + d % half, d < D, 0.0),
        tl.load(sin_ptr + position * half + d % half, d < D, 0.0),
    )
    return x * cos + tl.where(d < half, -swapped, swapped) * sin


@triton.jit
def load_kv(
    key_ptr,
    value_ptr,
    owners_ptr,
    m,
    g,
    t,
    visible,
    row_stride,
    head_stride,
    owners_stride,
    D: tl.constexpr,
    PADDED_D: tl.constexpr,
    BEAMS: tl.constexpr,
    OWNERS: tl.constexpr,
):
    """Keys and values in columns t of a row, (BLOCK, PADDED_D) each."""
    d = tl.arange(0, PADDED_D)
    if OWNERS:
        rows = tl.load(owners_ptr + m * owners_stride + t, visible, 0).to(tl.int64)
    else:
        rows = t.to(tl.int64) * 0 + m // BEAMS
    offsets = rows[:, None] * row_stride + g * head_stride + t[:, None] * D + d[None, :]
    in_tile = visible[:, None] & (d < D)[None, :]
    return tl.load(key_ptr + offsets, in_tile, 0.0), tl.load(value_ptr + offsets, in_tile, 0.0)


@triton.jit
def online_softmax(query, keys, values, visible, max_score, denominator, accumulator):
    """One block of attention with a running maximum and denominator."""
    scores = tl.where(visible, tl.sum(keys.to(tl.float32) * query[None, :], 1), float("-inf"))
    new_max = tl.maximum(max_score, tl.max(scores, 0))
    weights, rescale = tl.exp(scores - new_max), tl.exp(max_score - new_max)
    denominator = denominator * rescale + tl.sum(weights, 0)
    return new_max, denominator, accumulator * rescale + tl.sum(weights[:, None] * values.to(tl.float32), 0)


@triton.jit
def decode_attention(
    qkv_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    owners_ptr,
    first_ptr,
    last_ptr,
    cos_ptr,
    sin_ptr,
    scale,
    qkv_stride,
    row_stride,
    head_stride,
    owners_stride,
    HEADS: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    PADDED_D: tl.constexpr,
    BLOCK: tl.constexpr,
    BEAMS: tl.constexpr,
    SELF: tl.constexpr,
    OWNERS: tl.constexpr,
    ROTARY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attention of the queries of one row and one key head.

    SELF: self-attention from column `first` up to the new token, whose key and value are written to column `last`.
    Otherwise cross-attention to the first `last` tokens of a source that BEAMS rows share. OWNERS: the cache row of
    each column is read from `owners_ptr`.
    """
    dtype = out_ptr.dtype.element_ty
    m, g, d = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, PADDED_D)
    in_head, swapped_d = d < D, (d + D // 2) % D
    first, last = 0, 0
    if SELF:
        first, last = tl.load(first_ptr + m).to(tl.int32), tl.load(last_ptr).to(tl.int32)
    else:
        last = tl.load(last_ptr + m // BEAMS).to(tl.int32)
    begin = first // BLOCK * BLOCK
    t = begin + tl.arange(0, BLOCK)
    visible = (t >= first) & (t < last)
    keys, values = load_kv(
        key_ptr,
        value_ptr,
        owners_ptr,
        m,
        g,
        t,
        visible,
        row_stride,
        head_stride,
        owners_stride,
        D,
        PADDED_D,
        BEAMS,
        OWNERS,
    )
    pdl_sync(PDL)
    if SELF:
        new_ptr = qkv_ptr + m * qkv_stride + (HEADS + g) * D
        key, value = tl.load(new_ptr + d, in_head, 0.0), tl.load(new_ptr + KV * D + d, in_head, 0.0)
        if ROTARY:
            swapped = tl.load(new_ptr + swapped_d, in_head, 0.0).to(tl.float32)
            key = rotate(key.to(tl.float32), swapped, d, cos_ptr, sin_ptr, last - first, D).to(dtype)
        tl.store(key_ptr + m * row_stride + g * head_stride + last * D + d, key, in_head)
        tl.store(value_ptr + m * row_stride + g * head_stride + last * D + d, value, in_head)
        own_key, own_value = key.to(tl.float32), value.to(tl.float32)
    for j in tl.static_range(HEADS // KV):
        query_ptr = qkv_ptr + m * qkv_stride + (g * (HEADS // KV) + j) * D
        query = tl.load(query_ptr + d, in_head, 0.0).to(tl.float32)
        if ROTARY:
            swapped = tl.load(query_ptr + swapped_d, in_head, 0.0).to(tl.float32)
            query = rotate(query, swapped, d, cos_ptr, sin_ptr, last - first, D).to(dtype).to(tl.float32)
        query *= scale
        if SELF:
            max_score = tl.sum(query * own_key, 0)
            denominator, accumulator = max_score * 0.0 + 1.0, own_value
        else:
            max_score = tl.sum(query * 0.0, 0) - float("inf")
            denominator, accumulator = tl.sum(query * 0.0, 0), query * 0.0
        max_score, denominator, accumulator = online_softmax(
            query, keys, values, visible, max_score, denominator, accumulator
        )
        for start in range(begin + BLOCK, last, BLOCK):
            later = start + tl.arange(0, BLOCK)
            more_keys, more_values = load_kv(
                key_ptr,
                value_ptr,
                owners_ptr,
                m,
                g,
                later,
                later < last,
                row_stride,
                head_stride,
                owners_stride,
                D,
                PADDED_D,
                BEAMS,
                OWNERS,
            )
            max_score, denominator, accumulator = online_softmax(
                query, more_keys, more_values, later < last, max_score, denominator, accumulator
            )
        out_row = out_ptr + m * (HEADS * D) + (g * (HEADS // KV) + j) * D
        tl.store(out_row + d, (accumulator / denominator).to(dtype), in_head)


@triton.jit
def decode_cross_attention(
    query_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    lengths_ptr,
    scale,
    row_stride,
    head_stride,
    HEADS: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    PADDED_D: tl.constexpr,
    BLOCK: tl.constexpr,
    BEAMS: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Cross-attention of all beams of one sequence and one key head: keys are loaded once, for tensor cores."""
    dtype = out_ptr.dtype.element_ty
    group_size: tl.constexpr = HEADS // KV
    n, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r, d = tl.arange(0, ROWS), tl.arange(0, PADDED_D)
    last = tl.load(lengths_ptr + n).to(tl.int32)
    offsets = ((n * BEAMS + r // group_size) * HEADS + g * group_size + r % group_size)[:, None] * D + d[None, :]
    in_head = (r < BEAMS * group_size)[:, None] & (d < D)[None, :]
    pdl_sync(PDL)
    query = tl.load(query_ptr + offsets, in_head, 0.0)
    max_score = tl.full((ROWS,), float("-inf"), tl.float32)
    denominator, accumulator = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, PADDED_D), tl.float32)
    for start in range(0, last, BLOCK):
        t = start + tl.arange(0, BLOCK)
        source = n * row_stride + g * head_stride + t[:, None] * D + d[None, :]
        in_tile = (t < last)[:, None] & (d < D)[None, :]
        keys, values = tl.load(key_ptr + source, in_tile, 0.0), tl.load(value_ptr + source, in_tile, 0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where((t < last)[None, :], scores, float("-inf"))
        new_max = tl.maximum(max_score, tl.max(scores, 1))
        weights, rescale = tl.exp(scores - new_max[:, None]), tl.exp(max_score - new_max)
        denominator = denominator * rescale + tl.sum(weights, 1)
        accumulator = accumulator * rescale[:, None] + tl.dot(weights.to(dtype), values, input_precision="ieee")
        max_score = new_max
    tl.store(out_ptr + offsets, (accumulator / denominator[:, None]).to(dtype), in_head)
