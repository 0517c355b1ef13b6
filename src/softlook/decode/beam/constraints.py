"""Constrained beam search: phrases that must appear (Post & Vilar 2018).

Dynamic beam allocation: at every step the beam is divided among hypotheses that have generated equally many tokens of
the phrases.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.beam.hypotheses import BeamSearchParams, BeamSelection, CandidateBatch, NextTokenScores, TopTokens

Item = TypeVar("Item")
MAX_PERMUTED = 4
"""Maximum number of phrases for which every order is considered."""
Scores = dict[tuple[int, int], tuple[float, float]]
"""(beam, token) -> (score of the sequence, log-probability of the token)."""


class PhraseConstraint:
    """Phrases that one sequence must contain, in any order.

    >>> constraint = PhraseConstraint([[4, 5], [6]])
    >>> constraint.num_missing([1]), constraint.num_missing([1, 4]), constraint.num_missing([6, 4, 5])
    (3, 2, 0)
    """

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        if not all(phrases):
            raise ConfigError("a phrase in force_words must have at least one token, got an empty one")
        self.phrases = list(dict.fromkeys(tuple(phrase) for phrase in phrases))

    def num_missing(self, tokens: Sequence[int]) -> int:
        """Number of tokens that suffice to complete all phrases; minimal for up to `MAX_PERMUTED` phrases."""
        open_phrases = self._open(tokens)
        open_phrases = [
            one for one in open_phrases if not any(one != other and _contains(other, one) for other in open_phrases)
        ]
        if len(open_phrases) > MAX_PERMUTED:
            return sum(map(len, open_phrases)) - max(matched_prefix(phrase, tokens) for phrase in open_phrases)
        return min((self._length_in_order(order, tokens) for order in permutations(open_phrases)), default=0)

    def _length_in_order(self, order: Sequence[tuple[int, ...]], tokens: Sequence[int]) -> int:
        """Tokens for these phrases in this order, where the end of one may start the next."""
        before = [tokens, *order]
        return sum(len(phrase) - matched_prefix(phrase, last) for last, phrase in zip(before, order, strict=False))

    def next_tokens(self, tokens: Sequence[int]) -> set[int]:
        """Tokens that start or continue an open phrase."""
        open_phrases = self._open(tokens)
        return {phrase[0] for phrase in open_phrases} | {
            phrase[matched_prefix(phrase, tokens)] for phrase in open_phrases
        }

    def _open(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        return [phrase for phrase in self.phrases if not _contains(tokens, phrase)]


def matched_prefix(phrase: Sequence[int], tokens: Sequence[int]) -> int:
    """Length of the longest proper prefix of the phrase that the tokens end with.

    >>> matched_prefix([4, 4, 5], [1, 4, 4])
    2
    """
    sizes = range(min(len(phrase) - 1, len(tokens)), 0, -1)
    return next((size for size in sizes if tuple(tokens[len(tokens) - size :]) == tuple(phrase[:size])), 0)


def allocate_beams(banks: Sequence[Sequence[Item]], num_beams: int) -> list[Item]:
    """Up to `num_beams` items, equally many of each bank, in order; unused slots go to the first banks that need them.

    >>> allocate_beams([["a", "b", "c"], ["d"], []], 3)
    ['a', 'b', 'd']
    """
    share, counts = max(num_beams // max(len(banks), 1), 1), [0] * len(banks)
    for extra in (share, num_beams):  # first the equal shares, then the rest
        for number, bank in enumerate(banks):
            counts[number] += min(extra, len(bank) - counts[number], num_beams - sum(counts))
    return [item for bank, count in zip(banks, counts, strict=True) for item in bank[:count]]


class ConstrainedCandidate(NamedTuple):
    """One token as a continuation of a beam."""

    score: float
    beam: int
    token: int
    logprob: float
    missing: int
    """Tokens of the phrases that would still be missing."""


def constrained_step(
    next_scores: NextTokenScores,
    top: TopTokens,
    scores: Float[Tensor, "N K"],
    tokens: Int[Tensor, "N K t"],
    constraints: list[PhraseConstraint],
    params: BeamSearchParams,
) -> tuple[CandidateBatch, BeamSelection]:
    """Candidates of each sequence, and which of them are kept and finished.

    Candidates are the top tokens and tokens that start or continue a phrase. Those that could not complete all phrases
    within `max_new_tokens` are excluded, and none ends before all phrases are complete.
    """
    beams, length = tokens.tolist(), tokens.shape[2] + 1
    every = _candidate_scores(next_scores, top, scores, beams, constraints)
    selected = [_select(*one, params, length) for one in zip(every, beams, constraints, strict=True)]
    return _to_tensors(selected, params, scores.device)


def _candidate_scores(
    next_scores: NextTokenScores,
    top: TopTokens,
    scores: Tensor,
    beams: list[list[list[int]]],
    constraints: list[PhraseConstraint],
) -> list[Scores]:
    """Scores of the candidates of each sequence."""
    K = scores.shape[1]
    pairs = zip(beams, constraints, strict=True)
    forced = [sorted(constraint.next_tokens(tokens)) for several, constraint in pairs for tokens in several]
    width = max(map(len, forced))
    padded = [[*row, *top.tokens[index, :1].tolist() * width][:width] for index, row in enumerate(forced)]
    more = next_scores.gather(torch.tensor(padded, device=scores.device).view(len(padded), width))
    columns = ((top.tokens, more.tokens), (top.scores, more.scores), (top.logprobs, more.logprobs))
    tokens, token_scores, logprobs = (torch.cat(both, 1).tolist() for both in columns)
    out: list[Scores] = []
    for n, totals in enumerate(scores.tolist()):
        rows = [(k, n * K + k) for k in range(K) if totals[k] > -torch.inf]
        out.append(
            {
                (k, token): (totals[k] + score, logprob)
                for k, row in rows
                for token, score, logprob in zip(tokens[row], token_scores[row], logprobs[row], strict=True)
                if score > -torch.inf
            }
        )
    return out


def _select(
    scores: Scores, beams: list[list[int]], constraint: PhraseConstraint, params: BeamSearchParams, length: int
) -> tuple[list[ConstrainedCandidate], list[int], list[int]]:
    """Candidates of one sequence, best first, and the indices of those that are kept and finished."""
    remaining, eos_ids = params.max_new_tokens - length, params.eos_ids
    every = [
        ConstrainedCandidate(
            score,
            beam,
            token,
            logprob,
            constraint.num_missing(beams[beam] if token in eos_ids else [*beams[beam], token]),
        )
        for (beam, token), (score, logprob) in scores.items()
    ]
    possible = sorted((one for one in every if one.missing <= (0 if one.token in eos_ids else remaining)), reverse=True)
    complete = [index for index, one in enumerate(possible) if one.missing == 0]
    finished = [index for index in complete[: params.num_beams] if remaining == 0 or possible[index].token in eos_ids]
    running = [index for index, one in enumerate(possible) if remaining and one.token not in eos_ids]
    num_banks = constraint.num_missing([]) + 1
    banks = [[index for index in running if possible[index].missing == count] for count in range(num_banks)]
    return possible, allocate_beams(banks, params.num_beams), finished


def _to_tensors(
    selected: list[tuple[list[ConstrainedCandidate], list[int], list[int]]],
    params: BeamSearchParams,
    device: torch.device,
) -> tuple[CandidateBatch, BeamSelection]:
    N, K, width = len(selected), params.num_beams, max(1, *(len(candidates) for candidates, _, _ in selected))
    padding = ConstrainedCandidate(-torch.inf, 0, 0, 0.0, 0)
    rows = [[*candidates, *[padding] * (width - len(candidates))] for candidates, _, _ in selected]
    columns = [torch.tensor([[one[i] for one in row] for row in rows], device=device) for i in range(4)]
    kept = torch.tensor([[*on, *[width - 1] * (K - len(on))] for _, on, _ in selected], device=device)
    kept_scores = [
        [*(candidates[index].score for index in on), *[-torch.inf] * (K - len(on))] for candidates, on, _ in selected
    ]
    finished = torch.zeros(N, width, dtype=torch.bool, device=device)
    for row, (_, _, indices) in enumerate(selected):
        finished[row, indices] = True
    return CandidateBatch(*columns), BeamSelection(kept, torch.tensor(kept_scores, device=device), finished)


def _contains(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    length = len(phrase)
    return any(tuple(tokens[i : i + length]) == tuple(phrase) for i in range(len(tokens) - length + 1))
