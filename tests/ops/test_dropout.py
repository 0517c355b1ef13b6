"""Dropout with 16 random bits per element: exact on average, reproducible, with a fallback to torch's dropout."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

from softlook.ops.dropout import LEVELS, MIN_ELEMENTS, Dropout, dropout

MANY = 1 << 18
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIGMAS = 5


def zeros(x: Tensor) -> float:
    return (x == 0).double().mean().item()


def within(frequency: float, expected: float, n: int) -> bool:
    """Whether a frequency of n independent trials is within five standard deviations of its expectation."""
    return abs(frequency - expected) < SIGMAS * math.sqrt(expected * (1 - expected) / n)


def fail(*_: object) -> Tensor:
    raise AssertionError("torch's dropout was called")


@pytest.fixture
def fast_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.ops.dropout.F.dropout", fail)


def test_zero_probability_returns_the_same_tensor() -> None:
    x = torch.randn(MANY)
    assert dropout(x, 0.0) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize("p", [1 / LEVELS, 0.001, 0.1, 0.5, 0.9, 1 - 1 / LEVELS])
def test_probability_mean_and_variance(p: float) -> None:
    n = 1 << 22
    output = dropout(torch.ones(n, dtype=torch.float64), p)
    rounded = round(p * LEVELS) / LEVELS
    assert abs(rounded - p) <= 0.5 / LEVELS
    assert within(zeros(output), rounded, n)
    variance = rounded / (1 - rounded)
    assert abs(output.mean().item() - 1) < SIGMAS * math.sqrt(variance / n)
    assert output.var().item() == pytest.approx(variance, rel=0.5 if p in {1 / LEVELS, 1 - 1 / LEVELS} else 0.1)


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize("p", [0.1, 0.3])
def test_kept_elements_are_scaled_so_that_the_mean_is_exact(p: float) -> None:
    rounded = round(p * LEVELS) / LEVELS
    scale = dropout(torch.ones(MANY, dtype=torch.float64), p).max().item()
    assert scale * (1 - rounded) == pytest.approx(1, abs=1e-15)


@pytest.mark.usefixtures("fast_only")
def test_elements_are_dropped_independently() -> None:
    groups = MANY
    dropped = (dropout(torch.ones(groups, 8), 0.3) == 0).double()  # each row uses two random 64-bit integers
    for one, other in combinations(range(8), 2):
        assert within((dropped[:, one] * dropped[:, other]).mean().item(), 0.09, groups), (one, other)
    assert within((dropped[1:, 0] * dropped[:-1, 0]).mean().item(), 0.09, groups)


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_are_dropped_or_scaled_in_every_dtype(dtype: torch.dtype) -> None:
    x = torch.randn(MANY).abs().add(0.1).to(dtype)
    output = dropout(x, 0.25)
    kept = output != 0
    assert output.dtype == dtype
    assert within(zeros(output), 0.25, MANY)
    exact = (x[kept].double() / 0.75).to(dtype)
    torch.testing.assert_close(output[kept], exact, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gradient_is_masked_like_the_output(dtype: torch.dtype) -> None:
    x = torch.randn(MANY, dtype=dtype).abs().add(0.1).requires_grad_()
    upstream = torch.randn(MANY, dtype=dtype)
    output = dropout(x, 0.25)
    (grad,) = torch.autograd.grad(output, x, upstream)
    expected = torch.where(output == 0, 0, upstream.double() / 0.75).to(dtype)
    torch.testing.assert_close(grad, expected, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.usefixtures("fast_only")
def test_the_seed_determines_the_result_and_the_rng_advances() -> None:
    x = torch.ones(MANY + 3)
    first, then = dropout(x, 0.1), dropout(x, 0.1)
    assert not torch.equal(first, then)
    torch.manual_seed(0)
    assert torch.equal(dropout(x, 0.1), first)
    state = torch.get_rng_state()
    assert torch.equal(dropout(x, 0.1), then)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.1), then)


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize(
    "view", [lambda x: x.mT, lambda x: x[:, ::3], lambda x: x[:1].expand(64, -1), lambda x: x[1:, 1:]], ids="abcd"
)
def test_strides_do_not_change_the_result(view: Callable[[Tensor], Tensor]) -> None:
    x = view(torch.rand(513, 515).add(0.1))
    output = dropout(x, 0.5)
    torch.manual_seed(0)
    torch.rand(513, 515)
    assert torch.equal(output, dropout(x.contiguous(), 0.5))
    assert torch.equal(output[output != 0], 2 * x[output != 0])


@pytest.mark.parametrize(
    "shape",
    [(0,), (3, 0, 2), (), (1,), (MIN_ELEMENTS - 1,), (MIN_ELEMENTS,), (MIN_ELEMENTS + 1,), (MIN_ELEMENTS + 2,)],
    ids=str,
)
def test_any_size_keeps_its_shape(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    output = dropout(x, 0.5)
    assert output.shape == x.shape
    assert set(output.unique().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9, 1.0])
def test_probabilities_that_round_to_zero_or_one_use_torch(p: float) -> None:
    x = torch.ones(MANY)
    output = dropout(x, p)
    torch.manual_seed(0)
    assert torch.equal(output, nn.functional.dropout(x, p))


def test_an_invalid_probability_raises_an_error() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, but got 1\.5"):
        dropout(torch.ones(MANY), 1.5)


def test_autocast_keeps_the_dtype() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            assert dropout(torch.ones(MANY, dtype=dtype), 0.1).dtype == dtype


def test_the_module_is_a_torch_dropout() -> None:
    drop, x = Dropout(0.9), torch.ones(MANY)
    assert isinstance(drop, nn.Dropout)
    drop.p = 0.25
    assert within(zeros(drop(x)), 0.25, MANY)
    assert Dropout(0.5, inplace=True)(x) is x
    assert within(zeros(x), 0.5, MANY)


COMPILED = """
import torch
from softlook.ops.dropout import Dropout

output = torch.compile(Dropout(0.1), fullgraph=True)(torch.ones(1 << 18, requires_grad=True))
output.sum().backward()
print((output == 0).double().mean().item(), output.max().item())
"""


@pytest.mark.slow
def test_dropout_compiles_as_one_graph() -> None:
    """In a subprocess: torch.compile cannot trace the shape checks of the test run."""
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", COMPILED]
    child = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    frequency, largest = map(float, child.stdout.split())
    assert within(frequency, 0.1, MANY)
    assert largest == pytest.approx(1 / 0.9)


def test_export_uses_torchs_dropout() -> None:
    x = torch.ones(MANY)
    training = [str(node.target) for node in torch.export.export(Dropout(0.1), (x,)).graph.nodes]
    assert "aten.dropout.default" in training
    assert not any("random" in name for name in training)
    evaluation = torch.export.export(Dropout(0.1).eval(), (x,)).graph.nodes
    assert [node.op for node in evaluation] == ["placeholder", "output"]


def test_vmap_with_different_randomness() -> None:
    one, other = torch.func.vmap(Dropout(0.5), randomness="different")(torch.ones(2, MANY))
    assert within((one == other).double().mean().item(), 0.5, MANY)


def test_meta_tensors_keep_their_shape() -> None:
    assert dropout(torch.ones(MANY, device="meta"), 0.1).shape == (MANY,)


@pytest.mark.usefixtures("fast_only")
def test_random_numbers_are_drawn_on_the_tensors_device() -> None:
    x = torch.ones(MANY)
    with torch.device("meta"):
        output = dropout(x, 0.5)
    assert within(zeros(output), 0.5, MANY)
