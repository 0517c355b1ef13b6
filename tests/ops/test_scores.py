"""Score functions, compared with their formulas pair by pair."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from softlook import ShapeError, attention, attention_scores, attention_weights, scores
from tests.ops_cases import DEVICE, TensorRNG, close

RNG = TensorRNG(torch.Generator().manual_seed(3), torch.float64)
WEIGHT, PER_HEAD = RNG.normal(4, 4), RNG.normal(2, 4, 4)
TO_QUERY, TO_KEY, VECTOR = RNG.normal(4, 3), RNG.normal(4, 3), RNG.normal(3)

FORMULAS: dict[str, tuple[Any, Callable[[Tensor, Tensor, int], Tensor]]] = {
    "none": (None, lambda q, k, h: q @ k / 2),
    "dot": (scores.dot(), lambda q, k, h: q @ k),
    "scaled": (scores.scaled_dot(), lambda q, k, h: q @ k / 2),
    "scaled with temperature": (scores.scaled_dot(temperature=3.0), lambda q, k, h: q @ k / 3),
    "cosine": (scores.cosine(temperature=0.5), lambda q, k, h: q @ k / q.norm() / k.norm() / 0.5),
    "bilinear": (scores.bilinear(WEIGHT, temperature=2.0), lambda q, k, h: q @ WEIGHT @ k / 2),
    "bilinear per head": (scores.bilinear(PER_HEAD), lambda q, k, h: q @ PER_HEAD[h] @ k),
    "additive": (
        scores.additive(TO_QUERY, TO_KEY, VECTOR),
        lambda q, k, h: (q @ TO_QUERY + k @ TO_KEY).tanh() @ VECTOR,
    ),
    "by hand": (lambda q, k: -torch.cdist(q, k), lambda q, k, h: -(q - k).norm()),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_score_matches_its_formula(name: str) -> None:
    score, formula = FORMULAS[name]
    query, key = RNG.normal(2, 2, 3, 4), RNG.normal(2, 1, 5, 4)
    actual = attention_scores(query, key, score=score, stage="scaled")
    for b in range(2):
        for h in range(2):
            expected = [[formula(query[b, h, i], key[b, 0, j], h) for j in range(5)] for i in range(3)]
            close(actual[b, h], torch.tensor(expected, dtype=torch.float64, device=DEVICE))


def test_squared_distance_up_to_a_constant_per_query() -> None:
    query, key = RNG.normal(1, 2, 3, 4), RNG.normal(1, 2, 5, 4)
    expected = (-torch.cdist(query, key).square() / 2 / 1.5).softmax(-1)
    close(attention_weights(query, key, score=scores.squared_distance(temperature=1.5)), expected)


def test_by_distance_every_key_matches_itself_best() -> None:
    key = 5 * RNG.normal(1, 1, 6, 4)
    weights = attention_weights(key, key, score=scores.squared_distance(temperature=0.1))
    assert weights[0, 0].argmax(-1).tolist() == list(range(6))


def test_an_explicit_scale_replaces_the_temperature() -> None:
    query, key = RNG.normal(1, 2, 3, 4), RNG.normal(1, 2, 5, 4)
    close(attention_scores(query, key, score=scores.scaled_dot(7.0), scale=0.1), query @ key.mT * 0.1)
    by_hand = attention_scores(query, key, score=lambda q, k: q @ k.mT, scale=0.1)
    close(by_hand, query @ key.mT * 0.1)


def test_a_score_called_directly_matches_attention_scores() -> None:
    query, key = RNG.normal(1, 2, 3, 4), RNG.normal(1, 2, 5, 4)
    for score in (
        scores.dot(),
        scores.scaled_dot(),
        scores.cosine(0.3),
        scores.squared_distance(),
        scores.bilinear(WEIGHT),
    ):
        close(score(query, key), attention_scores(query, key, score=score))


def test_bilinear_takes_two_dimensions() -> None:
    query, key, weight = RNG.normal(1, 2, 3, 4), RNG.normal(1, 2, 5, 6), RNG.normal(4, 6)
    close(attention_scores(query, key, score=scores.bilinear(weight)), query @ weight @ key.mT)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_weights_of_a_score_may_have_the_dtype_of_the_query(dtype: torch.dtype) -> None:
    query, key = RNG.normal(1, 2, 3, 4).to(dtype), RNG.normal(1, 2, 5, 4).to(dtype)
    for score in (
        scores.bilinear(WEIGHT.to(dtype)),
        scores.additive(TO_QUERY.to(dtype), TO_KEY.to(dtype), VECTOR.to(dtype)),
    ):
        assert attention(query, key, key, score=score).dtype == dtype


def test_gradients_reach_the_weights_of_a_score() -> None:
    query = RNG.normal(1, 2, 3, 4)
    weight, vector = WEIGHT.clone().requires_grad_(), VECTOR.clone().requires_grad_()
    for score, leaf in ((scores.bilinear(weight), weight), (scores.additive(TO_QUERY, TO_KEY, vector), vector)):
        attention(query, query, query, score=score).square().sum().backward()
        assert leaf.grad is not None and leaf.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "make", [scores.scaled_dot, scores.cosine, scores.squared_distance, lambda t: scores.bilinear(WEIGHT, t)]
)
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_is_above_zero(make: Callable[[float], object], temperature: float) -> None:
    with pytest.raises(ValueError, match=f"temperature expects a number above 0, got {temperature}"):
        make(temperature)


@pytest.mark.usefixtures("no_shape_checks")
def test_a_bilinear_weight_of_another_size_raises_an_error() -> None:
    query = RNG.normal(1, 2, 3, 5)
    with pytest.raises(ShapeError, match=r"a weight \(\.\.\., 5, 5\), query by key dimension, got \(4, 4\)"):
        attention(query, query, query, score=scores.bilinear(WEIGHT))


@pytest.mark.usefixtures("no_shape_checks")
def test_two_dimensions_without_a_bilinear_score_raise_an_error() -> None:
    with pytest.raises(ShapeError, match=r"query has head_dim 4, key has 6.*scores\.bilinear"):
        attention(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 6), torch.zeros(1, 1, 3, 6))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_cosine_with_a_zero_vector_is_zero_in_every_dtype(dtype: torch.dtype) -> None:
    zeros, some = torch.zeros(1, 1, 2, 4, dtype=dtype, requires_grad=True), torch.ones(1, 1, 3, 4, dtype=dtype)
    weights = attention_weights(zeros, some, score=scores.cosine())
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 3))
    assert torch.autograd.grad(weights[..., 0].sum(), zeros)[0].isfinite().all()
