"""Dropout by 16 bits a place: right on average, the same by the same seed, and torch's own where that is better."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

from softlook.ops.dropping import FEW, STEPS, Dropout, dropped

MANY = 1 << 18
KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIGMAS = 5


def zeros(x: Tensor) -> float:
    return (x == 0).double().mean().item()


def within(share: float, wanted: float, places: int) -> bool:
    """Is it as near as chance allows, with one miss in millions?"""
    return abs(share - wanted) < SIGMAS * math.sqrt(wanted * (1 - wanted) / places)


def slow_way_only(*_: object) -> Tensor:
    raise AssertionError("torch's own dropout was asked")


@pytest.fixture
def fast_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.ops.dropping.F.dropout", slow_way_only)


def test_nothing_to_drop_is_the_very_same_tensor() -> None:
    x = torch.randn(MANY)
    assert dropped(x, 0.0) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize("share", [1 / STEPS, 0.001, 0.1, 0.5, 0.9, 1 - 1 / STEPS])
def test_the_share_mean_and_variance_are_right(share: float) -> None:
    places = 1 << 22
    output = dropped(torch.ones(places, dtype=torch.float64), share)
    rounded = round(share * STEPS) / STEPS
    assert abs(rounded - share) <= 0.5 / STEPS
    assert within(zeros(output), rounded, places)
    variance = rounded / (1 - rounded)
    assert abs(output.mean().item() - 1) < SIGMAS * math.sqrt(variance / places)
    assert output.var().item() == pytest.approx(variance, rel=0.5 if share in {1 / STEPS, 1 - 1 / STEPS} else 0.1)


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_what_is_kept_is_scaled_so_that_the_mean_is_exact(share: float) -> None:
    rounded = round(share * STEPS) / STEPS
    scale = dropped(torch.ones(MANY, dtype=torch.float64), share).max().item()
    assert scale * (1 - rounded) == pytest.approx(1, abs=1e-15)


@pytest.mark.usefixtures("fast_only")
def test_places_do_not_know_of_one_another() -> None:
    groups = MANY
    gone = (dropped(torch.ones(groups, 8), 0.3) == 0).double()  # rows of two numbers of 64 bits
    for one, other in combinations(range(8), 2):
        assert within((gone[:, one] * gone[:, other]).mean().item(), 0.09, groups), (one, other)
    assert within((gone[1:, 0] * gone[:-1, 0]).mean().item(), 0.09, groups)


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_each_place_is_dropped_or_scaled_in_every_kind_of_number(dtype: torch.dtype) -> None:
    x = torch.randn(MANY).abs().add(0.1).to(dtype)
    output = dropped(x, 0.25)
    kept = output != 0
    assert output.dtype == dtype
    assert within(zeros(output), 0.25, MANY)
    exact = (x[kept].double() / 0.75).to(dtype)
    torch.testing.assert_close(output[kept], exact, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_the_gradient_goes_where_the_number_went(dtype: torch.dtype) -> None:
    x = torch.randn(MANY, dtype=dtype).abs().add(0.1).requires_grad_()
    upstream = torch.randn(MANY, dtype=dtype)
    output = dropped(x, 0.25)
    (grad,) = torch.autograd.grad(output, x, upstream)
    wanted = torch.where(output == 0, 0, upstream.double() / 0.75).to(dtype)
    torch.testing.assert_close(grad, wanted, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.usefixtures("fast_only")
def test_the_seed_decides_and_the_state_goes_on() -> None:
    x = torch.ones(MANY + 3)
    first, then = dropped(x, 0.1), dropped(x, 0.1)
    assert not torch.equal(first, then)
    torch.manual_seed(0)
    assert torch.equal(dropped(x, 0.1), first)
    state = torch.get_rng_state()
    assert torch.equal(dropped(x, 0.1), then)
    torch.set_rng_state(state)
    assert torch.equal(dropped(x, 0.1), then)


@pytest.mark.usefixtures("fast_only")
@pytest.mark.parametrize(
    "view", [lambda x: x.mT, lambda x: x[:, ::3], lambda x: x[:1].expand(64, -1), lambda x: x[1:, 1:]], ids="abcd"
)
def test_how_a_tensor_lies_in_memory_changes_nothing(view: Callable[[Tensor], Tensor]) -> None:
    x = view(torch.rand(513, 515).add(0.1))
    output = dropped(x, 0.5)
    torch.manual_seed(0)
    torch.rand(513, 515)
    assert torch.equal(output, dropped(x.contiguous(), 0.5))
    assert torch.equal(output[output != 0], 2 * x[output != 0])


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1,), (FEW - 1,), (FEW,), (FEW + 1,), (FEW + 2,)], ids=str)
def test_any_size_keeps_its_shape(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    output = dropped(x, 0.5)
    assert output.shape == x.shape
    assert set(output.unique().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("share", [1e-9, 1 - 1e-9, 1.0])
def test_a_share_too_near_to_all_or_nothing_is_left_to_torch(share: float) -> None:
    x = torch.ones(MANY)
    output = dropped(x, share)
    torch.manual_seed(0)
    assert torch.equal(output, nn.functional.dropout(x, share))


def test_a_share_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, but got 1\.5"):
        dropped(torch.ones(MANY), 1.5)


def test_autocast_leaves_the_kind_of_number_alone() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            assert dropped(torch.ones(MANY, dtype=dtype), 0.1).dtype == dtype


def test_it_is_a_dropout_of_torch_whose_share_can_be_set() -> None:
    drop, x = Dropout(0.9), torch.ones(MANY)
    assert isinstance(drop, nn.Dropout)
    drop.p = 0.25
    assert within(zeros(drop(x)), 0.25, MANY)
    assert Dropout(0.5, inplace=True)(x) is x
    assert within(zeros(x), 0.5, MANY)


COMPILED = """
import torch
from softlook.ops.dropping import Dropout

output = torch.compile(Dropout(0.1), fullgraph=True)(torch.ones(1 << 18, requires_grad=True))
output.sum().backward()
print((output == 0).double().mean().item(), output.max().item())
"""


@pytest.mark.slow
def test_compiled_as_one_graph_it_drops_as_many() -> None:
    """In a process of its own: the compiler cannot see through the shape checks of the test run."""
    places = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", COMPILED]
    child = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    share, largest = map(float, child.stdout.split())
    assert within(share, 0.1, MANY)
    assert largest == pytest.approx(1 / 0.9)


def test_exported_it_is_torchs_own_step_and_in_eval_nothing() -> None:
    x = torch.ones(MANY)
    training = [str(node.target) for node in torch.export.export(Dropout(0.1), (x,)).graph.nodes]
    assert "aten.dropout.default" in training
    assert not any("random" in name for name in training)
    quiet = torch.export.export(Dropout(0.1).eval(), (x,)).graph.nodes
    assert [node.op for node in quiet] == ["placeholder", "output"]


def test_rows_of_a_vmap_may_have_dice_of_their_own() -> None:
    one, other = torch.func.vmap(Dropout(0.5), randomness="different")(torch.ones(2, MANY))
    assert within((one == other).double().mean().item(), 0.5, MANY)


def test_a_tensor_that_is_only_imagined_goes_through() -> None:
    assert dropped(torch.ones(MANY, device="meta"), 0.1).shape == (MANY,)


@pytest.mark.usefixtures("fast_only")
def test_the_dice_lie_where_the_tensor_does_whatever_the_default_device() -> None:
    x = torch.ones(MANY)
    with torch.device("meta"):
        output = dropped(x, 0.5)
    assert within(zeros(output), 0.5, MANY)
