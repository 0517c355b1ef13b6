"""A word more of a beam search in two kernels: the best words of each way, and what becomes of each sequence.

Of equals the first one is taken, so what is found does not depend on who was faster.
"""
# ruff: noqa: PLR0913, PLR0915, PLR0917  (a kernel is told every address and every size by its place)
# pyright: reportInvalidTypeForm=false, reportOptionalCall=false

from softlook.decode.captured.kernels import turn
from softlook.decode.captured.triton_or_not import tl, triton


@triton.jit
def best_words(
    scores_at,
    best_at,
    part_at,
    chances_at,
    words_at,
    V,
    BLOCKS,
    PARTS,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    MOST_BLOCKS: tl.constexpr,
    MOST_PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The best WIDTH words of each row, best first, and their log-probabilities, by what a survey found.

    The best word stands in the block with the best best. When it is taken, its block has another best.
    """
    turn(EARLY)
    m, b, p = tl.program_id(0).to(tl.int64), tl.arange(0, MOST_BLOCKS), tl.arange(0, MOST_PARTS)
    best = tl.load(best_at + m * BLOCKS + b, b < BLOCKS, float("-inf"))
    most = tl.max(best, 0)
    tops = tl.load(part_at + (m * PARTS + p) * 2, p < PARTS, float("-inf"))
    totals = tl.load(part_at + (m * PARTS + p) * 2 + 1, p < PARTS, 0.0)
    total = tl.log(tl.sum(tl.where(p < PARTS, totals * tl.exp(tops - most), 0.0), 0)) + most
    taken = tl.full((MOST_BLOCKS,), -1, tl.int32)
    for i in range(WIDTH):
        score = tl.max(best, 0)
        block = tl.min(tl.where(best == score, b, MOST_BLOCKS - 1), 0)
        after = tl.max(tl.where(b == block, taken, -1), 0)
        word = block * BLOCK + tl.arange(0, BLOCK)
        there = tl.load(scores_at + m * V + word, word < V, float("-inf")).to(tl.float32)
        id = tl.min(tl.where((there == score) & (word > after) & (word < V), word, V - 1), 0)
        tl.store(chances_at + m * WIDTH + i, score - total)
        tl.store(words_at + m * WIDTH + i, id.to(tl.int64))
        left = tl.max(tl.where((there < score) | ((there == score) & (word > id)), there, float("-inf")), 0)
        best = tl.where(b == block, left, best)
        taken = tl.where(b == block, tl.where(left == score, id, -1), taken)


@triton.jit
def is_end(word, ends_at, ENDS: tl.constexpr):
    """Is it one of the ends?"""
    found = word < -1
    for e in tl.static_range(ENDS):
        found = found | (word == tl.load(ends_at + e))
    return found


@triton.jit
def pick(values, lane, at):
    """The value in one place, as a number."""
    return tl.sum(tl.where(lane == at, values, values * 0), 0)


@triton.jit
def advance(
    chances_at,
    words_at,
    from_at,
    totals_at,
    parents_at,
    said_at,
    own_at,
    found_at,
    found_length_at,
    found_beam_at,
    found_word_at,
    found_own_at,
    over_at,
    ids_at,
    paths_at,
    divisors_at,
    kindest_at,
    ends_at,
    limits_at,
    step_at,
    L,
    COLUMNS,
    FROM: tl.constexpr,
    K: tl.constexpr,
    W: tl.constexpr,
    WIDTH: tl.constexpr,
    ENDS: tl.constexpr,
    LANES: tl.constexpr,
    PLACES: tl.constexpr,
    WAYS: tl.constexpr,
    BLOCK: tl.constexpr,
    MOVE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """What becomes of one sequence: FROM ways before, K behind; of each there are the best W words.

    The best WIDTH of all of them, in order: those that do not end go on until there are K; those that are whole, and
    among the best K, take their places among the K that were found. NaN in a sequence that is not over stays in its
    totals, where the host sees it. LANES hold all words, PLACES those found and new
    ones, WAYS the ways. With MOVE, who wrote the past of each way is copied from where the way came from.
    """
    turn(EARLY)
    n = tl.program_id(0).to(tl.int64)
    length, shortest, longest = tl.load(step_at), tl.load(limits_at), tl.load(limits_at + 1)
    divisor = tl.load(divisors_at + length)
    lane, place, way = tl.arange(0, LANES), tl.arange(0, PLACES), tl.arange(0, WAYS)
    there = lane < FROM * W
    chances = tl.load(chances_at + n * FROM * W + lane, there, float("-inf"))
    words = tl.load(words_at + n * FROM * W + lane, there, -1)
    before = tl.load(from_at + n * FROM + lane // W, there, float("-inf"))
    out = (is_end(words, ends_at, ENDS) & (length <= shortest)) | (before == float("-inf"))
    totals = tl.where(there, before + tl.where(out, float("-inf"), chances), float("-inf"))
    broken = tl.sum((totals != totals).to(tl.int32), 0)
    free = there
    was_over = tl.load(over_at + n).to(tl.int32)
    one = place < K
    found = tl.load(found_at + n * K + place, one, float("-inf"))
    found_length = tl.load(found_length_at + n * K + place, one, 0)
    found_beam = tl.load(found_beam_at + n * K + place, one, 0)
    found_word = tl.load(found_word_at + n * K + place, one, 0)
    found_own = tl.load(found_own_at + n * K + place, one, 0.0)
    kept = tl.zeros((WAYS,), tl.int32)
    scores = tl.full((WAYS,), float("-inf"), tl.float32)
    count = broken * 0
    for i in range(WIDTH):
        total = tl.max(tl.where(free, totals, float("-inf")), 0)
        at = tl.min(tl.where(free & (totals == total), lane, FROM * W - 1), 0)
        free = free & (lane != at)
        word, chance = pick(words, lane, at), tl.max(tl.where(lane == at, chances, float("-inf")), 0)
        ends = is_end(word, ends_at, ENDS)
        goes = (ends == 0) & (count < K)
        kept = tl.where((goes & (way == count)) | (i == 0), at, kept)
        scores = tl.where(goes & (way == count), total, scores)
        count += goes.to(tl.int32)
        whole = (ends | (length == longest)) & (total > float("-inf")) & (was_over == 0) & (i < K)
        score = tl.where(whole, total.to(tl.float64) / divisor, float("-inf"))
        new = place == K + i
        found = tl.where(new, score, found)
        found_length = tl.where(new, length, found_length)
        found_beam = tl.where(new, (at // W).to(tl.int64), found_beam)
        found_word = tl.where(new, word, found_word)
        found_own = tl.where(new, chance, found_own)
    left, worst = place >= 0, tl.max(found, 0)
    for i in range(K):
        worst = tl.max(tl.where(left, found, float("-inf")), 0)
        at = tl.min(tl.where(left & (found == worst), place, PLACES - 1), 0)
        left = left & (place != at)
        tl.store(found_at + n * K + i, worst)
        tl.store(found_length_at + n * K + i, pick(found_length, place, at))
        tl.store(found_beam_at + n * K + i, pick(found_beam, place, at))
        tl.store(found_word_at + n * K + i, pick(found_word, place, at))
        tl.store(found_own_at + n * K + i, tl.max(tl.where(place == at, found_own, float("-inf")), 0))
    best = tl.max(scores, 0).to(tl.float64)
    is_over = (best == float("-inf")) | (best / tl.load(kindest_at + length) <= worst)
    tl.store(over_at + n, ((was_over != 0) | is_over).to(tl.int8))
    line = (n * L + length - 1) * K
    for k in range(K):
        at = tl.sum(tl.where(way == k, kept, 0), 0)
        score = tl.max(tl.where(way == k, scores, float("-inf")), 0)
        word = pick(words, lane, at)
        tl.store(totals_at + n * K + k, tl.where((broken > 0) & (was_over == 0), float("nan"), score))
        tl.store(parents_at + line + k, (at // W).to(tl.int64))
        tl.store(said_at + line + k, word)
        tl.store(own_at + line + k, tl.max(tl.where(lane == at, chances, float("-inf")), 0))
        tl.store(ids_at + n * K + k, word)
    if MOVE:
        start = n * K * COLUMNS
        for first in range(0, COLUMNS, BLOCK):
            column = first + tl.arange(0, BLOCK)
            inside = (way < K)[:, None] & (column < COLUMNS)[None, :]
            rows = start + (kept // W)[:, None] * COLUMNS + column[None, :]
            past = tl.load(paths_at + rows, inside, 0)
            tl.debug_barrier()
            tl.store(paths_at + start + way[:, None] * COLUMNS + column[None, :], past, inside)


@triton.jit
def backwards(
    rows_at,
    parents_at,
    words_at,
    own_at,
    length_at,
    beam_at,
    word_at,
    last_at,
    said_at,
    chances_at,
    L,
    OUT,
    K: tl.constexpr,
):
    """The words of one whole sequence and their log-probabilities, from the last to the first."""
    out = tl.program_id(0).to(tl.int64)
    n = tl.load(rows_at + out // K)
    row, said_at, chances_at = n * K + out % K, said_at + out * OUT, chances_at + out * OUT
    length, beam = tl.load(length_at + row), tl.load(beam_at + row)
    if length > 0:
        tl.store(said_at + length - 1, tl.load(word_at + row).to(tl.int32))
        tl.store(chances_at + length - 1, tl.load(last_at + row))
    for back in range(2, length + 1):
        place = (n * L + length - back) * K + beam
        tl.store(said_at + length - back, tl.load(words_at + place).to(tl.int32))
        tl.store(chances_at + length - back, tl.load(own_at + place))
        beam = tl.load(parents_at + place)
