"""Who is pulled towards nought, how long a gradient may be, and a memory that survives."""

import pytest
import torch

from softlook.base.errors import WeightsError
from softlook.train import Optim
from softlook.train.objectives import language
from softlook.train.optimizer import make_optimizer, remembered, remind, shorten
from softlook.weights.parts import Stored
from tests.train.tiny import assert_same, model, rows, sentences


def test_every_weight_that_learns_is_in_one_group_and_only_matrices_decay() -> None:
    own = model()
    own.places.requires_grad_(False)  # pyright: ignore
    decaying, others = make_optimizer(own, Optim(weight_decay=0.3)).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert all(p.ndim >= 2 for p in decaying["params"])
    assert all(p.ndim < 2 for p in others["params"])
    grouped = [id(p) for p in (*decaying["params"], *others["params"])]
    assert sorted(grouped) == sorted(id(p) for p in own.parameters() if p.requires_grad)


def test_the_settings_arrive() -> None:
    made = make_optimizer(model(), Optim(lr=0.5, beta1=0.7, beta2=0.8))
    assert made.defaults["lr"] == 0.5
    assert made.defaults["betas"] == (0.7, 0.8)
    assert made.defaults["fused"]


@pytest.mark.parametrize("factor", [0.5, 1.0, 20.0])
def test_gradients_are_multiplied_and_then_cut(factor: float) -> None:
    gradients = [torch.randn(4, 3), torch.randn(5)]
    wanted = [gradient * factor for gradient in gradients]
    length = torch.cat([gradient.flatten() for gradient in wanted]).norm()
    said = shorten(gradients, torch.tensor(factor), most=2.0)
    torch.testing.assert_close(said, length)
    cut = min(1.0, 2.0 / length.item())
    torch.testing.assert_close(gradients, [gradient * cut for gradient in wanted], rtol=1e-5, atol=1e-6)


def stepped() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    own = model()
    optimizer = make_optimizer(own, Optim())
    language()(own, rows(sentences()[:3])).total.backward()
    optimizer.step()
    return own, optimizer


def stored(tensors: dict[str, torch.Tensor]) -> dict[str, Stored]:
    return {name: Stored.of(tensor) for name, tensor in tensors.items()}


def test_what_was_remembered_is_known_again() -> None:
    own, optimizer = stepped()
    memory = remembered(own, optimizer)
    assert {name.rpartition(".")[2] for name in memory} == {"exp_avg", "exp_avg_sq", "step"}
    other = model()
    fresh = make_optimizer(other, Optim())
    remind(other, fresh, stored(memory))
    assert_same(remembered(other, fresh), memory)


def test_a_memory_of_another_model_is_refused_and_nothing_is_changed() -> None:
    own, optimizer = stepped()
    before = {name: tensor.clone() for name, tensor in remembered(own, optimizer).items()}
    spoilt = {
        "which this model does not have": {"stranger.exp_avg": torch.ones(1)},
        "memory of 'norm.bias' does not fit": {"norm.bias.exp_avg": torch.ones(1)},
    }
    for message, tensors in spoilt.items():
        with pytest.raises(WeightsError, match=message):
            remind(own, optimizer, stored({**before, **tensors}))
        assert_same(remembered(own, optimizer), before)
