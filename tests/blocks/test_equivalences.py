"""Linear layers and convolutions as attention with one-hot weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import ShapeError
from softlook.base.errors import ConfigError
from softlook.blocks import AttentionCore, MultiHeadAttention, attention_from_convolution, attention_from_linear

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch pads a copy
FEWER_EXAMPLES = settings(max_examples=60)
small = st.integers(1, 5)


@contextmanager
def record_maps(model: nn.Module) -> Iterator[list[Tensor]]:
    """The attention maps, computed from the arguments of the attention core."""
    seen: list[Tensor] = []

    def record(module: AttentionCore, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        seen.append(module.weights(query, key, *rest))

    (core,) = [m for m in model.modules() if isinstance(m, AttentionCore)]
    hook = core.register_forward_hook(record)
    yield seen
    hook.remove()


@st.composite
def convolutions(draw: st.DrawFn, axes: int, modes: tuple[str, ...] = ("zeros",)) -> tuple[nn.Module, Tensor]:
    """A convolution with any options, and an input for it."""
    groups = draw(st.integers(1, 3))
    inner, outer = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    kernel, stride, dilation = (tuple(draw(st.integers(1, 3)) for _ in range(axes)) for _ in range(3))
    mode = draw(st.sampled_from(modes))
    padding: Any = tuple(draw(st.integers(0, 2)) for _ in range(axes))
    if all(step == 1 for step in stride):
        padding = draw(st.sampled_from((padding, "same", "valid")))
    space = [draw(st.integers(1, 7)) for _ in range(axes)]
    kind: Any = (nn.Conv1d, nn.Conv2d)[axes - 1]
    conv = kind(inner, outer, kernel, stride, padding, dilation, groups, draw(st.booleans()), mode)
    x = torch.randn(draw(small), inner, *space)
    try:
        conv(x)
    except RuntimeError:
        assume(False)  # the input is too small for torch's layer
    return conv, x


@FEWER_EXAMPLES
@given(st.lists(small, max_size=2), small, small, st.booleans())
def test_a_linear_layer_is_attention(leading: list[int], inner: int, outer: int, bias: bool) -> None:
    linear = nn.Linear(inner, outer, bias=bias)
    x = torch.randn(*leading, inner)
    assert_close(attention_from_linear(linear)(x), linear(x), rtol=1e-5, atol=1e-5)


@FEWER_EXAMPLES
@given(convolutions(axes=1))
def test_a_one_dimensional_convolution_is_attention(case: tuple[nn.Conv1d, Tensor]) -> None:
    conv, x = case
    assert_close(attention_from_convolution(conv)(x), conv(x), rtol=1e-5, atol=1e-5)


@FEWER_EXAMPLES
@given(convolutions(axes=2))
def test_a_two_dimensional_convolution_is_attention(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    assert_close(attention_from_convolution(conv)(x), conv(x), rtol=1e-5, atol=1e-5)


@FEWER_EXAMPLES
@given(convolutions(axes=2, modes=("reflect", "replicate", "circular")))
def test_convolutions_with_other_padding_modes_are_attention(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    assert_close(attention_from_convolution(conv)(x), conv(x), rtol=1e-5, atol=1e-5)


def test_inputs_without_a_batch_dimension_give_the_same_outputs() -> None:
    conv, linear = nn.Conv2d(3, 4, 3), nn.Linear(3, 4)
    image, vector = torch.randn(3, 5, 6), torch.randn(3)
    assert_close(attention_from_convolution(conv)(image), conv(image))
    assert_close(attention_from_linear(linear)(vector), linear(vector))


def test_head_j_of_a_linear_layer_attends_to_feature_j() -> None:
    attn = attention_from_linear(nn.Linear(5, 3))
    with record_maps(attn) as maps:
        attn(torch.randn(2, 5))
    assert_close(maps[0][:, :, 0], torch.eye(5).expand(2, 5, 5))


def test_the_map_of_each_head_of_a_convolution_is_a_shift() -> None:
    attn = attention_from_convolution(nn.Conv1d(2, 3, kernel_size=3, padding=1))
    with record_maps(attn) as maps:
        attn(torch.randn(1, 2, 6))
    for head, offset in enumerate((-1, 0, 1)):
        assert_close(maps[0][0, head], torch.eye(6).roll(offset, 1).tril(max(offset, 0)).triu(min(offset, 0)))


def test_a_two_dimensional_convolution_has_a_head_per_offset_that_attends_to_one_pixel_or_none() -> None:
    attn = attention_from_convolution(nn.Conv2d(2, 3, kernel_size=3, padding=1))
    with record_maps(attn) as maps:
        attn(torch.randn(1, 2, 4, 5))
    (seen,) = maps
    assert seen.shape == (1, 9, 20, 20)
    assert set(seen.unique().tolist()) == {0.0, 1.0}
    corner = seen[0, :, 0].sum(-1).view(3, 3)
    assert_close(corner, torch.tensor([[0.0, 0, 0], [0, 1, 1], [0, 1, 1]]))


def test_the_map_does_not_depend_on_the_input() -> None:
    attn = attention_from_convolution(nn.Conv1d(2, 3, 2))
    with record_maps(attn) as maps:
        attn(torch.randn(1, 2, 6))
        attn(torch.randn(1, 2, 6))
    assert_close(maps[0], maps[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("layer", "build"),
    [(nn.Linear(4, 3), attention_from_linear), (nn.Conv1d(4, 3, 2), attention_from_convolution)],
    ids=["linear", "convolution"],
)
def test_the_result_is_multi_head_attention_with_identity_values_and_the_weights_of_the_layer_in_to_out(
    layer: Any, build: Any
) -> None:
    attn = build(layer)
    assert isinstance(attn, MultiHeadAttention)
    width = attn.to_value.in_features
    assert_close(attn.to_value.weight.data, torch.eye(width))
    assert not attn.to_query.weight.any() and not attn.to_key.weight.any()
    heads = attn.to_out.weight.view(3, -1, width)
    assert_close(heads, layer.weight[..., None] if layer.weight.ndim == 2 else layer.weight.mT)
    assert_close(attn.to_out.bias, layer.bias)


def test_gradients_match_those_of_the_layer() -> None:
    conv = nn.Conv1d(3, 4, 3, stride=2, padding=1).double()
    attn = attention_from_convolution(conv)
    one, other = (torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.manual_seed(1)) for _ in range(2))
    upstream = torch.randn(2, 4, 4, dtype=torch.float64)
    attn(one.requires_grad_()).backward(upstream)
    conv(other.requires_grad_()).backward(upstream)
    assert_close(one.grad, other.grad)
    assert conv.weight.grad is not None and attn.to_out.weight.grad is not None
    assert_close(attn.to_out.weight.grad.view(4, 3, 3).mT, conv.weight.grad)


@pytest.mark.parametrize("conv", [nn.Conv3d(2, 2, 1), nn.ConvTranspose1d(2, 2, 2), nn.Linear(2, 2)])
def test_unsupported_layers_raise_an_error(conv: nn.Module) -> None:
    with pytest.raises(ConfigError, match=f"expected a Conv1d or Conv2d, got a {type(conv).__name__}"):
        attention_from_convolution(conv)


def test_inputs_of_another_size_raise_an_error() -> None:
    with pytest.raises(ShapeError, match="expected 4 features, got 3"):
        attention_from_linear(nn.Linear(4, 2))(torch.randn(2, 3))
    conv = attention_from_convolution(nn.Conv1d(4, 2, 5, padding=1))
    with pytest.raises(ShapeError, match=r"expected \(batch, 4 channels, 1 more axes\), got \(2, 3, 9\)"):
        conv(torch.randn(2, 3, 9))
    with pytest.raises(ShapeError, match="the dilated kernel is 1 x 5, larger than the padded input, 1 x 4"):
        conv(torch.randn(2, 4, 2))
