"""Triton kernels of attention between short sequences: one program holds the whole map of a head.

No statistic is saved for the backward pass, which computes the weights again. Dropout is a function of a seed and the
index of a weight, so that both passes drop the same ones.
"""
# ruff: noqa: PLR0913, PLR0917  (kernels take pointers and sizes as positional arguments)
# pyright: reportMissingImports=false, reportInvalidTypeForm=false, reportOptionalCall=false

from typing import no_type_check  # shape checks in tests would wrap the functions that Triton compiles

from softlook.ops.backends.look_kernels import LOG2E, load_block, tl, triton


@triton.jit
@no_type_check
def short_weights(q, k, S, scale, PRECISION: tl.constexpr):
    """The attention weights of all queries of a head."""
    cols = tl.arange(0, k.shape[0])[None, :]
    x = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2E)
    x = tl.where(cols < S, x, float("-inf"))
    p = tl.exp2(x - tl.max(x, 1)[:, None])
    return p / tl.sum(p, 1)[:, None]


@triton.jit
@no_type_check
def keep_factor(seed, bh, dropout, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    """What each weight is multiplied by: 0 where it is dropped."""
    index = tl.arange(0, BLOCK_T)[:, None] * BLOCK_S + tl.arange(0, BLOCK_S)[None, :]
    return tl.where(tl.rand(tl.load(seed) + bh, index) >= dropout, 1 / (1 - dropout), 0.0)


@triton.jit
@no_type_check
def store_block(base, block, stride, count, width):
    """Write the first `count` vectors of a block."""
    rows, d = tl.arange(0, block.shape[0])[:, None], tl.arange(0, block.shape[1])[None, :]
    tl.store(base + rows * stride + d, block.to(base.dtype.element_ty), (rows < count) & (d < width))


@triton.jit
@no_type_check
def short_forward(
    query, key, value, output, seed, strides, sizes, scale, dropout,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The output of one head of one sequence."""
    H, T, S = sizes
    bh = tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    qb, qh, qt, kb, kh, ks, vb, vh, vs, yb, yh, yt = strides
    q = load_block(query + b * qb + h * qh, 0, qt, T, D, BLOCK_T, BLOCK_D, True)
    k = load_block(key + b * kb + h * kh, 0, ks, S, D, BLOCK_S, BLOCK_D, True)
    v = load_block(value + b * vb + h * vh, 0, vs, S, D, BLOCK_S, BLOCK_D, True)
    p = short_weights(q, k, S, scale, PRECISION)
    if DROPS:
        p = p * keep_factor(seed, bh, dropout, BLOCK_T, BLOCK_S)
    store_block(output + b * yb + h * yh, tl.dot(p.to(v.dtype), v, input_precision=PRECISION), yt, T, D)


@triton.jit
@no_type_check
def short_backward(
    query, key, value, grad, grad_query, grad_key, grad_value, seed, strides, sizes, scale, dropout,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of one head of one sequence."""
    H, T, S = sizes
    bh = tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    qb, qh, qt, kb, kh, ks, vb, vh, vs, gb, gh, gt, gqb, gqh, gqt, gkb, gkh, gks, gvb, gvh, gvs = strides
    q = load_block(query + b * qb + h * qh, 0, qt, T, D, BLOCK_T, BLOCK_D, True)
    k = load_block(key + b * kb + h * kh, 0, ks, S, D, BLOCK_S, BLOCK_D, True)
    v = load_block(value + b * vb + h * vh, 0, vs, S, D, BLOCK_S, BLOCK_D, True)
    g = load_block(grad + b * gb + h * gh, 0, gt, T, D, BLOCK_T, BLOCK_D, True)
    p = short_weights(q, k, S, scale, PRECISION)
    kept, grad_kept = p, tl.dot(g, tl.trans(v), input_precision=PRECISION)
    if DROPS:
        factor = keep_factor(seed, bh, dropout, BLOCK_T, BLOCK_S)
        kept, grad_kept = p * factor, grad_kept * factor
    gv = tl.dot(tl.trans(kept).to(g.dtype), g, input_precision=PRECISION)
    store_block(grad_value + b * gvb + h * gvh, gv, gvs, S, D)
    grad_scores = p * (grad_kept - tl.sum(p * grad_kept, 1)[:, None]) * scale
    gq = tl.dot(grad_scores.to(k.dtype), k, input_precision=PRECISION)
    store_block(grad_query + b * gqb + h * gqh, gq, gqt, T, D)
    gk = tl.dot(tl.trans(grad_scores).to(q.dtype), q, input_precision=PRECISION)
    store_block(grad_key + b * gkb + h * gkh, gk, gks, S, D)
