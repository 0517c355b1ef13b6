"""Scaled linear layers in checkpoints."""

from pathlib import Path

import pytest
import torch
from torch import nn

from softlook.blocks.scaled_linear import ScaledLinear, fold_scaled_layers, folded_tensors
from softlook.train import Loss, OptimizerConfig, TrainingConfig, fit
from softlook.train.events import Event, StepLogged
from softlook.weights.tensor_files import SINGLE_FILE, read_safetensors

BATCHES = [torch.randn(8, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(6)]


def scaled_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), ScaledLinear(nn.Linear(4, 1), scale=300.0, shift=-7.0))


def objective(model: nn.Module, batch: torch.Tensor) -> Loss:
    return Loss(((model(batch) - 300 * batch.sum(-1, keepdim=True)) / 300).square().sum(), len(batch))


def train(model: nn.Module, folder: Path | None, stop_at: int | None = None) -> nn.Module:
    def stop(event: Event) -> None:
        if isinstance(event, StepLogged) and event.step == stop_at:
            raise KeyboardInterrupt

    training = TrainingConfig(max_steps=6, save_every=1, log_every=1, device="cpu", ema_decay=0.9)
    fit(model, BATCHES, objective, training=training, optim=OptimizerConfig(lr=0.01), run_dir=folder, callbacks=[stop])
    return model


def test_a_model_with_scaled_layers_resumes_exactly(tmp_path: Path) -> None:
    whole = train(scaled_model(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(scaled_model(), tmp_path / "parts", stop_at=4)
    resumed = train(scaled_model(), tmp_path / "parts")
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_weights_of_a_checkpoint_are_folded(tmp_path: Path) -> None:
    trained = train(scaled_model(), tmp_path / "run")
    folded = folded_tensors(trained, trained.state_dict())
    stored = read_safetensors(tmp_path / "run/checkpoints/step-000000006" / SINGLE_FILE)
    assert stored.keys() == folded.keys()
    expected = trained(BATCHES[0])
    fold_scaled_layers(trained)
    torch.testing.assert_close(trained(BATCHES[0]), expected)
    assert all(torch.equal(folded[name], tensor) for name, tensor in trained.state_dict().items())
