"""Muon: its directions, its state, skipped steps, and the loss after a short run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.train import OptimizerConfig
from softlook.train.config import TrainingConfig, fixed_settings
from softlook.train.events import StepLogged
from softlook.train.muon import Muon, block_matrices, orthogonalize
from softlook.train.optimizer import build_optimizer, load_optimizer_state, optimizer_state
from softlook.weights.tensor_files import StoredTensor
from tests.train.tiny import NO_DROPOUT, assert_same, events_of, model, run_training

MUON = OptimizerConfig(optimizer="muon", lr=1e-2, warmup=3)


@pytest.mark.parametrize("shape", [(2, 8, 8), (1, 5, 20), (3, 20, 5)])
def test_singular_values_become_about_one_and_singular_vectors_stay(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape)
    near = orthogonalize(matrices).float()
    values = torch.linalg.svdvals(near)
    assert (values > 0.4).all() and (values < 1.4).all()
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    cosine = ((left @ right) * near).sum((1, 2)) / (near.norm(dim=(1, 2)) * min(shape[1:]) ** 0.5)
    assert (cosine > 0.9).all()


def test_matrices_of_blocks_have_muon_and_all_others_adamw() -> None:
    network = model()
    optimizer = build_optimizer(network, MUON)
    muon = {id(p) for group in optimizer.param_groups if group.get("muon") for p in group["params"]}
    assert muon == {id(p) for p in block_matrices(network)}
    assert id(network.token_embedding.weight) not in muon  # pyright: ignore
    grouped = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in network.parameters())


def test_muon_learns_at_least_as_fast_as_adamw_on_a_tiny_language_model() -> None:
    losses: dict[str, float] = {}
    for optim in (MUON, MUON.model_copy(update={"optimizer": "adamw"})):
        events: list[Any] = []
        run_training(None, events, model=model(NO_DROPOUT), optim=optim, max_steps=60)
        last = [event.loss for event in events_of(events, StepLogged)][-10:]
        losses[optim.optimizer] = sum(last) / len(last)
    assert losses["muon"] < losses["adamw"] + 0.05


def test_a_resumed_run_with_muon_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    expected, _ = run_training(tmp_path / "whole", optim=MUON, max_steps=8)
    run_training(tmp_path / "run", optim=MUON, max_steps=8, stop_at=4)
    resumed, _ = run_training(tmp_path / "run", optim=MUON, max_steps=8)
    assert_same(resumed, expected)


def test_state_round_trips() -> None:
    network = model()
    optimizer = build_optimizer(network, MUON)
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    state = optimizer_state(network, optimizer)
    fresh = build_optimizer(network, MUON)
    load_optimizer_state(network, fresh, {name: StoredTensor.from_tensor(tensor) for name, tensor in state.items()})
    assert_same(optimizer_state(network, fresh), state)


def test_a_step_that_is_skipped_on_the_device_changes_nothing() -> None:
    weight = nn.Parameter(torch.randn(4, 6))
    optimizer: Any = Muon([{"params": [weight], "muon": True}], lr=0.1, weight_decay=0.1)
    for grad, found in ((torch.randn(4, 6), 0.0), (torch.full((4, 6), torch.nan), 1.0)):
        before, weight.grad, optimizer.found_inf = weight.detach().clone(), grad, torch.tensor(found)
        optimizer.step()
        assert torch.equal(weight, before) == bool(found)
    assert optimizer.state[weight]["step"] == 1 and torch.isfinite(optimizer.state[weight]["exp_avg"]).all()


def test_runs_from_before_there_was_a_choice_have_equal_settings() -> None:
    assert "optimizer" not in fixed_settings(TrainingConfig(), OptimizerConfig())["optim"]
    assert fixed_settings(TrainingConfig(), MUON)["optim"]["optimizer"] == "muon"
