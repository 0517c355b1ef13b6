"""What may be said, and what had better not be. Parity with Hugging Face's is in tests/parity/test_generate.py."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode import (
    Rule,
    Said,
    allow,
    end_at,
    forbid,
    forced_prefix,
    frequency_penalty,
    least,
    logit_bias,
    no_repeats,
    presence_penalty,
    repetition_penalty,
    together,
)

VOCAB = 5
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=8)
RULES: dict[str, Rule] = {
    "repetition": repetition_penalty(1.7),
    "presence": presence_penalty(0.4),
    "frequency": frequency_penalty(0.3),
    "bias": logit_bias({1: 2.5, 3: -100.0}),
    "no repeats": no_repeats(2),
    "forbid": forbid([[1], [2, 3]]),
    "allow": allow(lambda said: {said.ids[-1], len(said.new) % VOCAB}),
    "prefix": forced_prefix([3, 1]),
    "least": least(3, end=[0, 4]),
    "end": end_at(4, end=0),
    "together": together(presence_penalty(1.0), no_repeats(1)),
}


def drawn(seed: int, rows: int) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=30)
@given(seed=st.integers(0, 1000), rows=st.lists(st.tuples(IDS.filter(bool), IDS), min_size=1, max_size=4))
def test_a_rule_sees_one_row_at_a_time_and_changes_nothing_in_place(
    name: str, seed: int, rows: list[tuple[list[int], list[int]]]
) -> None:
    said = [Said(prompt, new, number) for number, (prompt, new) in enumerate(rows)]
    scores = drawn(seed, len(rows))
    before = scores.clone()
    ruled = RULES[name](scores, said)
    assert scores.equal(before)
    for row, one in enumerate(said):
        assert RULES[name](scores[row : row + 1], [one]).equal(ruled[row : row + 1])


@given(IDS, IDS, st.floats(-2, 2), st.floats(-2, 2))
def test_presence_and_frequency_are_taken_off_as_openai_says(
    prompt: list[int], new: list[int], presence: float, frequency: float
) -> None:
    scores, counts = drawn(0, 1), Counter(new)
    ruled = together(presence_penalty(presence), frequency_penalty(frequency))(scores, [Said(prompt, new)])
    wanted = [scores[0, id].item() - counts[id] * frequency - (counts[id] > 0) * presence for id in range(VOCAB)]
    torch.testing.assert_close(ruled[0], torch.tensor(wanted), atol=1e-5, rtol=1e-5)


@given(IDS.filter(bool), st.integers(1, 3), st.integers(0, 100))
def test_with_no_repeats_nothing_comes_twice(prompt: list[int], length: int, seed: int) -> None:
    rule, new, before = no_repeats(length), list[int](), grams(prompt, length)
    for step in range(6):
        scores = rule(drawn(seed + step, 1), [Said(prompt, new)])
        if not scores.isfinite().any():
            break
        new.append(int(scores.argmax()))
    whole = grams([*prompt, *new], length)
    assert len(whole) - len(set(whole)) == len(before) - len(set(before))


def grams(ids: list[int], length: int) -> list[tuple[int, ...]]:
    return [tuple(ids[i : i + length]) for i in range(len(ids) - length + 1)]


def allowed(rule: Rule, prompt: list[int], new: list[int]) -> set[int]:
    return set(rule(torch.zeros(1, VOCAB), [Said(prompt, new)])[0].isfinite().nonzero()[:, 0].tolist())


def test_a_forbidden_word_may_begin_but_not_end_and_it_may_begin_in_the_prompt() -> None:
    rule = forbid([[1, 2, 3], [4]])
    assert allowed(rule, [0], []) == {0, 1, 2, 3}
    assert allowed(rule, [1], [2]) == {0, 1, 2}
    assert allowed(rule, [2], []) == {0, 1, 2, 3}


def test_a_forced_prefix_comes_even_where_it_was_forbidden_and_then_all_is_free() -> None:
    rule = together(forbid([[3]]), forced_prefix([3, 1]))
    assert [allowed(rule, [0], new) for new in ([], [3], [3, 1])] == [{3}, {1}, {0, 1, 2, 4}]


def test_an_end_comes_not_before_the_least_and_at_last_for_certain() -> None:
    rule = together(least(2, end=[0, 4]), end_at(4, end=0))
    everything, others = {0, 1, 2, 3, 4}, {1, 2, 3}
    assert [allowed(rule, [0], [1] * length) for length in range(5)] == [others, others, everything, {0}, everything]


def test_ids_that_have_no_score_are_passed_over() -> None:
    scores, said = drawn(0, 1), [Said([99, 1], [77])]
    assert repetition_penalty(2.0)(scores, said).ne(scores).sum() == 1
    assert frequency_penalty(2.0)(scores, said).equal(scores)
    assert logit_bias({99: 5.0, 1: 2.0})(scores, said).sub(scores).tolist()[0] == pytest.approx([0, 2, 0, 0, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: repetition_penalty(0.0), "a repetition penalty is a number above 0, and 1 changes nothing; 0.0 came"),
        (lambda: presence_penalty(float("nan")), "a presence penalty is a number, and 0 changes nothing; nan came"),
        (lambda: frequency_penalty(float("inf")), "a frequency penalty is a number"),
        (lambda: logit_bias({1: float("nan")}), "a bias is a number, and 0 changes nothing; nan came"),
        (lambda: no_repeats(0), "repeats are of 1 word at least"),
        (lambda: forbid([[]]), "a forbidden word has at least one id"),
        (lambda: end_at(0, end=0), "to end at the last word, there has to be one"),
    ],
    ids=["repetition", "presence", "frequency", "bias", "no repeats", "forbid", "end"],
)
def test_numbers_that_mean_nothing_are_refused(make: Callable[[], Rule], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
