"""Which word it shall be."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import Said, likeliest, sample
from softlook.decode.picking import Sample, dice, drawn, min_p, tempered, top_k, top_p

SEEDS = st.integers(0, 10_000)


def drawn_scores(seed: int, rows: int = 3, vocab: int = 9) -> torch.Tensor:
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def everyone(rows: int, word: int = 0) -> list[Said]:
    return [Said([1], [0] * word, number) for number in range(rows)]


def test_the_likeliest_word_has_the_greatest_score_and_of_equals_the_least_id() -> None:
    scores = torch.tensor([[0.0, 2.0, 1.0], [5.0, 5.0, 5.0]])
    assert likeliest()(scores, everyone(2)).tolist() == [1, 0]


@given(SEEDS, SEEDS, st.integers(0, 5), st.permutations(range(4)), st.integers(1, 4))
def test_what_a_row_draws_depends_neither_on_its_neighbours_nor_on_its_place(
    seed: int, dice_seed: int, word: int, order: list[int], stay: int
) -> None:
    scores, said, pick = drawn_scores(seed, 4), everyone(4, word), sample(temperature=1.3, seed=dice_seed)
    together = pick(scores, said)
    some = order[:stay]
    assert pick(scores[some], [said[row] for row in some]).tolist() == together[some].tolist()


def test_with_a_seed_words_repeat_and_another_seed_sequence_or_place_has_other_dice() -> None:
    scores, words = torch.zeros(1, 1000), range(20)

    def said(seed: int, number: int) -> list[int]:
        return [int(sample(seed=seed)(scores, [Said([1], [0] * word, number)])) for word in words]

    assert said(1, 0) == said(1, 0)
    assert len({tuple(said(seed, number)) for seed in (1, 2) for number in (0, 1)}) == 4
    assert len(set(said(1, 0))) > 10


def test_without_a_seed_the_generator_of_torch_is_asked() -> None:
    def said() -> list[int]:
        torch.manual_seed(5)
        return [int(sample()(torch.zeros(1, 1000), everyone(1))) for _ in range(9)]

    assert said() == said()
    assert len(set(said())) > 5


def test_dice_are_even() -> None:
    thrown = sorted(dice(3, number, word) for number in range(50) for word in range(40))
    assert all(0 <= one < 1 for one in thrown)
    assert max(abs(one - place / 2000) for place, one in enumerate(thrown)) < 1.95 / math.sqrt(2000)  # p < 0.001


@given(SEEDS)
def test_words_are_drawn_as_often_as_they_are_likely(seed: int) -> None:
    scores = drawn_scores(seed, 1)
    even = (torch.arange(4_000) + 0.5) / 4_000
    counts = drawn(scores.expand(4_000, -1), even).bincount(minlength=9) / 4_000
    torch.testing.assert_close(counts, scores.softmax(-1)[0], atol=5e-4, rtol=0)


@given(SEEDS, st.floats(0, 1, exclude_max=True))
def test_what_is_out_is_never_drawn(seed: int, thrown: float) -> None:
    scores = drawn_scores(seed, 1)
    out = torch.rand(1, 9) < 0.7
    out[0, seed % 9] = False
    word = drawn(scores.masked_fill(out, -torch.inf), torch.tensor([thrown], dtype=torch.float64))
    assert not out[0, word]


@given(
    SEEDS,
    st.floats(0.01, 10),
    st.none() | st.integers(1, 20),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
)
def test_the_likeliest_always_stays_and_what_stays_keeps_its_order(
    seed: int, temperature: float, k: int | None, p: float | None, least: float | None
) -> None:
    scores = drawn_scores(seed)
    warped = Sample(temperature, k, p, least).warped(scores)
    assert warped.argmax(-1).tolist() == scores.argmax(-1).tolist()
    for row, one in zip(scores, warped, strict=True):
        stay = one.isfinite()
        assert stay.any()
        assert row[stay].min() > row[~stay].max() if (~stay).any() else True
        torch.testing.assert_close(one[stay], (row[stay] - row.max()) / temperature)


@given(SEEDS, st.floats(0.05, 0.95))
def test_top_p_keeps_the_fewest_that_reach_it(seed: int, p: float) -> None:
    scores = drawn_scores(seed, 1)
    chances = scores.softmax(-1)[top_p(scores, p).isfinite()]
    assert chances.sum() >= p - 1e-6
    assert chances.sum() - chances.min() < p + 1e-6


def test_of_words_that_are_alike_top_k_keeps_all_and_top_p_the_first() -> None:
    even = torch.zeros(1, 4)
    assert top_k(even, 2).isfinite().all()
    assert top_p(even, 0.5).isfinite().tolist() == [[True, True, False, False]]
    assert top_p(even, 0.0).isfinite().tolist() == [[True, False, False, False]]
    assert min_p(even, 1.0).isfinite().all()


def test_top_k_of_more_than_there_are_and_top_p_of_one_keep_everything() -> None:
    scores = drawn_scores(0)
    for warped in (top_k(scores, 100), top_p(scores, 1.0), min_p(scores, 0.0), tempered(scores, 1.0)):
        assert warped.equal(scores)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"temperature": 0.0}, "0.0 came. For the likeliest word, pick=likeliest()"),
        ({"temperature": -1.0}, "a temperature is a number from 1e-06 up"),
        ({"temperature": math.nan}, "nan came"),
        ({"temperature": math.inf}, "inf came"),
        ({"top_k": 0}, "top_k is how many words stay, 1 at least; 0 came"),
        ({"top_k": 1.5}, "1.5 came"),
        ({"top_p": 1.1}, "top_p is a share of the probability, from 0 to 1; 1.1 came"),
        ({"top_p": math.nan}, "nan came"),
        ({"min_p": -0.1}, "min_p is a share of the probability"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_numbers_that_mean_nothing_are_refused_before_a_model_has_worked(numbers: dict, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sample(**numbers)
    assert message in str(refused.value)
