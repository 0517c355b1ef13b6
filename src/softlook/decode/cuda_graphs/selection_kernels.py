"""Triton kernels that select tokens: greedy decoding and beam search.

Of equal values the first is taken, so results do not depend on the order of execution.
"""
# ruff: noqa: PLR0913, PLR0915, PLR0917  (kernels take pointers and sizes as positional arguments)
# pyright: reportInvalidTypeForm=false, reportOptionalCall=false

from softlook.decode.cuda_graphs.kernels import pdl_sync, tl, triton


@triton.jit
def scan_vocab(
    logits_ptr, block_max_ptr, part_ptr,
    V, BLOCKS, PARTS,
    BLOCK: tl.constexpr, PART_BLOCKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
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
    logits_ptr, block_max_ptr, part_ptr, ids_ptr, history_ptr, logprobs_ptr, step_ptr,
    V, BLOCKS, PARTS, ROWS,
    BLOCK: tl.constexpr, PADDED_BLOCKS: tl.constexpr, PADDED_PARTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
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


@triton.jit
def top_tokens(
    logits_ptr, block_max_ptr, part_ptr, logprobs_ptr, tokens_ptr,
    V, BLOCKS, PARTS,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PADDED_BLOCKS: tl.constexpr, PADDED_PARTS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The WIDTH most likely tokens of each row, best first, and their log-probabilities, after `scan_vocab`.

    The best token lies in the block with the largest maximum; when it is taken, the maximum of its block changes.
    """
    pdl_sync(PDL)
    m, b, p = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED_BLOCKS), tl.arange(0, PADDED_PARTS)
    block_max = tl.load(block_max_ptr + m * BLOCKS + b, b < BLOCKS, float("-inf"))
    max_logit = tl.max(block_max, 0)
    part_max = tl.load(part_ptr + (m * PARTS + p) * 2, p < PARTS, float("-inf"))
    part_sum = tl.load(part_ptr + (m * PARTS + p) * 2 + 1, p < PARTS, 0.0)
    log_sum = tl.log(tl.sum(tl.where(p < PARTS, part_sum * tl.exp(part_max - max_logit), 0.0), 0)) + max_logit
    taken = tl.full((PADDED_BLOCKS,), -1, tl.int32)
    for i in range(WIDTH):
        score = tl.max(block_max, 0)
        block = tl.min(tl.where(block_max == score, b, PADDED_BLOCKS - 1), 0)
        after = tl.max(tl.where(b == block, taken, -1), 0)
        token = block * BLOCK + tl.arange(0, BLOCK)
        block_logits = tl.load(logits_ptr + m * V + token, token < V, float("-inf")).to(tl.float32)
        id = tl.min(tl.where((block_logits == score) & (token > after) & (token < V), token, V - 1), 0)
        tl.store(logprobs_ptr + m * WIDTH + i, score - log_sum)
        tl.store(tokens_ptr + m * WIDTH + i, id.to(tl.int64))
        next_max = tl.max(
            tl.where((block_logits < score) | ((block_logits == score) & (token > id)), block_logits, float("-inf")), 0
        )
        block_max = tl.where(b == block, next_max, block_max)
        taken = tl.where(b == block, tl.where(next_max == score, id, -1), taken)


@triton.jit
def is_eos_token(token, eos_ptr, NUM_EOS: tl.constexpr):
    """Whether a token ends a sequence."""
    found = token < -1
    for e in tl.static_range(NUM_EOS):
        found = found | (token == tl.load(eos_ptr + e))
    return found


@triton.jit
def value_at(values, lane, index):
    """One value of a vector, as a scalar."""
    return tl.sum(tl.where(lane == index, values, values * 0), 0)


@triton.jit
def advance_beams(
    logprobs_ptr, tokens_ptr, old_scores_ptr, scores_ptr, parents_ptr, token_history_ptr, logprob_history_ptr,
    finished_ptr, finished_length_ptr, finished_beam_ptr, finished_token_ptr, finished_logprob_ptr, done_ptr, ids_ptr,
    owners_ptr, divisors_ptr, final_divisors_ptr, eos_ptr, limits_ptr, step_ptr,
    L, COLUMNS,
    K_IN: tl.constexpr, K: tl.constexpr, W: tl.constexpr, WIDTH: tl.constexpr, NUM_EOS: tl.constexpr,
    LANES: tl.constexpr, SLOTS: tl.constexpr, BEAMS: tl.constexpr, BLOCK: tl.constexpr, REORDER: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One beam search step of one sequence: K_IN beams before, K after, with the W most likely tokens of each.

    Of the best WIDTH candidates, in order, those without an end-of-sequence token become beams until there are K; those
    that are finished, and among the best K, are merged into the K finished hypotheses. NaN in a running sequence stays
    in its scores, where the host sees it. LANES hold all candidates, SLOTS old and new hypotheses, BEAMS the beams.
    With REORDER, the cache owners of each beam are copied from its parent.
    """
    pdl_sync(PDL)
    n = tl.program_id(0).to(tl.int64)
    length, min_length, max_length = tl.load(step_ptr), tl.load(limits_ptr), tl.load(limits_ptr + 1)
    divisor = tl.load(divisors_ptr + length)
    lane, slot, beam = tl.arange(0, LANES), tl.arange(0, SLOTS), tl.arange(0, BEAMS)
    in_range = lane < K_IN * W
    logprobs = tl.load(logprobs_ptr + n * K_IN * W + lane, in_range, float("-inf"))
    tokens = tl.load(tokens_ptr + n * K_IN * W + lane, in_range, -1)
    before = tl.load(old_scores_ptr + n * K_IN + lane // W, in_range, float("-inf"))
    is_out = (is_eos_token(tokens, eos_ptr, NUM_EOS) & (length <= min_length)) | (before == float("-inf"))
    totals = tl.where(in_range, before + tl.where(is_out, float("-inf"), logprobs), float("-inf"))
    num_nan = tl.sum((totals != totals).to(tl.int32), 0)
    free = in_range
    was_done = tl.load(done_ptr + n).to(tl.int32)
    is_old = slot < K
    finished = tl.load(finished_ptr + n * K + slot, is_old, float("-inf"))
    finished_length = tl.load(finished_length_ptr + n * K + slot, is_old, 0)
    finished_beam = tl.load(finished_beam_ptr + n * K + slot, is_old, 0)
    finished_token = tl.load(finished_token_ptr + n * K + slot, is_old, 0)
    finished_logprob = tl.load(finished_logprob_ptr + n * K + slot, is_old, 0.0)
    kept = tl.zeros((BEAMS,), tl.int32)
    scores = tl.full((BEAMS,), float("-inf"), tl.float32)
    count = num_nan * 0
    for i in range(WIDTH):
        total = tl.max(tl.where(free, totals, float("-inf")), 0)
        index = tl.min(tl.where(free & (totals == total), lane, K_IN * W - 1), 0)
        free = free & (lane != index)
        token, logprob = value_at(tokens, lane, index), tl.max(tl.where(lane == index, logprobs, float("-inf")), 0)
        is_eos = is_eos_token(token, eos_ptr, NUM_EOS)
        is_kept = (is_eos == 0) & (count < K)
        kept = tl.where((is_kept & (beam == count)) | (i == 0), index, kept)
        scores = tl.where(is_kept & (beam == count), total, scores)
        count += is_kept.to(tl.int32)
        is_finished = (is_eos | (length == max_length)) & (total > float("-inf")) & (was_done == 0) & (i < K)
        score = tl.where(is_finished, total.to(tl.float64) / divisor, float("-inf"))
        new = slot == K + i
        finished = tl.where(new, score, finished)
        finished_length = tl.where(new, length, finished_length)
        finished_beam = tl.where(new, (index // W).to(tl.int64), finished_beam)
        finished_token = tl.where(new, token, finished_token)
        finished_logprob = tl.where(new, logprob, finished_logprob)
    left, worst = slot >= 0, tl.max(finished, 0)
    for i in range(K):
        worst = tl.max(tl.where(left, finished, float("-inf")), 0)
        index = tl.min(tl.where(left & (finished == worst), slot, SLOTS - 1), 0)
        left = left & (slot != index)
        tl.store(finished_ptr + n * K + i, worst)
        tl.store(finished_length_ptr + n * K + i, value_at(finished_length, slot, index))
        tl.store(finished_beam_ptr + n * K + i, value_at(finished_beam, slot, index))
        tl.store(finished_token_ptr + n * K + i, value_at(finished_token, slot, index))
        tl.store(finished_logprob_ptr + n * K + i, tl.max(tl.where(slot == index, finished_logprob, float("-inf")), 0))
    scores = tl.where(was_done == 0, scores, float("-inf"))
    best = tl.max(scores, 0).to(tl.float64)
    is_done = (best == float("-inf")) | (best / tl.load(final_divisors_ptr + length) <= worst)
    tl.store(done_ptr + n, ((was_done != 0) | is_done).to(tl.int8))
    history = (n * L + length - 1) * K
    for k in range(K):
        index = tl.sum(tl.where(beam == k, kept, 0), 0)
        score = tl.max(tl.where(beam == k, scores, float("-inf")), 0)
        token = value_at(tokens, lane, index)
        tl.store(scores_ptr + n * K + k, tl.where((num_nan > 0) & (was_done == 0), float("nan"), score))
        tl.store(parents_ptr + history + k, (index // W).to(tl.int64))
        tl.store(token_history_ptr + history + k, token)
        tl.store(logprob_history_ptr + history + k, tl.max(tl.where(lane == index, logprobs, float("-inf")), 0))
        tl.store(ids_ptr + n * K + k, token)
    if REORDER:
        start = n * K * COLUMNS
        for first in range(0, COLUMNS, BLOCK):
            column = first + tl.arange(0, BLOCK)
            in_tile = (beam < K)[:, None] & (column < COLUMNS)[None, :]
            rows = start + (kept // W)[:, None] * COLUMNS + column[None, :]
            owners = tl.load(owners_ptr + rows, in_tile, 0)
            tl.debug_barrier()
            tl.store(owners_ptr + start + beam[:, None] * COLUMNS + column[None, :], owners, in_tile)


@triton.jit
def backtrace(
    rows_ptr, parents_ptr, token_history_ptr, logprob_history_ptr, length_ptr, beam_ptr, last_token_ptr,
    last_logprob_ptr, out_tokens_ptr, out_logprobs_ptr,
    L, OUT,
    K: tl.constexpr,
):  # fmt: skip
    """Tokens and log-probabilities of one finished hypothesis, from the last token to the first."""
    out = tl.program_id(0).to(tl.int64)
    n = tl.load(rows_ptr + out // K)
    row, out_tokens_ptr, out_logprobs_ptr = n * K + out % K, out_tokens_ptr + out * OUT, out_logprobs_ptr + out * OUT
    length, beam = tl.load(length_ptr + row), tl.load(beam_ptr + row)
    if length > 0:
        tl.store(out_tokens_ptr + length - 1, tl.load(last_token_ptr + row).to(tl.int32))
        tl.store(out_logprobs_ptr + length - 1, tl.load(last_logprob_ptr + row))
    for back in range(2, length + 1):
        offset = (n * L + length - back) * K + beam
        tl.store(out_tokens_ptr + length - back, tl.load(token_history_ptr + offset).to(tl.int32))
        tl.store(out_logprobs_ptr + length - back, tl.load(logprob_history_ptr + offset))
        beam = tl.load(parents_ptr + offset)
