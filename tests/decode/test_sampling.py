"""Samplers and logit warpers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import Greedy, Multinomial, SequenceView
from softlook.decode.sampling import (
    apply_temperature,
    min_p,
    sample_inverse_cdf,
    seeded_uniform,
    top_k,
    top_p,
)

SEEDS = st.integers(0, 10_000)


def random_logits(seed: int, rows: int = 3, vocab: int = 9) -> torch.Tensor:
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def views(rows: int, token: int = 0) -> list[SequenceView]:
    return [SequenceView([1], [0] * token, number) for number in range(rows)]


def test_greedy_takes_the_first_maximum() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 5.0, 5.0]])
    assert Greedy()(logits, views(2)).tolist() == [1, 0]


@given(SEEDS, SEEDS, st.integers(0, 5), st.permutations(range(4)), st.integers(1, 4))
def test_samples_are_independent_of_the_batch(
    seed: int, sampler_seed: int, token: int, order: list[int], kept: int
) -> None:
    logits, generated, sampler = (
        random_logits(seed, 4),
        views(4, token),
        Multinomial(temperature=1.3, seed=sampler_seed),
    )
    batched = sampler(logits, generated)
    rows = order[:kept]
    assert sampler(logits[rows], [generated[row] for row in rows]).tolist() == batched[rows].tolist()


def test_seeded_samples_are_reproducible() -> None:
    logits, tokens = torch.zeros(1, 1000), range(20)

    def generated(seed: int, number: int) -> list[int]:
        return [int(Multinomial(seed=seed)(logits, [SequenceView([1], [0] * token, number)])) for token in tokens]

    assert generated(1, 0) == generated(1, 0)
    assert len({tuple(generated(seed, number)) for seed in (1, 2) for number in (0, 1)}) == 4
    assert len(set(generated(1, 0))) > 10


def test_unseeded_samples_use_the_torch_generator() -> None:
    def generated() -> list[int]:
        torch.manual_seed(5)
        return [int(Multinomial()(torch.zeros(1, 1000), views(1))) for _ in range(9)]

    assert generated() == generated()
    assert len(set(generated())) > 5


def test_seeded_uniforms_are_uniform() -> None:
    uniforms = sorted(seeded_uniform(3, number, token) for number in range(50) for token in range(40))
    assert all(0 <= one < 1 for one in uniforms)
    assert max(abs(one - rank / 2000) for rank, one in enumerate(uniforms)) < 1.95 / math.sqrt(2000)  # p < 0.001


@given(SEEDS)
def test_sample_frequencies_match_probabilities(seed: int) -> None:
    logits = random_logits(seed, 1)
    uniform = (torch.arange(4_000) + 0.5) / 4_000
    counts = sample_inverse_cdf(logits.expand(4_000, -1), uniform).bincount(minlength=9) / 4_000
    torch.testing.assert_close(counts, logits.softmax(-1)[0], atol=5e-4, rtol=0)


@given(SEEDS, st.floats(0, 1, exclude_max=True))
def test_excluded_tokens_are_never_sampled(seed: int, uniform: float) -> None:
    logits = random_logits(seed, 1)
    excluded = torch.rand(1, 9) < 0.7
    excluded[0, seed % 9] = False
    token = sample_inverse_cdf(logits.masked_fill(excluded, -torch.inf), torch.tensor([uniform], dtype=torch.float64))
    assert not excluded[0, token]


@given(
    SEEDS,
    st.floats(0.01, 10),
    st.none() | st.integers(1, 20),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
)
def test_filters_keep_the_maximum_and_the_order(
    seed: int, temperature: float, k: int | None, p: float | None, min_probability: float | None
) -> None:
    logits = random_logits(seed)
    warped = Multinomial(temperature, k, p, min_probability).warp_logits(logits)
    assert warped.argmax(-1).tolist() == logits.argmax(-1).tolist()
    for row, one in zip(logits, warped, strict=True):
        kept = one.isfinite()
        assert kept.any()
        assert row[kept].min() > row[~kept].max() if (~kept).any() else True
        torch.testing.assert_close(one[kept], (row[kept] - row.max()) / temperature)


@given(SEEDS, st.floats(0.05, 0.95))
def test_top_p_keeps_the_smallest_set(seed: int, p: float) -> None:
    logits = random_logits(seed, 1)
    probabilities = logits.softmax(-1)[top_p(logits, p).isfinite()]
    assert probabilities.sum() >= p - 1e-6
    assert probabilities.sum() - probabilities.min() < p + 1e-6


def test_ties_in_top_k_and_top_p() -> None:
    uniform = torch.zeros(1, 4)
    assert top_k(uniform, 2).isfinite().all()
    assert top_p(uniform, 0.5).isfinite().tolist() == [[True, True, False, False]]
    assert top_p(uniform, 0.0).isfinite().tolist() == [[True, False, False, False]]
    assert min_p(uniform, 1.0).isfinite().all()


def test_large_top_k_and_top_p_one_keep_everything() -> None:
    logits = random_logits(0)
    for warped in (top_k(logits, 100), top_p(logits, 1.0), min_p(logits, 0.0), apply_temperature(logits, 1.0)):
        assert warped.equal(logits)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temperature": 0.0}, "got 0.0. For greedy decoding, pass sampler=Greedy()"),
        ({"temperature": -1.0}, "temperature must be a finite number >= 1e-06"),
        ({"temperature": math.nan}, "got nan"),
        ({"temperature": math.inf}, "got inf"),
        ({"top_k": 0}, "top_k must be an integer >= 1, got 0"),
        ({"top_k": 1.5}, "got 1.5"),
        ({"top_p": 1.1}, "top_p must be in [0, 1], got 1.1"),
        ({"top_p": math.nan}, "got nan"),
        ({"min_p": -0.1}, "min_p must be in [0, 1]"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_invalid_sampling_parameters_raise_errors(params: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Multinomial(**params)
    assert message in str(caught.value)
