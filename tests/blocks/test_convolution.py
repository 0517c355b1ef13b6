"""Causal convolutions: causality and receptive field."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks.convolution import CausalConvolution, ConvolutionStack, GatedConvolution

FEWER_EXAMPLES = settings(max_examples=40)
small = st.integers(1, 3)


def dependencies(layer: nn.Module, length: int) -> Tensor:
    """(T, S): whether output t dependencies on input s."""
    x = torch.randn(1, length, 4, dtype=torch.float64, requires_grad=True)
    output = layer.double()(x)[0].sum(-1)
    return torch.stack([torch.autograd.grad(y, x, retain_graph=True)[0][0].abs().sum(-1) > 0 for y in output])


@FEWER_EXAMPLES
@given(kernel=small, dilation=small, length=st.integers(1, 9))
def test_an_output_depends_on_the_positions_of_the_kernel_only(kernel: int, dilation: int, length: int) -> None:
    back = torch.arange(length)[:, None] - torch.arange(length)
    expected = (back >= 0) & (back <= (kernel - 1) * dilation) & (back % dilation == 0)
    assert_close(dependencies(CausalConvolution(4, kernel, dilation), length), expected)
    assert_close(dependencies(GatedConvolution(4, kernel, dilation), length), expected)


@FEWER_EXAMPLES
@given(small, st.lists(small, max_size=3))
def test_the_receptive_field_of_a_stack_is_exact(kernel: int, dilations: list[int]) -> None:
    stack = ConvolutionStack(4, kernel, dilations)
    seen = dependencies(stack, stack.receptive_field + 2)[-1].nonzero().flatten()
    assert seen[0] == 2 and seen[-1] == stack.receptive_field + 1


def test_doubling_dilations_give_a_receptive_field_of_two_to_the_depth_without_gaps() -> None:
    stack = ConvolutionStack(4, kernel_size=2, dilations=(1, 2, 4, 8))
    assert stack.receptive_field == 16
    assert dependencies(stack, 16)[-1].all()


def test_a_causal_convolution_equals_torchs_after_left_padding_with_zeros() -> None:
    layer, x = CausalConvolution(4, kernel_size=3, dilation=2), torch.randn(2, 7, 4)
    padded = torch.cat([torch.zeros(2, 4, 4), x], 1)
    assert_close(layer(x), layer.conv(padded.mT).mT)


@pytest.mark.parametrize(("kernel", "dilation"), [(0, 1), (2, 0)])
def test_invalid_sizes_raise_an_error(kernel: int, dilation: int) -> None:
    with pytest.raises(ConfigError, match=f"at least 1, got {kernel} and {dilation}"):
        CausalConvolution(4, kernel, dilation)
