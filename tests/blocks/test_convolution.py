"""Causal convolutions: nothing ahead, and exactly as far back as they say."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks.convolution import CausalConvolution, ConvolutionStack, GatedConvolution

FEW = settings(max_examples=40)
small = st.integers(1, 3)


def depends(layer: nn.Module, length: int) -> Tensor:
    """(T, S): does output t change with input s?"""
    x = torch.randn(1, length, 4, dtype=torch.float64, requires_grad=True)
    output = layer.double()(x)[0].sum(-1)
    return torch.stack([torch.autograd.grad(y, x, retain_graph=True)[0][0].abs().sum(-1) > 0 for y in output])


@FEW
@given(kernel=small, dilation=small, length=st.integers(1, 9))
def test_an_output_depends_on_the_places_it_should_and_on_no_other(kernel: int, dilation: int, length: int) -> None:
    back = torch.arange(length)[:, None] - torch.arange(length)
    wanted = (back >= 0) & (back <= (kernel - 1) * dilation) & (back % dilation == 0)
    assert_close(depends(CausalConvolution(4, kernel, dilation), length), wanted)
    assert_close(depends(GatedConvolution(4, kernel, dilation), length), wanted)


@FEW
@given(small, st.lists(small, max_size=3))
def test_a_stack_reaches_back_exactly_as_far_as_it_says(kernel: int, dilations: list[int]) -> None:
    stack = ConvolutionStack(4, kernel, dilations)
    seen = depends(stack, stack.receptive_field + 2)[-1].nonzero().flatten()
    assert seen[0] == 2 and seen[-1] == stack.receptive_field + 1


def test_doubling_dilations_leave_no_gap_and_reach_two_to_the_depth() -> None:
    stack = ConvolutionStack(4, kernel_size=2, dilations=(1, 2, 4, 8))
    assert stack.receptive_field == 16
    assert depends(stack, 16)[-1].all()


def test_it_is_torch_s_convolution_over_a_sequence_with_zeros_before_it() -> None:
    layer, x = CausalConvolution(4, kernel_size=3, dilation=2), torch.randn(2, 7, 4)
    padded = torch.cat([torch.zeros(2, 4, 4), x], 1)
    assert_close(layer(x), layer.conv(padded.mT).mT)


@pytest.mark.parametrize(("kernel", "dilation"), [(0, 1), (2, 0)])
def test_sizes_that_make_no_sense_are_refused(kernel: int, dilation: int) -> None:
    with pytest.raises(ConfigError, match=f"at least 1, got {kernel} and {dilation}"):
        CausalConvolution(4, kernel, dilation)
