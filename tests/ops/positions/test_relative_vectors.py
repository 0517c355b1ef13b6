"""Shaw's relative keys and values, and Transformer-XL, compared with their formulas."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from softlook import MaskError, attention, attention_scores, attention_weights, look, masks, positions

SIZES = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 7), st.integers(1, 9))
CLIP = 2


def _offsets(T: int, S: int) -> Tensor:
    """Position of each key minus that of each query. (T, S)"""
    return torch.arange(S) - (torch.arange(T)[:, None] + S - T)


@given(SIZES)
def test_shaw_adds_a_vector_to_each_key_and_each_value(sizes: tuple[int, int, int, int]) -> None:
    B, H, T, S = sizes
    query, key, value = torch.randn(B, H, T, 4), torch.randn(B, H, S, 4), torch.randn(B, H, S, 3)
    keys, values = torch.randn(2 * CLIP + 1, 4), torch.randn(2 * CLIP + 1, 3)
    index = _offsets(T, S).clamp(-CLIP, CLIP) + CLIP
    scores = torch.einsum("bhtd,bhtsd->bhts", query, key[:, :, None] + keys[index]) / 2
    expected = torch.einsum("bhts,bhtse->bhte", scores.softmax(-1), value[:, :, None] + values[index])
    for backend in ("auto", "reference", "tiled"):
        output = attention(query, key, value, bias=positions.shaw(keys, values), backend=backend)
        torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


@given(SIZES)
def test_transformer_xl_scores_content_and_position(sizes: tuple[int, int, int, int]) -> None:
    B, H, T, S = sizes
    T = min(T, S)
    query, key = torch.randn(B, H, T, 4), torch.randn(B, H, S, 4)
    relative, content, position = torch.randn(H, S + 1, 4), torch.randn(H, 4), torch.randn(H, 4)
    behind = -_offsets(T, S)
    expected = torch.einsum("bhtd,bhsd->bhts", query + content[:, None], key)
    vectors = relative[:, behind.clamp(min=0)]
    expected = (expected + torch.einsum("bhtd,htsd->bhts", query + position[:, None], vectors)) / 2
    expected = expected.masked_fill(behind < 0, -torch.inf)
    actual = attention_scores(query, key, bias=positions.transformer_xl(relative, content, position))
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_a_look_includes_relative_positions() -> None:
    query, key = torch.randn(2, 1, 2, 300, 4)
    bias = positions.transformer_xl(torch.randn(2, 300, 4), torch.randn(2, 4), torch.randn(2, 4))
    weights = attention_weights(query, key, bias=bias, mask=masks.causal())
    seen = look(query, key, bias=bias, mask=masks.causal(), stats=("received", "max_weight"))
    torch.testing.assert_close(seen.received, weights.sum(2), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen.max_weight, weights.amax(-1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_gradients_reach_every_relative_vector(backend: str) -> None:
    query, key, value = torch.randn(3, 1, 2, 5, 3, dtype=torch.float64)
    keys, values, relative = (torch.randn(*shape, dtype=torch.float64) for shape in ((5, 3), (5, 3), (2, 5, 3)))
    content, position = torch.randn(2, 2, 3, dtype=torch.float64)
    parameters = [t.requires_grad_() for t in (keys, values, relative, content.clone(), position.clone())]

    def call(keys: Tensor, values: Tensor, relative: Tensor, content: Tensor, position: Tensor) -> Tensor:
        bias = positions.shaw(keys, values) + positions.transformer_xl(relative, content, position)
        return attention(query, key, value, bias=bias, backend=backend)  # pyright: ignore[reportArgumentType]

    assert torch.autograd.gradcheck(call, parameters)


@given(st.integers(1, 6), st.integers(1, 6))
def test_relative_shift_aligns_each_row_with_its_keys(t: int, s: int) -> None:
    by_distance = torch.randn(2, t, t + s - 1)
    shifted = positions.relative_shift(by_distance)
    assert shifted.shape == (2, t, s)
    for i in range(t):
        torch.testing.assert_close(shifted[:, i], by_distance[:, i, t - 1 - i : t - 1 - i + s])


def test_tables_of_another_size_raise_an_error() -> None:
    query = torch.randn(1, 2, 4, 8)
    with pytest.raises(MaskError, match=r"shaw expects keys shaped \(2 \* clip \+ 1, 8\), got \(4, 8\)"):
        attention_scores(query, query, bias=positions.shaw(torch.zeros(4, 8)))
    with pytest.raises(MaskError, match="shaw expects as many values as keys, 3, got 5"):
        attention_scores(query, query, bias=positions.shaw(torch.zeros(3, 8), torch.zeros(5, 8)))
    u = torch.zeros(2, 8)
    with pytest.raises(MaskError, match=r"each distance from 0 to 3, \(2, 4 or more, 8\), got \(2, 3, 8\)"):
        attention_scores(query, query, bias=positions.transformer_xl(torch.zeros(2, 3, 8), u, u))
