"""The look of one more word: one query of each head at all that a row has said so far, or at a source."""
# ruff: noqa: PLR0913, PLR0915, PLR0917, SIM108  (a kernel is told every address and every size by its place)
# pyright: reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false, reportOptionalCall=false

from softlook.decode.captured.kernels import turn
from softlook.decode.captured.triton_or_not import tl, triton


@triton.jit
def turned(x, other, d, cos_at, sin_at, place, D: tl.constexpr):
    """Pairs i and i + D / 2 of a head x (D,), of which `other` has the other half first, by a position's angle."""
    half: tl.constexpr = D // 2
    cos, sin = (
        tl.load(cos_at + place * half + d % half, d < D, 0.0),
        tl.load(sin_at + place * half + d % half, d < D, 0.0),
    )
    return x * cos + tl.where(d < half, -other, other) * sin


@triton.jit
def found(
    key_at,
    value_at,
    paths_at,
    m,
    g,
    t,
    seen,
    row,
    head,
    path_row,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    WAYS: tl.constexpr,
    PATHS: tl.constexpr,
):
    """Keys and values in columns t of a row, (BLOCK, WIDTH) each."""
    d = tl.arange(0, WIDTH)
    if PATHS:
        rows = tl.load(paths_at + m * path_row + t, seen, 0).to(tl.int64)
    else:
        rows = t.to(tl.int64) * 0 + m // WAYS
    places = rows[:, None] * row + g * head + t[:, None] * D + d[None, :]
    both = seen[:, None] & (d < D)[None, :]
    return tl.load(key_at + places, both, 0.0), tl.load(value_at + places, both, 0.0)


@triton.jit
def mixed_in(query, keys, values, seen, most, weights, mixed):
    """What was seen so far, and a block more of it."""
    scores = tl.where(seen, tl.sum(keys.to(tl.float32) * query[None, :], 1), float("-inf"))
    higher = tl.maximum(most, tl.max(scores, 0))
    shares, fade = tl.exp(scores - higher), tl.exp(most - higher)
    weights = weights * fade + tl.sum(shares, 0)
    return higher, weights, mixed * fade + tl.sum(shares[:, None] * values.to(tl.float32), 0)


@triton.jit
def look(
    heads_at,
    key_at,
    value_at,
    out_at,
    paths_at,
    first_at,
    last_at,
    cos_at,
    sin_at,
    scale,
    heads_row,
    row,
    head,
    path_row,
    HEADS: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    WAYS: tl.constexpr,
    OWN: tl.constexpr,
    PATHS: tl.constexpr,
    TURN: tl.constexpr,
    EARLY: tl.constexpr,
):
    """What the queries of one row and one key head see.

    OWN: a look at one's own past, from `first` up to the new word, whose key and value are put where `last` says. Else
    across, at the first `last` words of a source that so many WAYS share. PATHS: who wrote each column of a row's past.
    """
    kind = out_at.dtype.element_ty
    m, g, d = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, WIDTH)
    there, other = d < D, (d + D // 2) % D
    first, last = 0, 0
    if OWN:
        first, last = tl.load(first_at + m).to(tl.int32), tl.load(last_at).to(tl.int32)
    else:
        last = tl.load(last_at + m // WAYS).to(tl.int32)
    begin = first // BLOCK * BLOCK
    t = begin + tl.arange(0, BLOCK)
    seen = (t >= first) & (t < last)
    keys, values = found(key_at, value_at, paths_at, m, g, t, seen, row, head, path_row, D, WIDTH, WAYS, PATHS)
    turn(EARLY)
    if OWN:
        new_at = heads_at + m * heads_row + (HEADS + g) * D
        key, value = tl.load(new_at + d, there, 0.0), tl.load(new_at + KV * D + d, there, 0.0)
        if TURN:
            swapped = tl.load(new_at + other, there, 0.0).to(tl.float32)
            key = turned(key.to(tl.float32), swapped, d, cos_at, sin_at, last - first, D).to(kind)
        tl.store(key_at + m * row + g * head + last * D + d, key, there)
        tl.store(value_at + m * row + g * head + last * D + d, value, there)
        own_key, own_value = key.to(tl.float32), value.to(tl.float32)
    for j in tl.static_range(HEADS // KV):
        query_at = heads_at + m * heads_row + (g * (HEADS // KV) + j) * D
        query = tl.load(query_at + d, there, 0.0).to(tl.float32)
        if TURN:
            swapped = tl.load(query_at + other, there, 0.0).to(tl.float32)
            query = turned(query, swapped, d, cos_at, sin_at, last - first, D).to(kind).to(tl.float32)
        query *= scale
        if OWN:
            most = tl.sum(query * own_key, 0)
            weights, mixed = most * 0.0 + 1.0, own_value
        else:
            most = tl.sum(query * 0.0, 0) - float("inf")
            weights, mixed = tl.sum(query * 0.0, 0), query * 0.0
        most, weights, mixed = mixed_in(query, keys, values, seen, most, weights, mixed)
        for start in range(begin + BLOCK, last, BLOCK):
            later = start + tl.arange(0, BLOCK)
            more_keys, more_values = found(
                key_at, value_at, paths_at, m, g, later, later < last, row, head, path_row, D, WIDTH, WAYS, PATHS
            )
            most, weights, mixed = mixed_in(query, more_keys, more_values, later < last, most, weights, mixed)
        out_row = out_at + m * (HEADS * D) + (g * (HEADS // KV) + j) * D
        tl.store(out_row + d, (mixed / weights).to(kind), there)


@triton.jit
def look_across(
    query_at,
    key_at,
    value_at,
    out_at,
    lengths_at,
    scale,
    row,
    head,
    HEADS: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    WAYS: tl.constexpr,
    ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """What all ways of one sequence see in their source through one key head: it is fetched once, for matrix units."""
    kind = out_at.dtype.element_ty
    each: tl.constexpr = HEADS // KV
    n, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r, d = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    last = tl.load(lengths_at + n).to(tl.int32)
    places = ((n * WAYS + r // each) * HEADS + g * each + r % each)[:, None] * D + d[None, :]
    there = (r < WAYS * each)[:, None] & (d < D)[None, :]
    turn(EARLY)
    query = tl.load(query_at + places, there, 0.0)
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    weights, mixed = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, last, BLOCK):
        t = start + tl.arange(0, BLOCK)
        source = n * row + g * head + t[:, None] * D + d[None, :]
        both = (t < last)[:, None] & (d < D)[None, :]
        keys, values = tl.load(key_at + source, both, 0.0), tl.load(value_at + source, both, 0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where((t < last)[None, :], scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        shares, fade = tl.exp(scores - higher[:, None]), tl.exp(most - higher)
        weights = weights * fade + tl.sum(shares, 1)
        mixed = mixed * fade[:, None] + tl.dot(shares.to(kind), values, input_precision="ieee")
        most = higher
    tl.store(out_at + places, (mixed / weights[:, None]).to(kind), there)
