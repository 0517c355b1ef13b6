"""Kernel cache: a repeated call returns what a planned one returns, whatever changed between the calls."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from softlook import attention, masks
from softlook.base.errors import MaskError, ShapeError
from softlook.ops.backends import kernel_cache
from softlook.ops.backends.kernel_cache import cached_kernels as kernels_of
from softlook.ops.backends.kernel_cache import call_key, clear_kernel_cache


def tensors(T: int = 6, S: int = 20, *, heads: int = 4, groups: int = 4, D: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, heads, T, D), torch.randn(2, groups, S, D), torch.randn(2, groups, S, D)


def spread(tensor: Tensor) -> Tensor:
    """The same values with the strides of split heads."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The calls that are planned."""
    calls: list[object] = []
    original = kernel_cache.cache_kernel
    monkeypatch.setattr("softlook.ops.attention.cache_kernel", lambda *call: (calls.append(call), original(*call)))
    yield calls


MASKS = {
    "none": None,
    "causal": masks.causal(),
    "window": masks.window(3, 1),
    "padding": masks.padding(torch.tensor([20, 11])),
    "no key": masks.padding(torch.tensor([0, 20])),
    "per head": masks.dense(torch.rand(1, 4, 6, 20, generator=torch.Generator().manual_seed(0)) > 0.5),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("layout", [lambda tensor: tensor, spread], ids=["contiguous", "split heads"])
def test_repeated_calls_match_the_reference(
    name: str, groups: int, layout: Callable[[Tensor], Tensor], planned: list[object]
) -> None:
    mask = MASKS[name]
    for _ in range(4):
        query, key, value = (layout(tensor) for tensor in tensors(groups=groups))
        assert_close(
            attention(query, key, value, mask=mask), attention(query, key, value, mask=mask, backend="reference")
        )
    assert len(planned) <= 1


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from([1, 6, 40]), st.sampled_from([6, 20, 150]), st.booleans()), max_size=8))
def test_any_order_of_calls_matches_the_reference(calls: list[tuple[int, int, bool]]) -> None:
    for T, S, learns in calls:
        inputs = [tensor.requires_grad_(learns) for tensor in tensors(T, S)]
        for mask in (None, None, masks.causal()) if T <= S else (None,):
            output = attention(*inputs, mask=mask)
            assert_close(output, attention(*inputs, mask=mask, backend="reference"))
            assert output.requires_grad == learns


def test_gradients_of_a_repeated_call_match_the_reference() -> None:
    for _ in range(2):
        inputs = [tensor.requires_grad_() for tensor in tensors()]
        upstream = torch.randn(2, 4, 6, 8)
        given = torch.autograd.grad(attention(*inputs, mask=masks.causal()), inputs, upstream)
        plain = attention(*inputs, mask=masks.causal(), backend="reference")
        for one, other in zip(given, torch.autograd.grad(plain, inputs, upstream), strict=True):
            assert_close(one, other)


def test_an_error_is_raised_again() -> None:
    query, key, value = tensors()
    attention(query, key, value)
    for _ in range(2):
        with pytest.raises(ShapeError, match="3 query heads cannot share 4 key heads"):
            attention(query[:, :3], key, value)
        with pytest.raises(MaskError):
            attention(query, key, value, mask=masks.padding(torch.tensor([3])))
        with pytest.raises(ValueError, match="dropout expects a probability"):
            attention(query, key, value, dropout=1.0)


def test_calls_that_differ_are_planned_anew(planned: list[object]) -> None:
    query, key, value = tensors()
    for scale, dropout in ((None, 0.0), (0.5, 0.0), (None, 0.1)):
        attention(query, key, value, scale=scale, dropout=dropout)
    attention(query.double(), key.double(), value.double())
    attention(spread(query), key, value)
    with sdpa_kernel(SDPBackend.MATH):
        attention(query, key, value)
    assert len(planned) == 6


def test_traced_and_autocast_calls_are_not_kept() -> None:
    query, key, value = tensors()
    assert call_key(query, key, value, None, None, 0.0) is not None
    with torch.autocast("cpu", torch.bfloat16):
        assert call_key(query, key, value, None, None, 0.0) is None
    assert call_key(query.to("meta"), key.to("meta"), value.to("meta"), None, None, 0.0) is None
    assert call_key(torch.nn.Parameter(query), key, value, None, None, 0.0) is None
    mapped = torch.vmap(lambda q: attention(q, key, value))(query[None])
    assert_close(mapped[0], attention(query, key, value))


def test_kernels_live_as_long_as_their_mask() -> None:
    query, key, value = tensors()
    mask = masks.padding(torch.tensor([20, 11]))
    for _ in range(2):
        attention(query, key, value, mask=mask)
    kernels = kernels_of(mask)
    assert kernels is not None
    assert len(kernels) == 1
    assert kernels_of(masks.padding(torch.tensor([20, 11]))) is None
    assert kernels_of(torch.ones(6, 20, dtype=torch.bool)) is None


def test_a_copy_of_a_mask_has_no_kernels() -> None:
    mask = masks.padding(torch.tensor([20, 11]))
    inputs = tensors()
    for _ in range(2):
        attention(*inputs, mask=mask)
    other = copy.deepcopy(mask)
    assert kernels_of(mask) and not kernels_of(other)
    assert torch.equal(attention(*inputs, mask=other), attention(*inputs, mask=mask))


def test_the_number_of_cached_kernels_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_kernel_cache()
    monkeypatch.setattr(kernel_cache, "MAX_SHARED", 20)
    for length in range(1, 50):
        attention(*tensors(1, length))
    kernels = kernels_of(None)
    assert kernels is not None
    assert len(kernels) <= kernel_cache.MAX_SHARED


def test_a_call_in_inference_mode_does_not_spoil_later_gradients() -> None:
    mask = masks.padding(torch.tensor([20, 11]))
    inputs = tensors()
    with torch.inference_mode():
        attention(*inputs, mask=mask)
    query = inputs[0].requires_grad_()
    for _ in range(2):
        attention(query, *inputs[1:], mask=mask).sum().backward()
    assert query.grad is not None
