"""Triton kernels of the decoder's layers: embedding, norms, matrix products, attention of one token per row.

With few rows a GPU only reads weights, and every kernel launch costs time. Values are rounded where the PyTorch modules
round them, so that the same tokens result. Without Triton the kernels can be imported, but not run.
"""
# ruff: noqa: PLR0913, PLR0915, PLR0917  (kernels take pointers and sizes as positional arguments)
# pyright: reportMissingImports=false, reportInvalidTypeForm=false, reportOptionalCall=false
# pyright: reportPossiblyUnboundVariable=false

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

if find_spec("triton") is not None:  # included in torch builds for GPUs
    import triton as installed_triton
    import triton.language as triton_language
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

    triton: Any = installed_triton
    tl: Any = triton_language
else:
    triton = SimpleNamespace(jit=lambda kernel: kernel)
    tl = SimpleNamespace(constexpr=object)
    gdc_launch_dependents = gdc_wait = None


@triton.jit
def pdl_sync(PDL: tl.constexpr):
    """Programmatic dependent launch: wait for the previous kernel, and let the next one start.

    With PDL, kernels start while the previous one is still running, and load their weights in the meantime. Before this
    call they may only read what stays constant during a step, and must not write.
    """
    if PDL:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def normalize(x, in_range, weight, shift, eps, K: tl.constexpr, NORM: tl.constexpr):
    """Layer norm or RMS norm of a row x (K,), in float32."""
    if NORM == "layer":
        x = tl.where(in_range, x - tl.sum(x, 0) / K, 0.0)
    if NORM != "none":
        x = x * tl.rsqrt(tl.sum(x * x, 0) / K + eps) * weight + shift
    return x


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x * tl.sigmoid(2.0 * inner)
    elif ACTIVATION == "silu":
        x = x * tl.sigmoid(x)
    return x


@triton.jit
def norm_rows(
    x_ptr, residual_ptr, norm_ptr, shift_ptr, out_ptr,
    eps,
    K: tl.constexpr, PADDED: tl.constexpr, NORM: tl.constexpr, SHIFT: tl.constexpr, RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Norm of each row, or of each row plus its residual."""
    m, k = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    dtype = out_ptr.dtype.element_ty
    in_range = k < K
    weight = tl.load(norm_ptr + k, in_range, 0.0).to(tl.float32)
    shift = weight * 0.0
    if SHIFT:
        shift = tl.load(shift_ptr + k, in_range, 0.0).to(tl.float32)
    pdl_sync(PDL)
    x = tl.load(x_ptr + m * K + k, in_range, 0.0).to(tl.float32)
    if RESIDUAL:
        x += tl.load(residual_ptr + m * K + k, in_range, 0.0).to(tl.float32)
        x = x.to(dtype).to(tl.float32)
    x = normalize(x, in_range, weight, shift, eps, K, NORM)
    tl.store(out_ptr + m * K + k, x.to(dtype), in_range)


@triton.jit
def fused_gemv(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, norm_ptr, shift_ptr, out_ptr,
    M, N, eps,
    K: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr, NORM: tl.constexpr, SHIFT: tl.constexpr,
    ACTIVATION: tl.constexpr, GATED: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out (M, N) = residual + activation(W norm(x) + b), or activation(gate) times the rest, some columns each.

    Weights are loaded first: while they are loading, the previous kernel ends, and the norm is computed.
    """
    dtype = out_ptr.dtype.element_ty
    n, k = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, PADDED)
    in_n, in_range = n < N, k < K
    offsets, in_tile = n[:, None].to(tl.int64) * K + k[None, :], in_n[:, None] & in_range[None, :]
    weight = tl.load(weight_ptr + offsets, in_tile, 0.0)
    gate_weight = weight
    if GATED:
        weight = tl.load(weight_ptr + N * K + offsets, in_tile, 0.0)
    scale = tl.zeros((PADDED,), tl.float32)
    shift = scale
    if NORM != "none":
        scale = tl.load(norm_ptr + k, in_range, 0.0).to(tl.float32)
    if SHIFT:
        shift = tl.load(shift_ptr + k, in_range, 0.0).to(tl.float32)
    bias = tl.zeros((COLUMNS,), tl.float32)
    gate_bias = bias
    if BIAS:
        bias = tl.load(bias_ptr + n, in_n, 0.0).to(tl.float32)
    if BIAS and GATED:
        gate_bias = bias
        bias = tl.load(bias_ptr + N + n, in_n, 0.0).to(tl.float32)
    pdl_sync(PDL)
    for m in range(M):
        x = tl.load(x_ptr + m * K + k, in_range, 0.0).to(tl.float32)
        added = bias
        if RESIDUAL:
            added = tl.load(residual_ptr + m * N + n, in_n, 0.0).to(tl.float32)
        x = normalize(x, in_range, scale, shift, eps, K, NORM).to(dtype).to(tl.float32)
        total = (tl.sum(weight.to(tl.float32) * x[None, :], 1) + bias).to(dtype).to(tl.float32)
        if GATED:
            gate = (tl.sum(gate_weight.to(tl.float32) * x[None, :], 1) + gate_bias).to(dtype).to(tl.float32)
            total *= activate(gate, ACTIVATION).to(dtype).to(tl.float32)
        else:
            total = activate(total, ACTIVATION)
        if RESIDUAL:
            total = total.to(dtype).to(tl.float32) + added
        tl.store(out_ptr + m * N + n, total.to(dtype), in_n)


@triton.jit
def fused_gemm(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, out_ptr,
    M, N,
    K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, ACTIVATION: tl.constexpr,
    GATED: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The same for more rows on tensor cores, without the norm."""
    n, m = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    dtype = out_ptr.dtype.element_ty
    in_n, in_m = n < N, m < M
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    pdl_sync(PDL)
    for start in range(0, K, DEPTH):
        k = start + tl.arange(0, DEPTH)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], in_m[:, None] & (k < K)[None, :], 0.0)
        offsets, in_tile = n[None, :].to(tl.int64) * K + k[:, None], in_n[None, :] & (k < K)[:, None]
        weight = tl.load(weight_ptr + offsets, in_tile, 0.0)
        if GATED:
            gate = tl.dot(x, weight, gate)
            weight = tl.load(weight_ptr + N * K + offsets, in_tile, 0.0)
        total = tl.dot(x, weight, total)
    if BIAS and GATED:
        gate += tl.load(bias_ptr + n, in_n, 0.0).to(tl.float32)[None, :]
        total += tl.load(bias_ptr + N + n, in_n, 0.0).to(tl.float32)[None, :]
    elif BIAS:
        total += tl.load(bias_ptr + n, in_n, 0.0).to(tl.float32)[None, :]
    total = total.to(dtype).to(tl.float32)
    if GATED:
        total *= activate(gate.to(dtype).to(tl.float32), ACTIVATION).to(dtype).to(tl.float32)
    else:
        total = activate(total, ACTIVATION)
    offsets, in_tile = m[:, None].to(tl.int64) * N + n[None, :], in_m[:, None] & in_n[None, :]
    if RESIDUAL:
        total = total.to(dtype).to(tl.float32) + tl.load(residual_ptr + offsets, in_tile, 0.0).to(tl.float32)
    tl.store(out_ptr + offsets, total.to(dtype), in_tile)


@triton.jit
def embed(
    ids_ptr, tokens_ptr, positions_ptr, out_ptr, first_ptr, last_ptr,
    scale,
    C: tl.constexpr, PADDED: tl.constexpr, POSITIONS: tl.constexpr, SCALED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Token embedding of each row, plus its position embedding."""
    dtype = out_ptr.dtype.element_ty
    pdl_sync(PDL)
    m, c = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    x = tl.load(tokens_ptr + tl.load(ids_ptr + m).to(tl.int64) * C + c, c < C, 0.0).to(tl.float32)
    if SCALED:
        x = (x * scale).to(dtype).to(tl.float32)
    if POSITIONS:
        position = tl.load(last_ptr) - tl.load(first_ptr + m)
        x += tl.load(positions_ptr + position * C + c, c < C, 0.0).to(tl.float32)
    tl.store(out_ptr + m * C + c, x.to(dtype), c < C)


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
    key_ptr, value_ptr, owners_ptr,
    m, g, t, visible, row_stride, head_stride, owners_stride,
    D: tl.constexpr, PADDED_D: tl.constexpr, BEAMS: tl.constexpr, OWNERS: tl.constexpr,
):  # fmt: skip
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
    qkv_ptr, key_ptr, value_ptr, out_ptr, owners_ptr, first_ptr, last_ptr, cos_ptr, sin_ptr,
    scale, qkv_stride, row_stride, head_stride, owners_stride,
    HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, BLOCK: tl.constexpr,
    BEAMS: tl.constexpr, SELF: tl.constexpr, OWNERS: tl.constexpr, ROTARY: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
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
        key_ptr, value_ptr, owners_ptr, m, g, t, visible, row_stride, head_stride, owners_stride, D, PADDED_D, BEAMS,
        OWNERS,
    )  # fmt: skip
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
                key_ptr, value_ptr, owners_ptr, m, g, later, later < last, row_stride, head_stride, owners_stride, D,
                PADDED_D, BEAMS, OWNERS,
            )  # fmt: skip
            max_score, denominator, accumulator = online_softmax(
                query, more_keys, more_values, later < last, max_score, denominator, accumulator
            )
        out_row = out_ptr + m * (HEADS * D) + (g * (HEADS // KV) + j) * D
        tl.store(out_row + d, (accumulator / denominator).to(dtype), in_head)


@triton.jit
def decode_cross_attention(
    query_ptr, key_ptr, value_ptr, out_ptr, lengths_ptr,
    scale, row_stride, head_stride,
    HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, BLOCK: tl.constexpr,
    BEAMS: tl.constexpr, ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
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
