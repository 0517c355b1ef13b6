"""Triton kernels of one decoding step: fused norms, matrix products, embedding and greedy sampling.

With few rows a GPU only reads weights, and every kernel launch costs time. Values are rounded where the PyTorch modules
round them, so that the same tokens result. Without Triton the kernels can be imported, but not run.
"""
# pyright: reportMissingImports=false
# ruff: noqa: PLR0913, PLR0917  (kernels take pointers and sizes as positional arguments)
# pyright: reportInvalidTypeForm=false, reportOptionalCall=false

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
    x_ptr,
    norm_ptr,
    shift_ptr,
    out_ptr,
    eps,
    K: tl.constexpr,
    PADDED: tl.constexpr,
    NORM: tl.constexpr,
    SHIFT: tl.constexpr,
    PDL: tl.constexpr,
):
    """Norm of each row."""
    m, k = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    in_range = k < K
    weight = tl.load(norm_ptr + k, in_range, 0.0).to(tl.float32)
    shift = weight * 0.0
    if SHIFT:
        shift = tl.load(shift_ptr + k, in_range, 0.0).to(tl.float32)
    pdl_sync(PDL)
    x = tl.load(x_ptr + m * K + k, in_range, 0.0).to(tl.float32)
    x = normalize(x, in_range, weight, shift, eps, K, NORM)
    tl.store(out_ptr + m * K + k, x.to(out_ptr.dtype.element_ty), in_range)


@triton.jit
def add_norm(
    x_ptr,
    residual_ptr,
    norm_ptr,
    shift_ptr,
    out_ptr,
    eps,
    K: tl.constexpr,
    PADDED: tl.constexpr,
    NORM: tl.constexpr,
    SHIFT: tl.constexpr,
    PDL: tl.constexpr,
):
    """Norm of each row plus its residual."""
    m, k = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    dtype = out_ptr.dtype.element_ty
    in_range = k < K
    weight = tl.load(norm_ptr + k, in_range, 0.0).to(tl.float32)
    shift = weight * 0.0
    if SHIFT:
        shift = tl.load(shift_ptr + k, in_range, 0.0).to(tl.float32)
    pdl_sync(PDL)
    x = tl.load(x_ptr + m * K + k, in_range, 0.0).to(tl.float32)
    x += tl.load(residual_ptr + m * K + k, in_range, 0.0).to(tl.float32)
    x = normalize(x.to(dtype).to(tl.float32), in_range, weight, shift, eps, K, NORM)
    tl.store(out_ptr + m * K + k, x.to(dtype), in_range)


@triton.jit
def fused_gemv(
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    norm_ptr,
    shift_ptr,
    out_ptr,
    M,
    N,
    eps,
    K: tl.constexpr,
    PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
    NORM: tl.constexpr,
    SHIFT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
):
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
        gate_weight = weight
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
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    out_ptr,
    M,
    N,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
):
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
    ids_ptr,
    tokens_ptr,
    positions_ptr,
    out_ptr,
    first_ptr,
    last_ptr,
    scale,
    C: tl.constexpr,
    PADDED: tl.constexpr,
    POSITIONS: tl.constexpr,
    SCALED: tl.constexpr,
    PDL: tl.constexpr,
):
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
def scan_vocab(
    logits_ptr,
    block_max_ptr,
    part_ptr,
    V,
    BLOCKS,
    PARTS,
    BLOCK: tl.constexpr,
    PART_BLOCKS: tl.constexpr,
    PDL: tl.constexpr,
):
    """The maximum of each BLOCK logits; and for PART_BLOCKS blocks their maximum and the sum of exp below it."""
    pdl_sync(PDL)
    m, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    block = part * PART_BLOCKS + tl.arange(0, PART_BLOCKS)
    token = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    logits = tl.load(logits_ptr + m * V + token, token < V, float("-inf")).to(tl.float32)
    block_max = tl.max(logits, 1)
    tl.store(block_max_ptr + m * BLOCKS + block, block_max, block < BLOCKS)
    max_logit = tl.max(block_max, 0)
    # Masked tokens add nothing, even if all are masked; NaN and +inf make the sum NaN, as intended.
    total = tl.sum(tl.sum(tl.where(logits == float("-inf"), 0.0, tl.exp(logits - max_logit)), 1), 0)
    tl.store(part_ptr + (m * PARTS + part) * 2, max_logit)
    tl.store(part_ptr + (m * PARTS + part) * 2 + 1, total)


@triton.jit
def greedy(
    logits_ptr,
    block_max_ptr,
    part_ptr,
    ids_ptr,
    history_ptr,
    logprobs_ptr,
    step_ptr,
    V,
    BLOCKS,
    PARTS,
    ROWS,
    BLOCK: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
    PADDED_PARTS: tl.constexpr,
    PDL: tl.constexpr,
):
    """The most likely token of each row, the first of equals, and its log-probability, written to ids and history."""
    pdl_sync(PDL)
    m, step = tl.program_id(0).to(tl.int64), tl.load(step_ptr)
    b = tl.arange(0, PADDED_BLOCKS)
    block_max = tl.load(block_max_ptr + m * BLOCKS + b, b < BLOCKS, float("-inf"))
    max_logit = tl.max(block_max, 0)
    block = tl.min(tl.where(block_max == max_logit, b, PADDED_BLOCKS - 1), 0)
    token = block * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + m * V + token, token < V, float("-inf")).to(tl.float32)
    id = tl.min(tl.where(logits == max_logit, token, V - 1), 0).to(tl.int64)
    p = tl.arange(0, PADDED_PARTS)
    part_max = tl.load(part_ptr + (m * PARTS + p) * 2, p < PARTS, float("-inf"))
    part_sum = tl.load(part_ptr + (m * PARTS + p) * 2 + 1, p < PARTS, 0.0)
    total = tl.sum(tl.where(p < PARTS, part_sum * tl.exp(part_max - max_logit), 0.0), 0)
    tl.store(ids_ptr + m, id)
    tl.store(history_ptr + step * ROWS + m, id)
    tl.store(logprobs_ptr + step * ROWS + m, -tl.log(total))
