"""Laws of half precision on a CPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from softlook.train import half as half_module
from softlook.train.half import HalfProducts, half

CPU = torch.device("cpu")


def inputs(*, bias: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    torch.manual_seed(0)
    x, weight = torch.randn(6, 5, 32, requires_grad=True), torch.randn(24, 32, requires_grad=True)
    return x, weight, torch.randn(24, requires_grad=True) if bias else None


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_and_its_gradients_are_those_of_single_precision_up_to_the_rounding_of_half(bias: bool) -> None:
    own = [part for part in inputs(bias=bias) if part is not None]
    plain = F.linear(*own)
    wanted = torch.autograd.grad(plain.sin().sum(), own)
    with HalfProducts():
        found = F.linear(*own)
    assert found.dtype == torch.float32 and found.shape == plain.shape
    torch.testing.assert_close(found, plain, rtol=0, atol=0.1)
    assert not torch.equal(found, plain)
    for one, other in zip(torch.autograd.grad(plain.detach().cos().mul(found).sum(), own), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0.02 * float(other.abs().max()))


def test_what_is_no_linear_layer_is_left_alone() -> None:
    x = torch.randn(4, 8)
    layer = nn.LayerNorm(8)
    with HalfProducts():
        assert torch.equal(layer(x).softmax(-1), layer(x.clone()).softmax(-1))
        inside = x @ x.T
    assert torch.equal(inside, x @ x.T)


def test_weights_that_learn_nothing_get_no_gradient() -> None:
    x, weight, bias = inputs()
    frozen = weight.detach()
    with HalfProducts():
        F.linear(x, frozen, bias).sum().backward()
    assert frozen.grad is None and x.grad is not None


def test_double_precision_stays() -> None:
    x, weight = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    with HalfProducts():
        assert torch.equal(F.linear(x, weight), x @ weight.T)


@pytest.mark.parametrize("units", [True, False])
def test_a_cpu_without_units_computes_as_ever(monkeypatch: pytest.MonkeyPatch, units: bool) -> None:
    monkeypatch.setattr(half_module, "cpu_has_units", lambda: units)
    x, weight, bias = inputs()
    with half(CPU):
        found = F.linear(x, weight, bias)
    assert torch.equal(found, F.linear(x, weight, bias)) is not units


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (8,), (3, 8)])
def test_any_shape_that_a_linear_layer_takes_goes_through(shape: tuple[int, ...]) -> None:
    x, layer = torch.ones(shape, requires_grad=True), nn.Linear(8, 4)
    with HalfProducts():
        found = layer(x)
    assert found.shape == layer(x).shape
    found.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


def test_a_gpu_works_as_it_does_on_text(monkeypatch: pytest.MonkeyPatch) -> None:
    worked = list[tuple[torch.dtype, str]]()
    monkeypatch.setattr(half_module, "working_in", lambda kind, device: worked.append((kind, device.type)))
    for kind in ("cuda", "mps"):
        half(torch.device(kind))
    assert worked == [(torch.bfloat16, "cuda"), (torch.float32, "mps")]
