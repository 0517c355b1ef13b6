"""Weight decay, gradient clipping and the state of the optimizer."""

import pytest
import torch

from softlook.base.errors import WeightsError
from softlook.train import OptimizerConfig
from softlook.train.objectives import causal_lm
from softlook.train.optimizer import build_optimizer, load_optimizer_state, optimizer_state, scale_and_clip_grads_
from softlook.weights.tensor_files import StoredTensor
from tests.train.tiny import assert_same, model, rows, sentences


def test_only_matrices_have_weight_decay() -> None:
    network = model()
    network.position_embedding.requires_grad_(False)  # pyright: ignore
    decaying, others = build_optimizer(network, OptimizerConfig(weight_decay=0.3)).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert all(p.ndim >= 2 for p in decaying["params"])
    assert all(p.ndim < 2 for p in others["params"])
    grouped = [id(p) for p in (*decaying["params"], *others["params"])]
    assert sorted(grouped) == sorted(id(p) for p in network.parameters() if p.requires_grad)


def test_optimizer_settings_are_applied() -> None:
    optimizer = build_optimizer(model(), OptimizerConfig(lr=0.5, beta1=0.7, beta2=0.8))
    assert optimizer.defaults["lr"] == 0.5
    assert optimizer.defaults["betas"] == (0.7, 0.8)
    assert optimizer.defaults["fused"]


@pytest.mark.parametrize("factor", [0.5, 1.0, 20.0])
def test_gradients_are_scaled_then_clipped(factor: float) -> None:
    gradients = [torch.randn(4, 3), torch.randn(5)]
    expected = [gradient * factor for gradient in gradients]
    norm = torch.cat([gradient.flatten() for gradient in expected]).norm()
    returned = scale_and_clip_grads_(gradients, torch.tensor(factor), max_norm=2.0)
    torch.testing.assert_close(returned, norm)
    factor_after_clipping = min(1.0, 2.0 / norm.item())
    torch.testing.assert_close(
        gradients, [gradient * factor_after_clipping for gradient in expected], rtol=1e-5, atol=1e-6
    )


def model_after_step() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    network = model()
    optimizer = build_optimizer(network, OptimizerConfig())
    causal_lm()(network, rows(sentences()[:3])).total.backward()
    optimizer.step()
    return network, optimizer


def as_stored(tensors: dict[str, torch.Tensor]) -> dict[str, StoredTensor]:
    return {name: StoredTensor.from_tensor(tensor) for name, tensor in tensors.items()}


def test_optimizer_state_round_trips() -> None:
    network, optimizer = model_after_step()
    state = optimizer_state(network, optimizer)
    assert {name.rpartition(".")[2] for name in state} == {"exp_avg", "exp_avg_sq", "step"}
    other = model()
    fresh = build_optimizer(other, OptimizerConfig())
    load_optimizer_state(other, fresh, as_stored(state))
    assert_same(optimizer_state(other, fresh), state)


def test_the_state_of_another_model_raises_and_changes_nothing() -> None:
    network, optimizer = model_after_step()
    before = {name: tensor.clone() for name, tensor in optimizer_state(network, optimizer).items()}
    invalid = {
        "which this model does not have": {"stranger.exp_avg": torch.ones(1)},
        "state of 'final_norm.bias' does not fit": {"final_norm.bias.exp_avg": torch.ones(1)},
    }
    for message, tensors in invalid.items():
        with pytest.raises(WeightsError, match=message):
            load_optimizer_state(network, optimizer, as_stored({**before, **tensors}))
        assert_same(optimizer_state(network, optimizer), before)
