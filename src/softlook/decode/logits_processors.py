"""Logits processors: penalties, masks and forced tokens.

A processor maps the logits (N, V) of the next token and the N sequences so far to new logits. It changes nothing in
place, and treats each row independently of the rest of the batch.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.outputs import SequenceView
from softlook.decode.token_tensors import (
    count_tokens,
    flat_indices,
    force_tokens,
    mask_tokens,
    ngram_continuations,
    pad_segments,
    penalize_tokens,
    replace_at,
    token_mask,
)

LogitsProcessor = Callable[[Tensor, Sequence[SequenceView]], Tensor]
"""Logits (N, V), and the N sequences so far -> logits (N, V)."""
SourceLookup = Callable[[SequenceView], Sequence[int]]
"""Encoder input ids of a sequence."""


def compose(*processors: LogitsProcessor) -> LogitsProcessor:
    """Several processors as one, applied in order.

    >>> process = compose(bad_words([[0]]), repetition_penalty(2.0))
    >>> process(torch.ones(1, 3), [SequenceView([1])])
    tensor([[  -inf, 0.5000, 1.0000]])
    """

    def process_all(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
        for process in processors:
            logits = process(logits, sequences)
        return logits

    return process_all


def repetition_penalty(penalty: float) -> LogitsProcessor:
    """Repetition penalty of CTRL (Keskar et al. 2019): divide the logits of seen tokens; multiply negative ones.

    As in Hugging Face transformers, prompt tokens count, and the number of occurrences does not.

    >>> repetition_penalty(2.0)(torch.tensor([[4.0, -4.0, 4.0]]), [SequenceView([0], [1])])
    tensor([[ 2., -8.,  4.]])
    """
    _check_positive("repetition_penalty", penalty)
    return lambda logits, sequences: penalize_tokens(logits, _all_ids(sequences), penalty)


def encoder_repetition_penalty(penalty: float, source_of: SourceLookup) -> LogitsProcessor:
    """Raise the logits of source tokens: Hugging Face's `encoder_repetition_penalty`.

    >>> encoder_repetition_penalty(2.0, lambda one: [0, 1])(torch.tensor([[4.0, -4.0, 4.0]]), [SequenceView([2])])
    tensor([[ 8., -2.,  4.]])
    """
    _check_positive("encoder_repetition_penalty", penalty)
    return lambda logits, sequences: penalize_tokens(logits, _source_ids(sequences, source_of), 1 / penalty)


def presence_penalty(penalty: float) -> LogitsProcessor:
    """Subtract the penalty from every generated token once. As in OpenAI's definition, the prompt does not count.

    >>> presence_penalty(0.5)(torch.zeros(1, 3), [SequenceView([0], [1, 1])])
    tensor([[ 0.0000, -0.5000,  0.0000]])
    """
    _check_finite("presence_penalty", penalty)
    return lambda logits, sequences: logits - penalty * count_tokens(logits, _generated_ids(sequences)).clamp(max=1)


def frequency_penalty(penalty: float) -> LogitsProcessor:
    """Subtract the penalty for each time a token was generated. As in OpenAI's definition, the prompt does not count.

    >>> frequency_penalty(0.5)(torch.zeros(1, 3), [SequenceView([0], [1, 1])])
    tensor([[ 0., -1.,  0.]])
    """
    _check_finite("frequency_penalty", penalty)
    return lambda logits, sequences: logits - penalty * count_tokens(logits, _generated_ids(sequences))


def logit_bias(bias: Mapping[int, float]) -> LogitsProcessor:
    """Add a bias to the logits of these tokens. As in OpenAI's definition, -100 bans a token and 100 forces it.

    >>> logit_bias({2: 1.5})(torch.zeros(1, 3), [SequenceView([0])])
    tensor([[0.0000, 0.0000, 1.5000]])
    """
    for value in bias.values():
        _check_finite("logit_bias", value)

    def process(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
        known = {id: value for id, value in bias.items() if 0 <= id < logits.shape[-1]}
        ids = torch.tensor(list(known), dtype=torch.long, device=logits.device)
        return logits.index_add(1, ids, logits.new_tensor(list(known.values())).expand(len(logits), -1))

    return process


def no_repeat_ngram(size: int) -> LogitsProcessor:
    """No n-gram of this size occurs twice, the prompt included.

    >>> no_repeat_ngram(2)(torch.zeros(1, 3), [SequenceView([1, 2, 1])])
    tensor([[0., 0., -inf]])
    """
    return _ban_ngrams("no_repeat_ngram", size, _all_ids)


def encoder_no_repeat_ngram(size: int, source_of: SourceLookup) -> LogitsProcessor:
    """No n-gram of the source is generated: Hugging Face's `encoder_no_repeat_ngram_size`.

    >>> encoder_no_repeat_ngram(2, lambda one: [1, 2])(torch.zeros(1, 3), [SequenceView([1])])
    tensor([[0., 0., -inf]])
    """
    return _ban_ngrams("encoder_no_repeat_ngram", size, lambda sequences: _source_ids(sequences, source_of))


def bad_words(words: Iterable[Sequence[int]]) -> LogitsProcessor:
    """None of these words is generated. Each is a list of ids; the last is masked after the others.

    >>> bad_words([[0], [1, 2]])(torch.zeros(1, 3), [SequenceView([1])])
    tensor([[-inf, 0., -inf]])
    """
    masked = [list(word) for word in words]
    if not all(masked):
        raise ConfigError("a bad word must have at least one id, got an empty list")
    single = suppress_tokens([word[0] for word in masked if len(word) == 1])
    several = [word for word in masked if len(word) > 1]
    max_prefix = max(map(len, several), default=1) - 1

    def process(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
        logits = single(logits, sequences)
        if not several:
            return logits
        tails = [one.last(max_prefix) for one in sequences]
        return mask_tokens(
            logits, [[word[-1] for word in several if tail[-len(word) + 1 :] == word[:-1]] for tail in tails]
        )

    return process


def suppress_tokens(ids: Iterable[int], step: int | None = None) -> LogitsProcessor:
    """Mask these tokens; with `step`, only as the new token with this index, from 0.

    >>> suppress_tokens([0, 2])(torch.zeros(1, 3), [SequenceView([1])])
    tensor([[-inf, 0., -inf]])
    >>> suppress_tokens([0], step=0)(torch.zeros(2, 2), [SequenceView([1]), SequenceView([1], [1])])
    tensor([[-inf, 0.],
            [0., 0.]])
    """
    unique = torch.tensor(sorted(set(ids)), dtype=torch.long)

    def process(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
        known = unique[unique < logits.shape[-1]].to(logits.device)
        if not len(known):
            return logits
        suppressed = logits.index_fill(1, known, -torch.inf)
        if step is None:
            return suppressed
        is_step = torch.tensor([len(one.generated) == step for one in sequences], device=logits.device)
        return torch.where(is_step[:, None], suppressed, logits)

    return process


def prefix_allowed_tokens(allowed: Callable[[SequenceView], Collection[int]]) -> LogitsProcessor:
    """Mask all tokens but those that a function allows after a sequence.

    >>> prefix_allowed_tokens(lambda one: [one.ids[-1] + 1])(torch.zeros(1, 3), [SequenceView([0])])
    tensor([[-inf, 0., -inf]])
    """

    def process(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
        return logits.masked_fill(~token_mask(logits, [allowed(one) for one in sequences]), -torch.inf)

    return process


def forced_prefix(ids: Sequence[int]) -> LogitsProcessor:
    """Force the first generated tokens.

    >>> forced_prefix([2])(torch.zeros(2, 3), [SequenceView([0]), SequenceView([0], [2])])
    tensor([[-inf, -inf, 0.],
            [0., 0., 0.]])
    """
    prefix = list(ids)

    def process(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
        return force_tokens(logits, [prefix[len(one.generated) : len(one.generated) + 1] for one in sequences])

    return process


def min_new_tokens(count: int, eos_ids: int | Collection[int]) -> LogitsProcessor:
    """Mask end-of-sequence tokens before `count` new tokens.

    >>> min_new_tokens(2, eos_ids=0)(torch.zeros(2, 2), [SequenceView([1], [1]), SequenceView([1], [1, 1])])
    tensor([[-inf, 0.],
            [0., 0.]])
    """
    eos = as_id_set(eos_ids)
    return lambda logits, sequences: mask_tokens(
        logits, [eos if len(one.generated) < count else () for one in sequences]
    )


def exponential_decay_length_penalty(start: int, factor: float, eos_ids: int | Collection[int]) -> LogitsProcessor:
    """Raise end-of-sequence logits after `start` new tokens: Hugging Face's `exponential_decay_length_penalty`.

    A logit rises by its own magnitude times factor ** (tokens beyond start) - 1.

    >>> views = [SequenceView([1], [1] * count) for count in (1, 2, 3)]
    >>> exponential_decay_length_penalty(1, 2.0, eos_ids=0)(torch.full((3, 2), -1.0), views)
    tensor([[-1., -1.],
            [ 0., -1.],
            [ 2., -1.]])
    """
    if start < 0 or not 0 < factor < math.inf:
        raise ConfigError(
            f"exponential_decay_length_penalty needs start >= 0 and a factor > 0, got {start} and {factor}"
        )
    eos = sorted(as_id_set(eos_ids))

    def process(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
        beyond = torch.tensor([max(len(one.generated) - start, 0) for one in sequences], device=logits.device)
        old = logits[:, eos]
        raised = old + old.abs() * (torch.pow(float(factor), beyond) - 1)[:, None].to(old)
        raised = torch.where(old.isfinite() & (beyond > 0)[:, None], raised, old)  # a masked token stays masked
        return logits.index_copy(1, torch.tensor(eos, device=logits.device), raised)

    return process


def forced_eos(max_new_tokens: int, eos_ids: int | Collection[int]) -> LogitsProcessor:
    """Force an end-of-sequence token as the last of `max_new_tokens`.

    >>> forced_eos(2, eos_ids=0)(torch.zeros(2, 2), [SequenceView([1]), SequenceView([1], [1])])
    tensor([[0., 0.],
            [0., -inf]])
    """
    if max_new_tokens < 1:
        raise ConfigError(f"forced_eos needs max_new_tokens >= 1, got {max_new_tokens}")
    eos = sorted(as_id_set(eos_ids))
    return lambda logits, sequences: force_tokens(
        logits, [eos if len(one.generated) == max_new_tokens - 1 else [] for one in sequences]
    )


def renormalize_logits(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
    """Log-softmax over the tokens that are left; rows without any are kept as they are."""
    is_empty = logits.amax(-1, keepdim=True) == -torch.inf
    return torch.where(is_empty, logits, logits.log_softmax(-1))


def as_id_set(ids: int | Collection[int]) -> frozenset[int]:
    """One token id, several, or none, as a set."""
    return frozenset([ids]) if isinstance(ids, int) else frozenset(ids)


def _ban_ngrams(name: str, size: int, texts_of: Callable[[Sequence[SequenceView]], Tensor]) -> LogitsProcessor:
    """Mask tokens that would repeat an n-gram of each sequence's text."""
    if size < 1:
        raise ConfigError(f"{name} size must be >= 1, got {size}")

    def process(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
        continuations = ngram_continuations(texts_of(sequences), _all_ids(sequences), size)
        return replace_at(logits, flat_indices(logits, *continuations), -torch.inf)

    return process


def _source_ids(sequences: Sequence[SequenceView], source_of: SourceLookup) -> Tensor:
    return pad_segments([(source_of(one),) for one in sequences])


def _all_ids(sequences: Sequence[SequenceView]) -> Tensor:
    return pad_segments([(one.prompt, one.generated) for one in sequences])


def _generated_ids(sequences: Sequence[SequenceView]) -> Tensor:
    return pad_segments([(one.generated,) for one in sequences])


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} must be a finite number > 0 (1 has no effect), got {value}")


def _check_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number (0 has no effect), got {value}")
