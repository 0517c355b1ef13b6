"""Greedy and random sampling, and token selection from logits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.detokenizer import StopChecker
from softlook.decode.logits_processors import (
    LogitsProcessor,
    frequency_penalty,
    presence_penalty,
    repetition_penalty,
)
from softlook.decode.outputs import (
    FinishReason,
    GeneratedToken,
    LogitsError,
    NoTokenLeftError,
    RowError,
    SequenceView,
    merge_row_errors,
)

Sampler = Callable[[Tensor, Sequence[SequenceView]], Tensor]
"""Logits (N, V) of the next token, and the N sequences so far -> ids (N,) of the selected tokens."""
MIN_TEMPERATURE = 1e-6
"""Lowest temperature of `Multinomial`: below it logits overflow."""
GREEDY_TEMPERATURE = 1e-3
"""`SamplingParams` with a temperature below this select tokens greedily."""


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of a request, as vLLM names them. Sequences with equal parameters are sampled together.

    >>> SamplingParams(temperature=0.0, top_p=0.9).do_sample, len(SamplingParams(presence_penalty=0.5).processors())
    (False, 1)
    """

    temperature: float = 1.0
    """0 selects the most likely token."""
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    num_logprobs: int = 0
    """Number of most likely tokens returned with each token."""
    extra_processors: tuple[LogitsProcessor, ...] = ()
    """Logits processors applied last: a logit bias, a JSON schema."""

    @property
    def do_sample(self) -> bool:
        """Whether tokens are sampled; greedy decoding otherwise."""
        return self.temperature >= GREEDY_TEMPERATURE

    def sampler(self, seed: int | None = None) -> Sampler:
        """The sampler of one sequence, or of a batch that shares a seed."""
        return Multinomial(self.temperature, self.top_k, self.top_p, self.min_p, seed) if self.do_sample else Greedy()

    def processors(self) -> tuple[LogitsProcessor, ...]:
        """Logits processors, in the order they are applied."""
        penalties = (
            (self.repetition_penalty != 1, lambda: repetition_penalty(self.repetition_penalty)),
            (self.presence_penalty != 0, lambda: presence_penalty(self.presence_penalty)),
            (self.frequency_penalty != 0, lambda: frequency_penalty(self.frequency_penalty)),
        )
        return (*(build() for is_used, build in penalties if is_used), *self.extra_processors)


@dataclass(frozen=True)
class Greedy:
    """Greedy decoding: the token with the largest logit; of equals, the one with the smallest id.

    >>> Greedy()(torch.tensor([[0.1, 0.7, 0.2]]), [SequenceView([5])])
    tensor([1])
    """

    def __call__(self, logits: Float[Tensor, "N V"], sequences: Sequence[SequenceView]) -> Int[Tensor, " N"]:
        return logits.argmax(-1)


@dataclass(frozen=True)
class Multinomial:
    """Random sampling from the softmax: temperature, then top-k, then top-p, then min-p.

    With a seed the result is reproducible and independent of the rest of the batch: each step of each sequence has its
    own random number. Without one, torch's global generator is used.

    >>> sampler, logits = Multinomial(temperature=0.8, top_k=2, seed=7), torch.tensor([[3.0, 1.0, 3.1]])
    >>> {int(sampler(logits, [SequenceView([5], index=index)])) for index in range(50)} == {0, 2}
    True
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        self.warp_logits(torch.zeros(1, 1))  # raises an error for invalid parameters before a model has run

    def __call__(self, logits: Float[Tensor, "N V"], sequences: Sequence[SequenceView]) -> Int[Tensor, " N"]:
        return sample_inverse_cdf(self.warp_logits(logits), self._uniforms(sequences).to(logits.device))

    def warp_logits(self, logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """The logits that are sampled from, -inf for excluded tokens.

        They are shifted to a maximum of 0 before the temperature divides them, so that none overflows.
        """
        logits = apply_temperature(logits - logits.amax(-1, keepdim=True), self.temperature)
        logits = logits if self.top_k is None else top_k(logits, self.top_k)
        logits = logits if self.top_p is None else top_p(logits, self.top_p)
        return logits if self.min_p is None else min_p(logits, self.min_p)

    def _uniforms(self, sequences: Sequence[SequenceView]) -> Float[Tensor, " N"]:
        if self.seed is None:
            return torch.rand(len(sequences), dtype=torch.float64)
        uniforms = [seeded_uniform(self.seed, one.index, len(one.generated)) for one in sequences]
        return torch.tensor(uniforms, dtype=torch.float64)


def apply_temperature(logits: Float[Tensor, "N V"], temperature: float) -> Float[Tensor, "N V"]:
    """Logits divided by the temperature: below 1 sharpens the distribution, above 1 flattens it.

    >>> apply_temperature(torch.tensor([[1.0, 2.0]]), 0.5)
    tensor([[2., 4.]])
    """
    if not MIN_TEMPERATURE <= temperature < math.inf:
        raise ConfigError(
            f"temperature must be a finite number >= {MIN_TEMPERATURE}, got {temperature}. "
            "For greedy decoding, pass sampler=Greedy()"
        )
    return logits / temperature


def top_k(logits: Float[Tensor, "N V"], k: int) -> Float[Tensor, "N V"]:
    """Keep the k largest logits and any that equal the smallest of them.

    >>> top_k(torch.tensor([[1.0, 3.0, 2.0]]), 2)
    tensor([[-inf, 3., 2.]])
    """
    if k < 1 or k != int(k):
        raise ConfigError(f"top_k must be an integer >= 1, got {k}. Leave it out to keep all tokens")
    last = logits.topk(min(int(k), logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < last, -torch.inf)


def top_p(logits: Float[Tensor, "N V"], p: float) -> Float[Tensor, "N V"]:
    """Nucleus sampling (Holtzman et al. 2019): keep the fewest tokens whose probabilities sum to p; at least one.

    Of equal logits, the one with the smaller id comes first.

    >>> top_p(torch.tensor([[0.1, 0.6, 0.3]]).log(), 0.7).exp()
    tensor([[0.0000, 0.6000, 0.3000]])
    """
    _check_probability("top_p", p)
    if p == 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    excluded = before >= p
    excluded[..., 0] = False
    return logits.masked_fill(excluded.scatter(-1, order, excluded), -torch.inf)


def min_p(logits: Float[Tensor, "N V"], p: float) -> Float[Tensor, "N V"]:
    """Keep tokens at least p times as likely as the most likely one.

    >>> min_p(torch.tensor([[0.1, 0.6, 0.3]]).log(), 0.4).exp()
    tensor([[0.0000, 0.6000, 0.3000]])
    """
    _check_probability("min_p", p)
    probabilities = logits.softmax(-1)
    return logits.masked_fill(probabilities < p * probabilities.amax(-1, keepdim=True), -torch.inf)


def sample_inverse_cdf(logits: Float[Tensor, "N V"], uniforms: Float[Tensor, " N"]) -> Int[Tensor, " N"]:
    """Inverse transform sampling: the token at which the cumulative probability exceeds a number in [0, 1).

    Tokens with probability 0 are never sampled. The id is always in the vocabulary, even for NaN logits: an id beyond
    it would end the process on a GPU. The caller checks that the logits define a distribution.

    >>> sample_inverse_cdf(torch.tensor([[0.25, 0.0, 0.75]]).log().expand(3, 3), torch.tensor([0.2, 0.3, 0.9]))
    tensor([0, 2, 2])
    """
    cdf = logits.double().softmax(-1).cumsum(-1)
    return torch.searchsorted(cdf, uniforms.double()[:, None] * cdf[:, -1:], right=True)[:, 0].clamp(
        max=logits.shape[-1] - 1
    )


def seeded_uniform(seed: int, sequence: int, step: int) -> float:
    """A uniform number in [0, 1) that depends on seed, sequence and step alone, on any machine.

    >>> seeded_uniform(7, 0, 0) == seeded_uniform(7, 0, 0) != seeded_uniform(7, 0, 1)
    True
    """
    digest = blake2b(f"{seed} {sequence} {step}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 12) / 2**52


@dataclass(frozen=True)
class TokenSelector:
    """How tokens are selected from logits, and which tokens end a sequence."""

    sampler: Sampler
    logits_processors: tuple[LogitsProcessor, ...]
    eos_ids: frozenset[int]
    num_logprobs: int
    """Number of most likely tokens returned with each token."""


@dataclass
class SequenceState:
    """One sequence during generation."""

    prompt: list[int]
    index: int
    max_new_tokens: int
    stop_checker: StopChecker | None = None
    tokens: list[GeneratedToken] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)
    """Ids of `tokens`."""
    eos_token: GeneratedToken | None = None
    finish_reason: FinishReason | None = None
    error: RowError | None = None
    """Why no token could be selected, if that ended the sequence."""
    window: list[int] = field(default_factory=list)
    """Ids that the model encodes before it continues: the prompt, or what a context shift keeps."""
    pause_at: int | None = None
    """Number of generated tokens at which the context is full."""

    def __post_init__(self) -> None:
        self.window = self.window or self.prompt

    @property
    def is_running(self) -> bool:
        """Whether a token can be appended: not after the end, nor while the context is full."""
        return self.finish_reason is None and self.error is None and self.remaining > 0

    @property
    def remaining(self) -> int:
        """New tokens up to the limit, or until the context is full."""
        limit = self.max_new_tokens if self.pause_at is None else min(self.max_new_tokens, self.pause_at)
        return limit - len(self.generated)

    def view(self) -> SequenceView:
        return SequenceView(self.prompt, tuple(self.generated), self.index)

    def append(self, token: GeneratedToken | RowError, eos_ids: frozenset[int]) -> None:
        """Append a token; finish at an end-of-sequence token, a stop string, the length limit or an error."""
        if isinstance(token, RowError):
            self.error = token
            return
        if token.id in eos_ids:
            self.eos_token, self.finish_reason = token, "eos"
            return
        self.tokens.append(token)
        self.generated.append(token.id)
        if self.stop_checker is not None:
            self.stop_checker.push(token.id)
        if self.stop_checker is not None and self.stop_checker.stopped:
            self.finish_reason = "stop"
        elif len(self.generated) == self.max_new_tokens:
            self.finish_reason = "length"


def select_tokens(
    logits: Float[Tensor, "N V"], sequences: Sequence[SequenceView], selector: TokenSelector
) -> list[GeneratedToken]:
    """As `try_select_tokens`, but raise a `RowError` with the failed rows if any row has no token.

    The same call without those rows selects the same tokens for all others.
    """
    selected = try_select_tokens(logits, sequences, selector)
    errors = {row: one for row, one in enumerate(selected) if isinstance(one, RowError)}
    if errors:
        raise merge_row_errors(errors, selected)
    return [one for one in selected if isinstance(one, GeneratedToken)]


def try_select_tokens(
    logits: Float[Tensor, "N V"], sequences: Sequence[SequenceView], selector: TokenSelector
) -> list[GeneratedToken | RowError]:
    """Select the next token of each sequence: logits processors, then the sampler. Logprobs are the model's own.

    Rows are checked before sampling: a row whose logits are no distribution, or whose tokens are all masked, gets an
    error and does not affect the others.
    """
    logits = logits.float()
    logprobs = logits.log_softmax(-1)
    errors: dict[int, RowError] = {}
    for row in _true_rows(logprobs[:, 0].isnan()):  # one NaN, one +inf, or -inf throughout makes the whole row NaN
        errors[row] = LogitsError.for_rows([sequences[row].index], len(sequences[row].generated) + 1)
    processed = logits = _zero_rows(logits, errors)
    for process in selector.logits_processors:
        processed = process(processed, sequences)
    if selector.logits_processors:
        processed = _check_processed(processed, sequences, errors)
    logprobs = logits.log_softmax(-1) if errors else logprobs
    ids = selector.sampler(processed, sequences)
    tokens = to_generated_tokens(gather_logprobs(logprobs, ids, selector.num_logprobs))
    return [errors.get(row, token) for row, token in enumerate(tokens)]


class TokenLogprobs(NamedTuple):
    """Selected tokens with their log-probabilities, (N,), and the most likely tokens, (N, num_logprobs)."""

    ids: Int[Tensor, " N"]
    logprobs: Float[Tensor, " N"]
    """NaN where the logits are no distribution."""
    ranks: Int[Tensor, " N"]
    top_ids: Int[Tensor, "N top"]
    top_logprobs: Float[Tensor, "N top"]


def gather_logprobs(logprobs: Float[Tensor, "N V"], ids: Int[Tensor, " N"], num_logprobs: int) -> TokenLogprobs:
    """Log-probability and rank of the selected ids, and the most likely tokens."""
    selected = logprobs.gather(1, ids[:, None])
    top = logprobs.topk(min(num_logprobs, logprobs.shape[-1]))
    return TokenLogprobs(ids, selected[:, 0], (logprobs > selected).sum(1) + 1, top.indices, top.values)


def to_generated_tokens(selected: TokenLogprobs) -> list[GeneratedToken]:
    """The same as Python objects, one per row."""
    ids, logprobs, ranks, top_ids, top_logprobs = (part.tolist() for part in selected)
    tops = (tuple(zip(*top, strict=True)) for top in zip(top_ids, top_logprobs, strict=True))
    return [GeneratedToken(*one) for one in zip(ids, logprobs, ranks, tops, strict=True)]


def _check_processed(processed: Tensor, sequences: Sequence[SequenceView], errors: dict[int, RowError]) -> Tensor:
    """Record an error for each row that logits processors left without a distribution."""
    for row in _true_rows(~processed.amax(-1).isfinite()):
        errors.setdefault(row, _processor_error(processed[row], sequences[row]))
    return _zero_rows(processed, errors)


def _zero_rows(logits: Tensor, errors: dict[int, RowError]) -> Tensor:
    """Zeros in failed rows, so that the whole batch can be processed."""
    if not errors:
        return logits
    return logits.index_fill(0, torch.tensor(sorted(errors), device=logits.device), 0.0)


def _true_rows(mask: Bool[Tensor, " N"]) -> list[int]:
    return [row for row, is_true in enumerate(mask.tolist()) if is_true]


def _processor_error(processed: Tensor, sequence: SequenceView) -> NoTokenLeftError:
    if bool(processed.amax() == -torch.inf):
        problem, advice = "mask every token", "Allow an end-of-sequence token, or use fewer logits processors"
    else:
        problem, advice = "return NaN or infinity", "They must return finite logits, or -inf for masked tokens"
    where = f"at new token {len(sequence.generated) + 1} of sequence {sequence.index}, after {sequence.ids[-8:]}"
    return NoTokenLeftError(f"the logits processors {problem} {where}. {advice}", [sequence.index])


def _check_probability(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ConfigError(f"{name} must be in [0, 1], got {p}")
