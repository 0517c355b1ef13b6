"""State of a beam search in static buffers, and one step of it in PyTorch."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from softlook.decode.beam.candidates import TopTokens
from softlook.decode.beam.hypotheses import BeamSearchParams, CandidateBatch, select_beams, top_candidates


@dataclass
class SearchLimits:
    """Parameters of a search in device buffers; each search overwrites those of the last."""

    divisors: Tensor
    """(L + 1,): divisor of the score of a finished hypothesis, by length."""
    final_divisors: Tensor
    """(L + 1,): divisor of the best running beam, by length."""
    eos_ids: Tensor
    """(E,)"""
    limits: Tensor
    """(2,): minimum and maximum number of new tokens."""

    @staticmethod
    def allocate(max_length: int, num_eos: int, device: torch.device) -> "SearchLimits":
        divisors = torch.ones(max_length + 1, dtype=torch.float64, device=device)
        integers = torch.zeros(num_eos + 2, dtype=torch.long, device=device)
        return SearchLimits(divisors, divisors.clone(), integers[2:], integers[:2])

    def write(self, params: BeamSearchParams) -> None:
        tables = ((self.divisors, [1.0, *params.divisors()]), (self.final_divisors, params.final_divisors()))
        for buffer, values in tables:
            buffer[: len(values)] = torch.tensor(values, dtype=torch.float64)
        self.eos_ids.copy_(torch.tensor(params.eos_ids))
        self.limits.copy_(torch.tensor([params.min_new_tokens, params.max_new_tokens]))


@dataclass
class BeamState:
    """N sequences with K beams each. The history, (N, L, K), is written once and never moved by a step."""

    scores: Tensor
    """(N, K): score of each beam."""
    parents: Tensor
    """(N, L, K): the beam that each beam continues, at each length."""
    tokens: Tensor
    """(N, L, K): its last token."""
    logprobs: Tensor
    """(N, L, K): the log-probability of that token."""
    finished: Tensor
    """(N, K): scores of the finished hypotheses, best first; -inf if there are fewer."""
    finished_length: Tensor
    """(N, K): length with the end-of-sequence token."""
    finished_beam: Tensor
    """(N, K): the beam it continues."""
    finished_token: Tensor
    """(N, K): its last token."""
    finished_logprob: Tensor
    """(N, K): the log-probability of that token."""
    done: Tensor
    """(N,): no better hypothesis is possible."""

    @staticmethod
    def allocate(sequences: int, num_beams: int, max_length: int, device: torch.device) -> "BeamState":
        integers: dict[str, Any] = {"dtype": torch.long, "device": device}
        beams, history = (sequences, num_beams), (sequences, max_length, num_beams)
        return BeamState(
            scores=torch.zeros(beams, device=device),
            parents=torch.zeros(history, **integers),
            tokens=torch.zeros(history, **integers),
            logprobs=torch.zeros(history, device=device),
            finished=torch.zeros(beams, dtype=torch.float64, device=device),
            finished_length=torch.zeros(beams, **integers),
            finished_beam=torch.zeros(beams, **integers),
            finished_token=torch.zeros(beams, **integers),
            finished_logprob=torch.zeros(beams, device=device),
            done=torch.zeros(sequences, dtype=torch.bool, device=device),
        )

    def first(self, sequences: int) -> "BeamState":
        """Views of the first sequences."""
        return BeamState(*(getattr(self, one.name)[:sequences] for one in fields(self)))

    def reset(self, sequences: int) -> None:
        """Start a search of the first `sequences` rows; the others are marked as done."""
        self.scores.zero_()
        self.finished.fill_(-torch.inf)
        self.finished_length.zero_()
        self.done.zero_()
        self.done[sequences:] = True

    def move_to_front(self, rows: Tensor) -> None:
        """Copy these rows to the front, in this order."""
        for one in fields(self):
            buffer: Tensor = getattr(self, one.name)
            buffer[: len(rows)] = buffer.index_select(0, rows)


def advance_beams(
    top: tuple[Tensor, Tensor], scores: Tensor, beams: BeamState, limits: SearchLimits, length: Tensor
) -> Tensor:
    """One step from the top tokens (logprobs, ids) and the scores of the beams; the parents of the new beams, (N, K).

    Candidates that are finished with this token, the `length`-th, are added to the finished hypotheses.
    """
    (logprobs, tokens), K, E = top, beams.scores.shape[1], len(limits.eos_ids)
    is_out = (torch.isin(tokens, limits.eos_ids) & (length <= limits.limits[0])) | (scores.view(-1, 1) == -torch.inf)
    masked = TopTokens(tokens, logprobs.masked_fill(is_out, -torch.inf), logprobs)
    candidates = top_candidates(masked, scores, (1 + E) * K)
    is_eos = torch.isin(candidates.tokens, limits.eos_ids)
    selection = select_beams(candidates, is_eos, K, is_last=True)
    is_finished = selection.finished & (is_eos | (length == limits.limits[1])) & ~beams.done[:, None]
    _keep_best(candidates, is_finished, beams, limits, length)
    kept = (candidates.beams, candidates.tokens, candidates.logprobs)
    parents, new_tokens, new_logprobs = (part.gather(1, selection.kept) for part in kept)
    for history, new in ((beams.parents, parents), (beams.tokens, new_tokens), (beams.logprobs, new_logprobs)):
        history.index_copy_(1, length - 1, new[:, None])
    new_scores = selection.scores.masked_fill(beams.done[:, None], -torch.inf)  # sequences that are done cannot fail
    beams.scores.copy_(new_scores)
    best = new_scores.amax(1).double()
    beams.done |= (best == -torch.inf) | (best / limits.final_divisors[length] <= beams.finished[:, -1])
    return parents


def _keep_best(
    candidates: CandidateBatch, is_finished: Tensor, beams: BeamState, limits: SearchLimits, length: Tensor
) -> None:
    """Merge finished candidates into the best finished hypotheses."""
    new = (candidates.scores.double() / limits.divisors[length]).masked_fill(~is_finished, -torch.inf)
    best, indices = torch.cat([beams.finished, new], 1).topk(beams.finished.shape[1])
    pairs = (
        (beams.finished_length, length.expand_as(candidates.tokens)), (beams.finished_beam, candidates.beams),
        (beams.finished_token, candidates.tokens), (beams.finished_logprob, candidates.logprobs),
    )  # fmt: skip
    for old, added in pairs:
        old.copy_(torch.cat([old, added], 1).gather(1, indices))
    beams.finished.copy_(best)


def backtrace(beams: BeamState, rows: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
    """Tokens and logprobs of the finished hypotheses of these rows, (R, K, L), from the last token to the first."""
    last = (beams.finished_length, beams.finished_beam, beams.finished_token, beams.finished_logprob)
    lengths, beam, last_token, last_logprob = (part.index_select(0, rows) for part in last)
    history = (beams.parents, beams.tokens, beams.logprobs)
    parents, tokens, logprobs = (part.index_select(0, rows) for part in history)
    out_tokens = tokens.new_zeros(*beam.shape, max_length)
    out_logprobs = logprobs.new_zeros(*beam.shape, max_length)
    end = (lengths - 1).clamp(min=0)[..., None]
    out_tokens.scatter_(2, end, last_token[..., None])
    out_logprobs.scatter_(2, end, last_logprob[..., None])
    for step in reversed(range(max_length - 1)):
        is_before = step < lengths - 1
        for out, values in ((out_tokens, tokens), (out_logprobs, logprobs)):
            out[:, :, step] = torch.where(is_before, values[:, step].gather(1, beam), out[:, :, step])
        beam = torch.where(is_before, parents[:, step].gather(1, beam), beam)
    return out_tokens.int(), out_logprobs
