"""Logits processors. Parity with transformers is in tests/parity/test_generate.py."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode import (
    LogitsProcessor,
    SequenceView,
    bad_words,
    compose,
    forced_eos,
    forced_prefix,
    frequency_penalty,
    logit_bias,
    min_new_tokens,
    no_repeat_ngram,
    prefix_allowed_tokens,
    presence_penalty,
    repetition_penalty,
)

VOCAB = 5
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=8)
PROCESSORS: dict[str, LogitsProcessor] = {
    "repetition": repetition_penalty(1.7),
    "presence": presence_penalty(0.4),
    "frequency": frequency_penalty(0.3),
    "bias": logit_bias({1: 2.5, 3: -100.0}),
    "no repeats": no_repeat_ngram(2),
    "bad words": bad_words([[1], [2, 3]]),
    "allowed tokens": prefix_allowed_tokens(lambda view: {view.ids[-1], len(view.generated) % VOCAB}),
    "prefix": forced_prefix([3, 1]),
    "min_new_tokens": min_new_tokens(3, eos_ids=[0, 4]),
    "forced_eos": forced_eos(4, eos_ids=0),
    "composed": compose(presence_penalty(1.0), no_repeat_ngram(1)),
}


def random_logits(seed: int, rows: int) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=30)
@given(seed=st.integers(0, 1000), rows=st.lists(st.tuples(IDS.filter(bool), IDS), min_size=1, max_size=4))
def test_processors_are_row_wise_and_not_in_place(
    name: str, seed: int, rows: list[tuple[list[int], list[int]]]
) -> None:
    views = [SequenceView(prompt, new, number) for number, (prompt, new) in enumerate(rows)]
    logits = random_logits(seed, len(rows))
    before = logits.clone()
    processed = PROCESSORS[name](logits, views)
    assert logits.equal(before)
    for row, one in enumerate(views):
        assert PROCESSORS[name](logits[row : row + 1], [one]).equal(processed[row : row + 1])


@given(IDS, IDS, st.floats(-2, 2), st.floats(-2, 2))
def test_presence_and_frequency_penalties(prompt: list[int], new: list[int], presence: float, frequency: float) -> None:
    logits, counts = random_logits(0, 1), Counter(new)
    processed = compose(presence_penalty(presence), frequency_penalty(frequency))(logits, [SequenceView(prompt, new)])
    expected = [logits[0, id].item() - counts[id] * frequency - (counts[id] > 0) * presence for id in range(VOCAB)]
    torch.testing.assert_close(processed[0], torch.tensor(expected), atol=1e-5, rtol=1e-5)


@given(IDS.filter(bool), st.integers(1, 3), st.integers(0, 100))
def test_no_repeat_ngram_prevents_repetition(prompt: list[int], length: int, seed: int) -> None:
    processor, new, before = no_repeat_ngram(length), list[int](), ngrams(prompt, length)
    for step in range(6):
        logits = processor(random_logits(seed + step, 1), [SequenceView(prompt, new)])
        if not logits.isfinite().any():
            break
        new.append(int(logits.argmax()))
    whole = ngrams([*prompt, *new], length)
    assert len(whole) - len(set(whole)) == len(before) - len(set(before))


def ngrams(ids: list[int], length: int) -> list[tuple[int, ...]]:
    return [tuple(ids[i : i + length]) for i in range(len(ids) - length + 1)]


def allowed(processor: LogitsProcessor, prompt: list[int], new: list[int]) -> set[int]:
    return set(processor(torch.zeros(1, VOCAB), [SequenceView(prompt, new)])[0].isfinite().nonzero()[:, 0].tolist())


def test_bad_words_may_start_but_not_end() -> None:
    processor = bad_words([[1, 2, 3], [4]])
    assert allowed(processor, [0], []) == {0, 1, 2, 3}
    assert allowed(processor, [1], [2]) == {0, 1, 2}
    assert allowed(processor, [2], []) == {0, 1, 2, 3}


def test_forced_prefix_overrides_masks() -> None:
    processor = compose(bad_words([[3]]), forced_prefix([3, 1]))
    assert [allowed(processor, [0], new) for new in ([], [3], [3, 1])] == [{3}, {1}, {0, 1, 2, 4}]


def test_min_new_tokens_and_forced_eos() -> None:
    processor = compose(min_new_tokens(2, eos_ids=[0, 4]), forced_eos(4, eos_ids=0))
    everything, others = {0, 1, 2, 3, 4}, {1, 2, 3}
    assert [allowed(processor, [0], [1] * length) for length in range(5)] == [
        others,
        others,
        everything,
        {0},
        everything,
    ]


def test_ids_outside_the_vocabulary_are_ignored() -> None:
    logits, views = random_logits(0, 1), [SequenceView([99, 1], [77])]
    assert repetition_penalty(2.0)(logits, views).ne(logits).sum() == 1
    assert frequency_penalty(2.0)(logits, views).equal(logits)
    assert logit_bias({99: 5.0, 1: 2.0})(logits, views).sub(logits).tolist()[0] == pytest.approx([0, 2, 0, 0, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: repetition_penalty(0.0), "repetition_penalty must be a finite number > 0"),
        (lambda: presence_penalty(float("nan")), "presence_penalty must be a finite number"),
        (lambda: frequency_penalty(float("inf")), "frequency_penalty must be a finite number"),
        (lambda: logit_bias({1: float("nan")}), "logit_bias must be a finite number"),
        (lambda: no_repeat_ngram(0), "size must be >= 1, got 0"),
        (lambda: bad_words([[]]), "a bad word must have at least one id"),
        (lambda: forced_eos(0, eos_ids=0), "forced_eos needs max_new_tokens >= 1, got 0"),
    ],
    ids=["repetition", "presence", "frequency", "bias", "no repeats", "bad words", "forced_eos"],
)
def test_invalid_processor_arguments_raise_errors(make: Callable[[], LogitsProcessor], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
