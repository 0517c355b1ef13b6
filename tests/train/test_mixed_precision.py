"""Properties of bfloat16 matrix multiplication on a CPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from softlook.train import mixed_precision as module
from softlook.train.mixed_precision import Bf16LinearMode, bf16_if_faster

CPU = torch.device("cpu")


def inputs(*, bias: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    torch.manual_seed(0)
    x, weight = torch.randn(6, 5, 32, requires_grad=True), torch.randn(24, 32, requires_grad=True)
    return x, weight, torch.randn(24, requires_grad=True) if bias else None


@pytest.mark.parametrize("bias", [True, False])
def test_bf16_linear_and_its_gradients_match_float32_up_to_rounding(bias: bool) -> None:
    args = [part for part in inputs(bias=bias) if part is not None]
    float32 = F.linear(*args)
    expected = torch.autograd.grad(float32.sin().sum(), args)
    with Bf16LinearMode():
        found = F.linear(*args)
    assert found.dtype == torch.float32 and found.shape == float32.shape
    torch.testing.assert_close(found, float32, rtol=0, atol=0.1)
    assert not torch.equal(found, float32)
    for one, other in zip(torch.autograd.grad(float32.detach().cos().mul(found).sum(), args), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0.02 * float(other.abs().max()))


def test_other_operations_stay_in_float32() -> None:
    x = torch.randn(4, 8)
    layer = nn.LayerNorm(8)
    with Bf16LinearMode():
        assert torch.equal(layer(x).softmax(-1), layer(x.clone()).softmax(-1))
        inside = x @ x.T
    assert torch.equal(inside, x @ x.T)


def test_frozen_weights_get_no_gradient() -> None:
    x, weight, bias = inputs()
    frozen = weight.detach()
    with Bf16LinearMode():
        F.linear(x, frozen, bias).sum().backward()
    assert frozen.grad is None and x.grad is not None


def test_float64_is_unchanged() -> None:
    x, weight = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    with Bf16LinearMode():
        assert torch.equal(F.linear(x, weight), x @ weight.T)


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_cpu_without_bf16_computes_in_float32(monkeypatch: pytest.MonkeyPatch, has_bf16: bool) -> None:
    monkeypatch.setattr(module, "cpu_has_bf16", lambda: has_bf16)
    x, weight, bias = inputs()
    with bf16_if_faster(CPU):
        found = F.linear(x, weight, bias)
    assert torch.equal(found, F.linear(x, weight, bias)) is not has_bf16


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (8,), (3, 8)])
def test_bf16_linear_accepts_any_shape(shape: tuple[int, ...]) -> None:
    x, layer = torch.ones(shape, requires_grad=True), nn.Linear(8, 4)
    with Bf16LinearMode():
        found = layer(x)
    assert found.shape == layer(x).shape
    found.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


def test_a_gpu_uses_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[tuple[torch.dtype, str]]()
    monkeypatch.setattr(module, "autocast", lambda dtype, device: calls.append((dtype, device.type)))
    for kind in ("cuda", "mps"):
        bf16_if_faster(torch.device(kind))
    assert calls == [(torch.bfloat16, "cuda"), (torch.float32, "mps")]
