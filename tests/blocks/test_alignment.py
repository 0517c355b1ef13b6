"""One state asks: what it is compared with, and where it looks."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import attention, masks, scores
from softlook.base.errors import ConfigError
from softlook.blocks import (
    Alignment,
    EncodedSource,
    GlobalWindow,
    LocalMonotonic,
    LocalPredictive,
    concat_alignment,
    dot_alignment,
    general_alignment,
)
from tests.parity.comparison import maps


def read(align: Alignment, words: Tensor, lengths: list[int] | None = None) -> EncodedSource:
    """Words to look up in, some of them only filling."""
    B, S, _ = words.shape
    mask = None if lengths is None else masks.padding(lengths)
    return EncodedSource(align.keys(words), words[:, None], torch.tensor(lengths or [S] * B), words[:, 0], mask)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_the_dot_score_is_luongs() -> None:
    align, state, words = dot_alignment(4, 4, GlobalWindow()), normal(2, 4), normal(2, 5, 4)
    weights = torch.einsum("bd,bsd->bs", state, words).softmax(-1)
    assert_close(align(state, read(align, words), 0), torch.einsum("bs,bsd->bd", weights, words))


def test_the_general_score_is_luongs_and_the_bilinear_one() -> None:
    align, state, words = general_alignment(3, 4, GlobalWindow()).double(), normal(2, 3), normal(2, 5, 4)
    weight = align.get_parameter("to_query.weight")
    found = align(state, read(align, words), 0)
    weights = torch.einsum("bd,ed,bse->bs", state, weight, words).softmax(-1)
    assert_close(found, torch.einsum("bs,bsd->bd", weights, words))
    square, state = general_alignment(4, 4, GlobalWindow()).double(), normal(2, 4)
    score = scores.bilinear(square.get_parameter("to_query.weight").T)
    wanted = attention(state[:, None, None], words[:, None], words[:, None], score=score)
    assert_close(square(state, read(square, words), 0), wanted[:, 0, 0])


def test_the_concat_score_is_luongs_and_bahdanaus_additive_one() -> None:
    align, state, words = concat_alignment(4, 4, GlobalWindow()).double(), normal(2, 4), normal(2, 5, 4)
    to_query, to_key = align.get_parameter("to_query.weight"), align.get_parameter("to_key.weight")
    vector = align.get_parameter("core.score.vector")
    found = align(state, read(align, words), 0)
    score = scores.additive(to_query.T, to_key.T, vector)
    wanted = attention(state[:, None, None], words[:, None], words[:, None], score=score)
    assert_close(found, wanted[:, 0, 0])
    together = torch.cat([to_query, to_key], 1)  # W [state; word], as Luong writes it
    pairs = torch.cat([state[:, None].expand(-1, 5, -1), words], -1)
    weights = (torch.tanh(pairs @ together.T) @ vector).softmax(-1)
    assert_close(found, torch.einsum("bs,bsd->bd", weights, words))


def test_a_dot_product_of_two_widths_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"the dot score requires states of equal width, got decoder 4 and encoder 8\. Use"
    ):
        dot_alignment(4, 8, GlobalWindow())


@pytest.mark.parametrize("step", range(9))
def test_a_monotonic_look_stays_in_its_window_and_in_the_sentence(step: int) -> None:
    align, state, words = dot_alignment(4, 4, LocalMonotonic(2)), normal(1, 4), normal(1, 5, 4)
    near = words[:, max(0, step - 2) : step + 3]
    weights = torch.einsum("bd,bsd->bs", state, near).softmax(-1)
    wanted = torch.einsum("bs,bsd->bd", weights, near)  # zeros where nothing is left: steps 7 and 8
    assert (step >= 7) == (near.shape[1] == 0)
    assert_close(align(state, read(align, words), step), wanted)


def with_centre(align: Alignment, state: Tensor, place: float) -> None:
    """Let the centre lie at this share of the sentence, for this state."""
    span = align.window
    assert isinstance(span, LocalPredictive)
    hidden = span.predictor.to_hidden(state).tanh()[0]
    with torch.no_grad():
        span.predictor.to_out.weight.copy_(math.log(place / (1 - place)) * hidden / hidden.square().sum())


@pytest.mark.parametrize("length", [4, 7])
@pytest.mark.parametrize("place", [1e-6, 0.1, 0.45, 0.8, 1 - 1e-6])
def test_a_predicted_look_is_luongs_in_the_middle_and_at_the_edges(place: float, length: int) -> None:
    align, state, words = dot_alignment(4, 4, LocalPredictive(4, 2)).double(), normal(1, 4), normal(1, 7, 4)
    with_centre(align, state, place)
    centre, context = length * place, torch.zeros(4, dtype=torch.float64)
    inside = [s for s in range(length) if centre - 2 <= s <= centre + 2]
    total = sum(math.exp(state[0] @ words[0, s]) for s in inside)
    for s in inside:
        bell = math.exp(-((s - centre) ** 2) / (2 * (2 / 2) ** 2))
        context = context + math.exp(state[0] @ words[0, s]) / total * bell * words[0, s]
    assert_close(align(state, read(align, words, [length]), 0)[0], context)


def test_the_centre_of_a_predicted_look_learns() -> None:
    align, state, words = (
        dot_alignment(4, 4, LocalPredictive(4, 2)).double(),
        normal(3, 4).requires_grad_(),
        normal(3, 7, 4),
    )
    align(state, read(align, words, [7, 4, 1]), 0).sum().backward()
    for parameter in align.window.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.abs().max() > 0
    assert state.grad is not None and state.grad.isfinite().all()


@pytest.mark.parametrize(
    "span", [GlobalWindow(), LocalMonotonic(2), LocalPredictive(4, 2)], ids=lambda span: type(span).__name__
)
def test_what_fills_a_row_up_is_never_looked_at(span: nn.Module) -> None:
    align, state, words = concat_alignment(4, 6, span).double(), normal(2, 4), normal(2, 7, 6)
    padded = align(state, read(align, words, [3, 7]), 2)
    alone = align(state[:1], read(align, words[:1, :3]), 2)
    assert_close(padded[:1], alone)
    other = torch.where(torch.arange(7)[:, None] < 3, words, normal(2, 7, 6))
    assert torch.equal(
        align(state[:1], read(align, other[:1], [3]), 2), align(state[:1], read(align, words[:1], [3]), 2)
    )


def test_the_map_can_be_watched() -> None:
    align, state, words = concat_alignment(4, 6, GlobalWindow()).double(), normal(2, 4), normal(2, 5, 6)
    with maps(align) as seen:
        align(state, read(align, words, [5, 2]), 0)
    assert seen[0].shape == (2, 1, 1, 5)
    assert_close(seen[0].sum(-1), torch.ones(2, 1, 1, dtype=torch.float64))
    assert seen[0][1, 0, 0, 2:].eq(0).all()


@pytest.mark.parametrize("make", [LocalMonotonic, lambda window: LocalPredictive(4, window)])
def test_a_local_look_without_a_window_is_refused(make: type[LocalMonotonic]) -> None:
    with pytest.raises(ConfigError, match="the window of local attention must be at least 1, got 0"):
        make(0)
