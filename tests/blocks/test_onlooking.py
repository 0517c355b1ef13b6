"""A block worked out for some places alone."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from softlook.blocks import (
    Block,
    GatedFeedForward,
    Mixing,
    PreNorm,
    QKNormAttention,
    RMSNorm,
    SelfAttention,
    add_lora,
    look_on,
)
from softlook.blocks.onlooking import _is_worth_it

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "without biases": {"bias": False},
    "a scale of its own": {"mix": Mixing(scale=0.3)},
    "a sink": {"mix": Mixing(sink=0.0)},
    "shared keys": {"kv_heads": 2},
}


def block(**changes: Any) -> Any:
    made = Block(
        SelfAttention(24, heads=4, **changes), GatedFeedForward(24, 32, F.relu), lambda: PreNorm(nn.LayerNorm(24))
    )
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return made.double().eval()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("places", [1, 2, 7])
def test_some_places_become_what_they_would_have_become_among_all(case: str, places: int) -> None:
    made, x = block(**CASES[case]), torch.randn(3, 7, 24, dtype=torch.float64)
    assert_close(look_on(made, x[:, :places], x), made(x)[:, :places])


def test_gradients_are_those_of_the_whole_block() -> None:
    made, x = block(), torch.randn(3, 7, 24, dtype=torch.float64, requires_grad=True)
    weights = {name: weight for name, weight in made.named_parameters() if not name.endswith("to_key.bias")}
    few = torch.autograd.grad(look_on(made, x[:, :1], x).square().sum(), [x, *weights.values()])
    all_ = torch.autograd.grad(made(x)[:, :1].square().sum(), [x, *weights.values()])
    for name, one, other in zip(["x", *weights], few, all_, strict=True):
        assert_close(one, other, msg=lambda told, name=name: f"{name}: {told}")


def test_one_place_makes_no_key_for_the_others_and_a_hook_still_sees_its_map() -> None:
    made, x, kept = block(), torch.randn(3, 7, 24, dtype=torch.float64), []
    assert _is_worth_it(made.attend, x[:, :1], x)
    made.attend.mix.register_forward_hook(lambda mix, args, out: kept.append(mix.weights(*args[:2])))
    look_on(made, x[:, :1], x)
    made(x)
    assert_close(kept[0], kept[1][:, :, :1])


def test_many_onlookers_and_layers_with_detours_go_the_usual_way() -> None:
    made, x = block(), torch.randn(3, 7, 24, dtype=torch.float64)
    assert not _is_worth_it(made.attend, x, x)
    add_lora(made, rank=2, targets=("to_key",))
    assert not _is_worth_it(made.attend, x[:, :1], x)


def test_dropout_drops_the_same_share_of_the_values_bias() -> None:
    torch.manual_seed(0)
    made, x = block(mix=Mixing(dropout=0.5)).train(), torch.zeros(20_000, 7, 24, dtype=torch.float64)
    with torch.no_grad():
        said = [look(made, x) for look in (lambda b, x: look_on(b, x[:, :1], x), lambda b, x: b(x)[:, :1])]
    for one, other in zip(*((s.mean(0), s.std(0)) for s in said), strict=True):
        assert_close(one, other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("places", [1, 2])
def test_a_rows_bits_do_not_depend_on_its_place_among_others(places: int) -> None:
    made, x = block().float(), torch.randn(1, 12, 24).repeat(16, 1, 1)
    assert _is_worth_it(made.attend, x[:, :places], x)
    found = look_on(made, x[:, :places], x)
    assert bool((found == found[:1]).all())


def test_normalised_queries_and_keys_are_looked_at_the_usual_way() -> None:
    made, x = block(), torch.randn(3, 7, 24, dtype=torch.float64)
    made.attend = QKNormAttention(24, heads=4, norm=RMSNorm).double()
    assert not _is_worth_it(made.attend, x[:, :1], x)
    assert_close(look_on(made, x[:, :1], x), made(x)[:, :1])
