"""Beam search: parameters, candidates of a step and finished hypotheses."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.decode.logits_processors import LogitsProcessor
from softlook.decode.outputs import SequenceView

LengthPenalty = Callable[[int], float]
"""Length with the end-of-sequence token -> divisor of the log-probability, a number > 0."""
EarlyStopping = Literal[True, False, "never"]
"""When a search with `num_beams` finished hypotheses ends, as in Hugging Face's `generate`: True: at once; False: when
no running beam is better at its present length; "never": when no better hypothesis is possible."""
CandidateStatus = Literal["kept", "finished", "dropped"]
BLOCK = 128
"""Block size of the two-level top-k on a CPU: only the blocks with the largest maxima are searched."""
MIN_VOCAB = 2048
"""Smallest vocabulary for which the two-level top-k is faster."""
ROWS = 32
"""Rows processed together, so that intermediate results stay in the CPU cache."""


@dataclass(frozen=True)
class BeamSearchParams:
    """Parameters of a beam search, checked."""

    eos_ids: tuple[int, ...]
    max_new_tokens: int
    min_new_tokens: int = 0
    num_beams: int = 4
    num_beam_groups: int = 1
    diversity_penalty: float = 0.0
    length_penalty: float | LengthPenalty = 1.0
    """Exponent of the length, or a function of the length, by which log-probabilities are divided."""
    coverage_penalty: float = 0.0
    early_stopping: EarlyStopping = "never"

    def __post_init__(self) -> None:
        if self.num_beams < 1 or self.num_beam_groups < 1 or self.num_beams % self.num_beam_groups:
            raise ConfigError(
                f"num_beams must be a multiple of num_beam_groups, got {self.num_beams} and {self.num_beam_groups}"
            )
        if not self.eos_ids or self.max_new_tokens < 1 or self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(
                "beam search needs eos_ids, max_new_tokens >= 1 and min_new_tokens <= max_new_tokens, "
                f"got {list(self.eos_ids)}, {self.max_new_tokens} and {self.min_new_tokens}"
            )
        if self.diversity_penalty < 0 or self.coverage_penalty < 0:
            raise ConfigError(
                f"diversity_penalty and coverage_penalty must be >= 0, "
                f"got {self.diversity_penalty} and {self.coverage_penalty}"
            )
        if isinstance(self.length_penalty, float | int):
            power_penalty(self.length_penalty)

    @property
    def group_size(self) -> int:
        """Number of beams per group."""
        return self.num_beams // self.num_beam_groups

    @property
    def num_candidates(self) -> int:
        """Candidates per group: enough beams remain even if all end-of-sequence tokens are among them."""
        return (1 + len(self.eos_ids)) * self.group_size

    def divisors(self) -> list[float]:
        """Divisor of the log-probability for each length from 1 to `max_new_tokens`."""
        penalty = self.length_penalty
        penalty = power_penalty(penalty) if isinstance(penalty, float | int) else penalty
        divisors = [penalty(length) for length in range(1, self.max_new_tokens + 1)]
        if min(divisors) <= 0:
            raise ConfigError(f"a length penalty must be > 0 for every length, got {min(divisors)}")
        return divisors

    def final_divisors(self) -> list[float]:
        """By length, from 0: the divisor of the best running beam when it is compared with finished hypotheses."""
        divisors = self.divisors()
        if self.early_stopping == "never":  # the largest divisor of any greater length
            return [max(divisors[length:], default=0.0) for length in range(len(divisors) + 1)]
        return [1.0, *divisors]


def power_penalty(exponent: float) -> LengthPenalty:
    """The length to a power, as Hugging Face's `length_penalty`: 0 for none, 1 for the mean log-probability.

    >>> power_penalty(0.5)(9)
    3.0
    """
    if not math.isfinite(exponent):
        raise ConfigError(f"length_penalty must be a finite number (0 for none), got {exponent}")
    return lambda length: float(length**exponent)


def gnmt_penalty(exponent: float) -> LengthPenalty:
    """((5 + length) / 6) to a power (Wu et al. 2016).

    >>> gnmt_penalty(1.0)(1), gnmt_penalty(1.0)(7)
    (1.0, 2.0)
    """
    if not math.isfinite(exponent):
        raise ConfigError(f"length_penalty must be a finite number (0 for none), got {exponent}")
    return lambda length: float(((5 + length) / 6) ** exponent)


def coverage_score(
    weights: Float[Tensor, "*B S"], source_mask: Bool[Tensor, "*#B S"] | None = None
) -> Float[Tensor, "*B"]:
    """Coverage penalty (Wu et al. 2016): 0 if every source token received a total attention of 1, below 0 otherwise.

    `weights` are the attention weights of each source token, summed over the target.

    >>> coverage_score(torch.tensor([[1.5, 1.0], [1.0, 0.5]]))
    tensor([ 0.0000, -0.6931])
    """
    logs = weights.clamp(min=torch.finfo(torch.float32).tiny, max=1.0).log()
    return (logs if source_mask is None else logs.masked_fill(~source_mask, 0.0)).sum(-1)


@dataclass(frozen=True)
class TopTokens:
    """The top tokens after each beam, best first, (B, W) each."""

    tokens: Int[Tensor, "B W"]
    scores: Float[Tensor, "B W"]
    """Log-probabilities after logits processors."""
    logprobs: Float[Tensor, "B W"]
    """The model's log-probabilities."""


class NextTokenScores:
    """Scores of the next token after each beam: log-probabilities, changed by logits processors.

    As in Hugging Face's beam search, processors see log-probabilities, and the result is not normalized again.
    """

    def __init__(
        self,
        logits: Float[Tensor, "B V"],
        logits_processors: Sequence[LogitsProcessor] = (),
        sequences: Sequence[SequenceView] = (),
    ) -> None:
        self.logits = logits.float()
        self.logprobs = self.scores = None
        if logits_processors:
            self.logprobs = self.scores = self.logits.log_softmax(-1)
            for process in logits_processors:
                self.scores = process(self.scores, sequences)

    def top(self, width: int) -> TopTokens:
        """The best `width` tokens of each row, or as many as there are."""
        if self.logprobs is None or self.scores is None:
            scores, tokens = top_tokens(self.logits, width)
            return TopTokens(tokens, scores, scores)
        scores, tokens = self.scores.topk(min(width, self.scores.shape[-1]))
        return TopTokens(tokens, scores, self.logprobs.gather(1, tokens))

    def gather(self, tokens: Int[Tensor, "B W"]) -> TopTokens:
        """The scores of these tokens."""
        if self.logprobs is None or self.scores is None:
            self.logprobs = self.scores = self.logits.log_softmax(-1)
        return TopTokens(tokens, self.scores.gather(1, tokens), self.logprobs.gather(1, tokens))


def top_tokens(logits: Float[Tensor, "B V"], width: int) -> tuple[Float[Tensor, "B W"], Int[Tensor, "B W"]]:
    """Log-probabilities and ids of the `width` most likely tokens, best first; equal to a full top-k.

    >>> top_tokens(torch.tensor([[0.0, 0.0, 9.0]]), 1)[1]
    tensor([[2]])
    """
    width = min(width, logits.shape[-1])
    if logits.shape[-1] < max(MIN_VOCAB, 4 * width * BLOCK) or logits.device.type != "cpu":
        logprobs, tokens = logits.log_softmax(-1).topk(width)
        return logprobs, tokens
    logprobs, tokens = [], []
    for chunk in logits.split(ROWS):
        tokens.append(_block_top_indices(chunk, width))
        logprobs.append(chunk.log_softmax(-1).gather(1, tokens[-1]))
    return torch.cat(logprobs), torch.cat(tokens)


def _block_top_indices(logits: Tensor, width: int) -> Tensor:
    """A top token lies in a block with one of the largest maxima, or behind the last whole block."""
    count = logits.shape[-1] // BLOCK
    rest = logits[:, count * BLOCK :]
    blocks = logits[:, : count * BLOCK].unflatten(1, (count, BLOCK))
    best_blocks = blocks.amax(-1).topk(width).indices
    inside = blocks.gather(1, best_blocks[..., None].expand(-1, -1, BLOCK)).flatten(1)
    if rest.shape[1]:
        inside, best_blocks = torch.cat([inside, rest], 1), F.pad(best_blocks, (0, 1), value=count)
    indices = inside.topk(width).indices
    return best_blocks.gather(1, indices.div(BLOCK, rounding_mode="floor")) * BLOCK + indices.remainder(BLOCK)


class CandidateBatch(NamedTuple):
    """Candidates for the next token of each sequence, best first, (N, W) each."""

    scores: Float[Tensor, "N W"]
    """Scores of the whole sequence."""
    beams: Int[Tensor, "N W"]
    """Index of the beam that is continued."""
    tokens: Int[Tensor, "N W"]
    logprobs: Float[Tensor, "N W"]
    """The model's log-probabilities of the tokens."""


class BeamSelection(NamedTuple):
    """Candidates that become beams, and candidates that are finished."""

    kept: Int[Tensor, "N K"]
    """Candidate indices of the new beams."""
    scores: Float[Tensor, "N K"]
    """Scores of the new beams; -inf if there are too few."""
    finished: Bool[Tensor, "N W"]


def top_candidates(top: TopTokens, scores: Float[Tensor, "N K"], width: int) -> CandidateBatch:
    """The best `width` continuations of each sequence, from the top tokens of each beam."""
    (N, K), W = scores.shape, top.tokens.shape[-1]
    totals = (scores[:, :, None] + top.scores.view(N, K, W)).flatten(1)
    totals, indices = totals.topk(min(width, K * W))
    tokens, logprobs = (part.reshape(N, K * W).gather(1, indices) for part in (top.tokens, top.logprobs))
    return CandidateBatch(totals, indices.div(W, rounding_mode="floor"), tokens, logprobs)


def select_beams(
    candidates: CandidateBatch, is_eos: Bool[Tensor, "N W"], count: int, *, is_last: bool
) -> BeamSelection:
    """Keep the best `count` candidates without an end-of-sequence token; those with one among the best are finished.

    At the last step, all of the best `count` candidates are finished.
    """
    scores, kept = candidates.scores.masked_fill(is_eos, -torch.inf).topk(min(count, is_eos.shape[1]))
    if kept.shape[1] < count:
        missing = (0, count - kept.shape[1])
        scores = F.pad(scores, missing, value=-torch.inf)
        kept = F.pad(kept, missing)
    is_best = torch.arange(is_eos.shape[1], device=is_eos.device) < count
    finished = is_best & candidates.scores.isfinite()
    return BeamSelection(kept, scores, finished if is_last else is_eos & finished)


@dataclass(frozen=True)
class BeamCandidate:
    """One token as a continuation of a beam."""

    token: int
    parent: int
    """Index of the beam it continues."""
    score: float
    """Score of the sequence with this token: the sum of log-probabilities after logits processors."""
    logprob: float
    """The model's log-probability of this token."""
    status: CandidateStatus
    beam: int | None = None
    """Index of the beam it became, if it was kept."""


@dataclass(frozen=True)
class BeamStep:
    """All candidates of one sequence at one step, best first; with beam groups, group by group."""

    sequence: int
    length: int
    """Number of new tokens with this one: 1 at the first step."""
    candidates: tuple[BeamCandidate, ...]


StepCallback = Callable[[BeamStep], None]
"""Called at every step, for example `steps.append`."""


@dataclass(frozen=True, order=True)
class Hypothesis:
    """A finished sequence: it ended with an end-of-sequence token, or reached the length limit."""

    score: float
    """Log-probability after logits processors, with length and coverage penalties."""
    ids: list[int] = field(compare=False)
    """Without the end-of-sequence token."""
    logprob: float = field(compare=False)
    """The model's log-probability, the end-of-sequence token included."""
    logprobs: list[float] = field(compare=False, default_factory=list)
    """The model's log-probability of each token, and of the end-of-sequence token if there is one."""
    eos_id: int | None = field(compare=False, default=None)
    """The end-of-sequence token; None at the length limit."""
    alignment: list[list[float]] | None = field(compare=False, default=None)
    """Cross-attention weights of each token over the source tokens, if requested."""
    truncated: bool = field(compare=False, default=False)
    """Set by callers for hypotheses cut by a length limit, with a forced end-of-sequence token or without."""


class FinishedHypotheses:
    """The best finished hypotheses of one group of one sequence."""

    def __init__(self, params: BeamSearchParams) -> None:
        self.capacity, self.best = params.group_size, list[Hypothesis]()
        self.stop_when_full = params.early_stopping is True
        self.divisors, self.final_divisors = params.divisors(), params.final_divisors()

    def add(self, hypothesis: Hypothesis) -> None:
        """Keep a hypothesis if it is among the best."""
        self.best = sorted([*self.best, hypothesis], reverse=True)[: self.capacity]

    def is_done(self, best_running: float, length: int) -> bool:
        """Whether no running beam can still become one of these hypotheses.

        Scores only fall, and coverage adds nothing. So the best possible score is the present one divided by the
        largest divisor of any greater length. `early_stopping` other than "never" relaxes this.
        """
        if best_running == -torch.inf:
            return True
        if len(self.best) < self.capacity:
            return False
        return self.stop_when_full or best_running / self.final_divisors[length] <= self.best[-1].score


def merge_hypotheses(groups: Sequence[FinishedHypotheses]) -> list[Hypothesis]:
    """Hypotheses of all groups, best first, without duplicates."""
    unique: dict[tuple[tuple[int, ...], int | None], Hypothesis] = {}
    for one in sorted((one for group in groups for one in group.best), reverse=True):
        unique.setdefault((tuple(one.ids), one.eos_id), one)
    return list(unique.values())
