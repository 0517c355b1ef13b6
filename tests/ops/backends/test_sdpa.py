"""The sdpa backend: native masks, materialized masks and torch's kernels."""

from typing import Any

import pytest
import torch

from softlook import attention, masks
from softlook.ops.arguments import prepare_args
from softlook.ops.backends import sdpa, sdpa_cpu, sdpa_cuda
from tests.ops_cases import DEVICE, TensorRNG, close

RNG = TensorRNG(torch.Generator().manual_seed(29), torch.float64)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of every kernel call."""
    seen: list[dict[str, Any]] = []
    module, name = (sdpa_cuda, "sdpa_attention_cuda") if DEVICE.type == "cuda" else (sdpa_cpu, "flash_attention_cpu")
    usual = getattr(module, name)

    def spy(query: Any, key: Any, value: Any, allowed: Any, **named: Any) -> torch.Tensor | None:
        seen.append({"widths": {tensor.shape[3] for tensor in (query, key, value)}, "allowed": allowed} | named)
        return usual(query, key, value, allowed, **named)

    monkeypatch.setattr(module, name, spy)
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_QUERIES", 0)
    return seen


def test_native_masks_are_not_materialized(calls: list[dict[str, Any]]) -> None:
    query = RNG.normal(1, 2, 5, 4)
    attention(query, query, query, backend="sdpa")
    attention(query, query, query, mask=masks.causal(), backend="sdpa")
    assert [call["allowed"] for call in calls] == [None, None]
    assert [call["causal"] for call in calls] == [False, True]


@pytest.mark.parametrize("lengths", [(1, 6), (2, 6), (5, 6), (6, 6), (6, 5), (6, 1), (1, 1)], ids=str)
@pytest.mark.parametrize(
    "mask", [masks.causal(), masks.window(None, 2), masks.window(0, None), masks.window(2)], ids=str
)
def test_queries_are_aligned_with_the_last_keys(mask: masks.Mask, lengths: tuple[int, int]) -> None:
    T, S = lengths
    query, key = RNG.normal(1, 2, T, 4), RNG.normal(1, 2, S, 4)
    close(
        attention(query, key, key, mask=mask, backend="sdpa"),
        attention(query, key, key, mask=mask, backend="reference"),
    )


@pytest.mark.parametrize("scale", [-0.5, 0.0, 1e-3])
@pytest.mark.parametrize("mask", [None, masks.causal(), masks.window(2)], ids=str)
def test_any_scale_with_any_mask_matches_the_reference(mask: masks.Mask | None, scale: float) -> None:
    query = RNG.normal(1, 2, 5, 4)
    actual = attention(query, query, query, mask=mask, scale=scale, backend="sdpa")
    close(actual, attention(query, query, query, mask=mask, scale=scale, backend="reference"))


def test_value_dim_may_differ_from_head_dim(calls: list[dict[str, Any]]) -> None:
    query, key = RNG.normal(1, 4, 5, 6), RNG.normal(1, 2, 7, 6)
    for width in (1, 5, 6, 9):
        value = RNG.normal(1, 2, 7, width)
        actual = attention(query, key, value, backend="sdpa")
        close(actual, attention(query, key, value, backend="reference"))
        assert actual.shape[-1] == width
    assert all(len(call["widths"]) == 1 for call in calls)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_fully_masked_query_gets_zeros_and_zero_gradients(dtype: torch.dtype) -> None:
    query, key = RNG.normal(2, 2, 4, 8).to(dtype), RNG.normal(2, 2, 3, 8).to(dtype)
    inputs = [query.requires_grad_(), key.requires_grad_()]
    output = attention(query, key, key, mask=masks.causal() & masks.padding([0, 2]), backend="sdpa")
    assert output[0].eq(0).all() and output[1, :, 0].eq(0).all() and output[1, :, 1:].ne(0).any()
    gradients = torch.autograd.grad(output.sum(), inputs)
    assert gradients[0].isfinite().all() and gradients[1].isfinite().all()
    assert gradients[0][0].eq(0).all() and gradients[0][1, :, 0].eq(0).all() and gradients[1][0].eq(0).all()


def test_native_masks_are_recognized() -> None:
    query, short = RNG.normal(1, 2, 5, 4), RNG.normal(1, 2, 3, 4)
    assert sdpa.has_native_mask(prepare_args(query, query))
    assert sdpa.has_native_mask(prepare_args(query, query, mask=masks.causal()))
    assert not sdpa.has_native_mask(prepare_args(short, query, mask=masks.causal()))
    assert not sdpa.has_native_mask(prepare_args(query, query, mask=masks.window(3)))
    assert not sdpa.has_native_mask(prepare_args(query, query, bias=torch.zeros(5, 5, device=DEVICE)))


def test_a_dense_bias_is_differentiable() -> None:
    query, bias = RNG.normal(1, 2, 5, 4), RNG.normal(1, 2, 5, 5).requires_grad_()
    weight = RNG.normal(1, 2, 5, 4)
    gradients = [
        torch.autograd.grad((attention(query, query, query, bias=bias, backend=path) * weight).sum(), bias)[0]
        for path in ("sdpa", "reference")
    ]
    close(gradients[0], gradients[1])


@pytest.mark.parametrize("enabled", [True, False])
def test_the_memory_efficient_kernel_obeys_torchs_switch(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    short = torch.randn(1, 2, 8, 16, dtype=torch.bfloat16)
    monkeypatch.setattr(torch.backends.cuda, "mem_efficient_sdp_enabled", lambda: enabled)
    assert sdpa_cuda.suits_efficient(short, short, None) == enabled


@pytest.mark.cuda
@pytest.mark.skipif(DEVICE.type != "cuda", reason="runs with SOFTLOOK_DEVICE=cuda")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", [None, masks.causal(), masks.padding([900, 1024])], ids=str)
def test_cuda_never_allocates_the_map(mask: masks.Mask | None, dtype: torch.dtype) -> None:
    query = torch.randn(2, 8, 1024, 64, device=DEVICE, dtype=dtype)
    attention(query, query, query, mask=mask)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attention(query, query, query, mask=mask)
    used = torch.cuda.max_memory_allocated() - before
    assert used < 2 * 8 * 1024 * 1024 * 2, f"{used} bytes"  # the map alone in half precision
