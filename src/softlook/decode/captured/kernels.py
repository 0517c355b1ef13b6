"""One more word for a few rows, in as few kernels as it takes: each does what would be three or four otherwise.

With few rows a GPU does nothing but read weights, and every kernel more is a wait. Numbers are rounded where the plain
modules round them, so that the same words come out.
"""
# ruff: noqa: PLR0913, PLR0917  (a kernel is told every address and every size by its place)
# pyright: reportInvalidTypeForm=false, reportOptionalCall=false

from softlook.decode.captured.triton_or_not import begin_the_next, tl, triton, wait_for_the_last


@triton.jit
def turn(EARLY: tl.constexpr):
    """Wait until the kernel before is done, and let the one behind begin: what it reads first does not change.

    EARLY kernels are started while the one before still works, and fetch their weights in the meantime. Before this
    they may only read what stays as it is for a whole step, and they write nothing.
    """
    if EARLY:
        wait_for_the_last()
        begin_the_next()


@triton.jit
def normed(x, there, weight, shift, eps, K: tl.constexpr, NORM: tl.constexpr):
    """A row x (K,), in single precision: what a norm makes of it."""
    if NORM == "layer":
        x = tl.where(there, x - tl.sum(x, 0) / K, 0.0)
    if NORM != "none":
        x = x * tl.rsqrt(tl.sum(x * x, 0) / K + eps) * weight + shift
    return x


@triton.jit
def bent(x, BEND: tl.constexpr):
    if BEND == "relu":
        x = tl.maximum(x, 0.0)
    elif BEND == "gelu":
        x = 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
    elif BEND == "gelu_tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x * tl.sigmoid(2.0 * inner)
    elif BEND == "silu":
        x = x * tl.sigmoid(x)
    return x


@triton.jit
def norm_rows(
    x_at,
    norm_at,
    shift_at,
    out_at,
    eps,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    NORM: tl.constexpr,
    SHIFT: tl.constexpr,
    EARLY: tl.constexpr,
):
    """A norm of each row."""
    m, k = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    there = k < K
    weight = tl.load(norm_at + k, there, 0.0).to(tl.float32)
    shift = weight * 0.0
    if SHIFT:
        shift = tl.load(shift_at + k, there, 0.0).to(tl.float32)
    turn(EARLY)
    x = tl.load(x_at + m * K + k, there, 0.0).to(tl.float32)
    x = normed(x, there, weight, shift, eps, K, NORM)
    tl.store(out_at + m * K + k, x.to(out_at.dtype.element_ty), there)


@triton.jit
def add_norm(
    x_at,
    residual_at,
    norm_at,
    shift_at,
    out_at,
    eps,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    NORM: tl.constexpr,
    SHIFT: tl.constexpr,
    EARLY: tl.constexpr,
):
    """A norm of each row and of what is added to it."""
    m, k = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    kind = out_at.dtype.element_ty
    there = k < K
    weight = tl.load(norm_at + k, there, 0.0).to(tl.float32)
    shift = weight * 0.0
    if SHIFT:
        shift = tl.load(shift_at + k, there, 0.0).to(tl.float32)
    turn(EARLY)
    x = tl.load(x_at + m * K + k, there, 0.0).to(tl.float32)
    x += tl.load(residual_at + m * K + k, there, 0.0).to(tl.float32)
    x = normed(x.to(kind).to(tl.float32), there, weight, shift, eps, K, NORM)
    tl.store(out_at + m * K + k, x.to(kind), there)


@triton.jit
def few_rows(
    x_at,
    weight_at,
    bias_at,
    residual_at,
    norm_at,
    shift_at,
    out_at,
    M,
    N,
    eps,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    NORM: tl.constexpr,
    SHIFT: tl.constexpr,
    BEND: tl.constexpr,
    GATED: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    EARLY: tl.constexpr,
):
    """out (M, N) = residual + bend(W norm(x) + b), or bend(gate) times the rest; each program has some columns.

    Weights are fetched first: while they are on their way, the kernel before ends, and the norm is worked out.
    """
    kind = out_at.dtype.element_ty
    n, k = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, WIDE)
    there_n, there = n < N, k < K
    places, both = n[:, None].to(tl.int64) * K + k[None, :], there_n[:, None] & there[None, :]
    weight = tl.load(weight_at + places, both, 0.0)
    gate_weight = weight
    if GATED:
        gate_weight = weight
        weight = tl.load(weight_at + N * K + places, both, 0.0)
    scale = tl.zeros((WIDE,), tl.float32)
    shift = scale
    if NORM != "none":
        scale = tl.load(norm_at + k, there, 0.0).to(tl.float32)
    if SHIFT:
        shift = tl.load(shift_at + k, there, 0.0).to(tl.float32)
    bias = tl.zeros((COLUMNS,), tl.float32)
    gate_bias = bias
    if BIAS:
        bias = tl.load(bias_at + n, there_n, 0.0).to(tl.float32)
    if BIAS and GATED:
        gate_bias = bias
        bias = tl.load(bias_at + N + n, there_n, 0.0).to(tl.float32)
    turn(EARLY)
    for m in range(M):
        x = tl.load(x_at + m * K + k, there, 0.0).to(tl.float32)
        added = bias
        if RESIDUAL:
            added = tl.load(residual_at + m * N + n, there_n, 0.0).to(tl.float32)
        x = normed(x, there, scale, shift, eps, K, NORM).to(kind).to(tl.float32)
        total = (tl.sum(weight.to(tl.float32) * x[None, :], 1) + bias).to(kind).to(tl.float32)
        if GATED:
            gate = (tl.sum(gate_weight.to(tl.float32) * x[None, :], 1) + gate_bias).to(kind).to(tl.float32)
            total *= bent(gate, BEND).to(kind).to(tl.float32)
        else:
            total = bent(total, BEND)
        if RESIDUAL:
            total = total.to(kind).to(tl.float32) + added
        tl.store(out_at + m * N + n, total.to(kind), there_n)


@triton.jit
def some_rows(
    x_at,
    weight_at,
    bias_at,
    residual_at,
    out_at,
    M,
    N,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEEP: tl.constexpr,
    BEND: tl.constexpr,
    GATED: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The same for more rows, by matrix units, without the norm."""
    n, m = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    kind = out_at.dtype.element_ty
    there_n, there_m = n < N, m < M
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    turn(EARLY)
    for start in range(0, K, DEEP):
        k = start + tl.arange(0, DEEP)
        x = tl.load(x_at + m[:, None] * K + k[None, :], there_m[:, None] & (k < K)[None, :], 0.0)
        places, both = n[None, :].to(tl.int64) * K + k[:, None], there_n[None, :] & (k < K)[:, None]
        weight = tl.load(weight_at + places, both, 0.0)
        if GATED:
            gate = tl.dot(x, weight, gate)
            weight = tl.load(weight_at + N * K + places, both, 0.0)
        total = tl.dot(x, weight, total)
    if BIAS and GATED:
        gate += tl.load(bias_at + n, there_n, 0.0).to(tl.float32)[None, :]
        total += tl.load(bias_at + N + n, there_n, 0.0).to(tl.float32)[None, :]
    elif BIAS:
        total += tl.load(bias_at + n, there_n, 0.0).to(tl.float32)[None, :]
    total = total.to(kind).to(tl.float32)
    if GATED:
        total *= bent(gate.to(kind).to(tl.float32), BEND).to(kind).to(tl.float32)
    else:
        total = bent(total, BEND)
    places, both = m[:, None].to(tl.int64) * N + n[None, :], there_m[:, None] & there_n[None, :]
    if RESIDUAL:
        total = total.to(kind).to(tl.float32) + tl.load(residual_at + places, both, 0.0).to(tl.float32)
    tl.store(out_at + places, total.to(kind), both)


@triton.jit
def enter(
    ids_at,
    tokens_at,
    places_at,
    out_at,
    first_at,
    last_at,
    factor,
    C: tl.constexpr,
    WIDE: tl.constexpr,
    PLACES: tl.constexpr,
    SCALED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The vector of each row's word, and of where it stands."""
    kind = out_at.dtype.element_ty
    turn(EARLY)
    m, c = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    x = tl.load(tokens_at + tl.load(ids_at + m).to(tl.int64) * C + c, c < C, 0.0).to(tl.float32)
    if SCALED:
        x = (x * factor).to(kind).to(tl.float32)
    if PLACES:
        place = tl.load(last_at) - tl.load(first_at + m)
        x += tl.load(places_at + place * C + c, c < C, 0.0).to(tl.float32)
    tl.store(out_at + m * C + c, x.to(kind), c < C)


@triton.jit
def survey(scores_at, best_at, part_at, V, BLOCKS, PARTS, BLOCK: tl.constexpr, MANY: tl.constexpr, EARLY: tl.constexpr):
    """The best score of each BLOCK words; and for MANY blocks the best of all, and the sum of exp beneath it."""
    turn(EARLY)
    m, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    block = part * MANY + tl.arange(0, MANY)
    word = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    scores = tl.load(scores_at + m * V + word, word < V, float("-inf")).to(tl.float32)
    best = tl.max(scores, 1)
    tl.store(best_at + m * BLOCKS + block, best, block < BLOCKS)
    most = tl.max(best, 0)
    # Words that are ruled out count nothing, even where all of these are; NaN and +inf make the sum NaN, as they shall.
    total = tl.sum(tl.sum(tl.where(scores == float("-inf"), 0.0, tl.exp(scores - most)), 1), 0)
    tl.store(part_at + (m * PARTS + part) * 2, most)
    tl.store(part_at + (m * PARTS + part) * 2 + 1, total)


@triton.jit
def say(
    scores_at,
    best_at,
    part_at,
    ids_at,
    said_at,
    chance_at,
    step_at,
    V,
    BLOCKS,
    PARTS,
    ROWS,
    BLOCK: tl.constexpr,
    MOST_BLOCKS: tl.constexpr,
    MOST_PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The likeliest word of each row, of equals the first, and its log-probability: written down, and read next."""
    turn(EARLY)
    m, step = tl.program_id(0).to(tl.int64), tl.load(step_at)
    b = tl.arange(0, MOST_BLOCKS)
    best = tl.load(best_at + m * BLOCKS + b, b < BLOCKS, float("-inf"))
    most = tl.max(best, 0)
    block = tl.min(tl.where(best == most, b, MOST_BLOCKS - 1), 0)
    word = block * BLOCK + tl.arange(0, BLOCK)
    scores = tl.load(scores_at + m * V + word, word < V, float("-inf")).to(tl.float32)
    id = tl.min(tl.where(scores == most, word, V - 1), 0).to(tl.int64)
    p = tl.arange(0, MOST_PARTS)
    tops = tl.load(part_at + (m * PARTS + p) * 2, p < PARTS, float("-inf"))
    totals = tl.load(part_at + (m * PARTS + p) * 2 + 1, p < PARTS, 0.0)
    total = tl.sum(tl.where(p < PARTS, totals * tl.exp(tops - most), 0.0), 0)
    tl.store(ids_at + m, id)
    tl.store(said_at + step * ROWS + m, id)
    tl.store(chance_at + step * ROWS + m, -tl.log(total))
