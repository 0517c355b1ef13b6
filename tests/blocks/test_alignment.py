"""Alignment models of recurrent decoders: scores and windows, compared with their formulas."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import attention, masks, scores
from softlook.base.errors import ConfigError
from softlook.blocks import (
    AlignmentModel,
    EncodedSource,
    GlobalWindow,
    LocalMonotonic,
    LocalPredictive,
    concat_alignment,
    dot_alignment,
    general_alignment,
)
from tests.parity.comparison import maps


def make_source(align: AlignmentModel, states: Tensor, lengths: list[int] | None = None) -> EncodedSource:
    """Encoder states as a source, padded beyond `lengths`."""
    B, S, _ = states.shape
    mask = None if lengths is None else masks.padding(lengths)
    return EncodedSource(align.keys(states), states[:, None], torch.tensor(lengths or [S] * B), states[:, 0], mask)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_the_dot_score_matches_luong() -> None:
    align, state, states = dot_alignment(4, 4, GlobalWindow()), normal(2, 4), normal(2, 5, 4)
    weights = torch.einsum("bd,bsd->bs", state, states).softmax(-1)
    assert_close(align(state, make_source(align, states), 0), torch.einsum("bs,bsd->bd", weights, states))


def test_the_general_score_matches_luong_and_the_bilinear_score() -> None:
    align, state, states = general_alignment(3, 4, GlobalWindow()).double(), normal(2, 3), normal(2, 5, 4)
    weight = align.get_parameter("to_query.weight")
    context = align(state, make_source(align, states), 0)
    weights = torch.einsum("bd,ed,bse->bs", state, weight, states).softmax(-1)
    assert_close(context, torch.einsum("bs,bsd->bd", weights, states))
    square, state = general_alignment(4, 4, GlobalWindow()).double(), normal(2, 4)
    score = scores.bilinear(square.get_parameter("to_query.weight").T)
    expected = attention(state[:, None, None], states[:, None], states[:, None], score=score)
    assert_close(square(state, make_source(square, states), 0), expected[:, 0, 0])


def test_the_concat_score_matches_luong_and_bahdanaus_additive_score() -> None:
    align, state, states = concat_alignment(4, 4, GlobalWindow()).double(), normal(2, 4), normal(2, 5, 4)
    to_query, to_key = align.get_parameter("to_query.weight"), align.get_parameter("to_key.weight")
    vector = align.get_parameter("core.score.vector")
    context = align(state, make_source(align, states), 0)
    score = scores.additive(to_query.T, to_key.T, vector)
    expected = attention(state[:, None, None], states[:, None], states[:, None], score=score)
    assert_close(context, expected[:, 0, 0])
    weight = torch.cat([to_query, to_key], 1)  # W [decoder state; encoder state], as Luong writes it
    pairs = torch.cat([state[:, None].expand(-1, 5, -1), states], -1)
    weights = (torch.tanh(pairs @ weight.T) @ vector).softmax(-1)
    assert_close(context, torch.einsum("bs,bsd->bd", weights, states))


def test_a_dot_product_of_different_widths_raises_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"the dot score requires states of equal width, got decoder 4 and encoder 8\. Use"
    ):
        dot_alignment(4, 8, GlobalWindow())


@pytest.mark.parametrize("step", range(9))
def test_monotonic_attention_stays_within_its_window_and_the_source(step: int) -> None:
    align, state, states = dot_alignment(4, 4, LocalMonotonic(2)), normal(1, 4), normal(1, 5, 4)
    near = states[:, max(0, step - 2) : step + 3]
    weights = torch.einsum("bd,bsd->bs", state, near).softmax(-1)
    expected = torch.einsum("bs,bsd->bd", weights, near)  # zeros where the window is empty: steps 7 and 8
    assert (step >= 7) == (near.shape[1] == 0)
    assert_close(align(state, make_source(align, states), step), expected)


def set_center(align: AlignmentModel, state: Tensor, fraction: float) -> None:
    """Set the predictor's weights so that the center lies at this fraction of the source, for this state."""
    window = align.window
    assert isinstance(window, LocalPredictive)
    hidden = window.predictor.to_hidden(state).tanh()[0]
    with torch.no_grad():
        window.predictor.to_out.weight.copy_(math.log(fraction / (1 - fraction)) * hidden / hidden.square().sum())


@pytest.mark.parametrize("length", [4, 7])
@pytest.mark.parametrize("fraction", [1e-6, 0.1, 0.45, 0.8, 1 - 1e-6])
def test_predictive_attention_matches_luong_in_the_middle_and_at_the_edges(fraction: float, length: int) -> None:
    align, state, states = dot_alignment(4, 4, LocalPredictive(4, 2)).double(), normal(1, 4), normal(1, 7, 4)
    set_center(align, state, fraction)
    center, context = length * fraction, torch.zeros(4, dtype=torch.float64)
    inside = [s for s in range(length) if center - 2 <= s <= center + 2]
    total = sum(math.exp(state[0] @ states[0, s]) for s in inside)
    for s in inside:
        gaussian = math.exp(-((s - center) ** 2) / (2 * (2 / 2) ** 2))
        context = context + math.exp(state[0] @ states[0, s]) / total * gaussian * states[0, s]
    assert_close(align(state, make_source(align, states, [length]), 0)[0], context)


def test_gradients_reach_the_predicted_center() -> None:
    align, state, states = (
        dot_alignment(4, 4, LocalPredictive(4, 2)).double(),
        normal(3, 4).requires_grad_(),
        normal(3, 7, 4),
    )
    align(state, make_source(align, states, [7, 4, 1]), 0).sum().backward()
    for parameter in align.window.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.abs().max() > 0
    assert state.grad is not None and state.grad.isfinite().all()


@pytest.mark.parametrize(
    "window", [GlobalWindow(), LocalMonotonic(2), LocalPredictive(4, 2)], ids=lambda window: type(window).__name__
)
def test_padding_is_never_attended_to(window: nn.Module) -> None:
    align, state, states = concat_alignment(4, 6, window).double(), normal(2, 4), normal(2, 7, 6)
    padded = align(state, make_source(align, states, [3, 7]), 2)
    alone = align(state[:1], make_source(align, states[:1, :3]), 2)
    assert_close(padded[:1], alone)
    other = torch.where(torch.arange(7)[:, None] < 3, states, normal(2, 7, 6))
    assert torch.equal(
        align(state[:1], make_source(align, other[:1], [3]), 2),
        align(state[:1], make_source(align, states[:1], [3]), 2),
    )


def test_a_hook_sees_the_attention_map() -> None:
    align, state, states = concat_alignment(4, 6, GlobalWindow()).double(), normal(2, 4), normal(2, 5, 6)
    with maps(align) as seen:
        align(state, make_source(align, states, [5, 2]), 0)
    assert seen[0].shape == (2, 1, 1, 5)
    assert_close(seen[0].sum(-1), torch.ones(2, 1, 1, dtype=torch.float64))
    assert seen[0][1, 0, 0, 2:].eq(0).all()


@pytest.mark.parametrize("make", [LocalMonotonic, lambda window: LocalPredictive(4, window)])
def test_local_attention_without_a_window_raises_an_error(make: type[LocalMonotonic]) -> None:
    with pytest.raises(ConfigError, match="the window of local attention must be at least 1, got 0"):
        make(0)
