"""Who is pulled towards nought, how long a gradient may be, and a memory that survives."""

import pytest
import torch

from softlook.base.errors import WeightsError
from softlook.train import OptimizerConfig
from softlook.train.objectives import causal_lm
from softlook.train.optimizer import build_optimizer, load_optimizer_state, optimizer_state, scale_and_clip_grads_
from softlook.weights.tensor_files import StoredTensor
from tests.train.tiny import assert_same, model, rows, sentences


def test_only_matrices_have_weight_decay() -> None:
    own = model()
    own.position_embedding.requires_grad_(False)  # pyright: ignore
    decaying, others = build_optimizer(own, OptimizerConfig(weight_decay=0.3)).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert all(p.ndim >= 2 for p in decaying["params"])
    assert all(p.ndim < 2 for p in others["params"])
    grouped = [id(p) for p in (*decaying["params"], *others["params"])]
    assert sorted(grouped) == sorted(id(p) for p in own.parameters() if p.requires_grad)


def test_optimizer_settings_are_applied() -> None:
    made = build_optimizer(model(), OptimizerConfig(lr=0.5, beta1=0.7, beta2=0.8))
    assert made.defaults["lr"] == 0.5
    assert made.defaults["betas"] == (0.7, 0.8)
    assert made.defaults["fused"]


@pytest.mark.parametrize("factor", [0.5, 1.0, 20.0])
def test_gradients_are_scaled_then_clipped(factor: float) -> None:
    gradients = [torch.randn(4, 3), torch.randn(5)]
    expected = [gradient * factor for gradient in gradients]
    length = torch.cat([gradient.flatten() for gradient in expected]).norm()
    said = scale_and_clip_grads_(gradients, torch.tensor(factor), max_norm=2.0)
    torch.testing.assert_close(said, length)
    cut = min(1.0, 2.0 / length.item())
    torch.testing.assert_close(gradients, [gradient * cut for gradient in expected], rtol=1e-5, atol=1e-6)


def stepped() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    own = model()
    optimizer = build_optimizer(own, OptimizerConfig())
    causal_lm()(own, rows(sentences()[:3])).total.backward()
    optimizer.step()
    return own, optimizer


def stored(tensors: dict[str, torch.Tensor]) -> dict[str, StoredTensor]:
    return {name: StoredTensor.from_tensor(tensor) for name, tensor in tensors.items()}


def test_optimizer_state_round_trips() -> None:
    own, optimizer = stepped()
    memory = optimizer_state(own, optimizer)
    assert {name.rpartition(".")[2] for name in memory} == {"exp_avg", "exp_avg_sq", "step"}
    other = model()
    fresh = build_optimizer(other, OptimizerConfig())
    load_optimizer_state(other, fresh, stored(memory))
    assert_same(optimizer_state(other, fresh), memory)


def test_the_state_of_another_model_raises_and_changes_nothing() -> None:
    own, optimizer = stepped()
    before = {name: tensor.clone() for name, tensor in optimizer_state(own, optimizer).items()}
    spoilt = {
        "which this model does not have": {"stranger.exp_avg": torch.ones(1)},
        "state of 'final_norm.bias' does not fit": {"final_norm.bias.exp_avg": torch.ones(1)},
    }
    for message, tensors in spoilt.items():
        with pytest.raises(WeightsError, match=message):
            load_optimizer_state(own, optimizer, stored({**before, **tensors}))
        assert_same(optimizer_state(own, optimizer), before)
