"""Exponential moving averages of weights, and averages of checkpoints."""

from pathlib import Path

import pytest
import torch
from torch import nn

from softlook.base.errors import WeightsError
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.ema import EMA, average_checkpoints
from softlook.weights import load
from tests.train.tiny import SIZES, Line, assert_same, distance, model, run_training, weights


def test_ema_matches_its_formula() -> None:
    line = Line(1.0)
    ema, expected = EMA(line, decay=0.9), 1.0
    for step in range(1, 40):
        with torch.no_grad():
            line.value.fill_(float(step % 7))
        ema.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * (step % 7)
    assert ema.shadow["value"].item() == pytest.approx(expected, rel=1e-5)


def test_swap_in_restores_the_weights_after_an_error() -> None:
    network = model()
    ema, before = EMA(network, 0.5), weights(network)
    with torch.no_grad():
        for tensor in ema.shadow.values():
            tensor.add_(1.0)
    shadow = {name: tensor.clone() for name, tensor in ema.shadow.items()}
    with pytest.raises(ZeroDivisionError), ema.swap_in():
        torch.testing.assert_close(weights(network)["final_norm.bias"], before["final_norm.bias"] + 1)
        raise ZeroDivisionError
    assert_same(network, before)
    assert_same(ema.shadow, shadow)


def test_ema_has_tied_weights_once_and_no_frozen_weights() -> None:
    network = model()
    network.position_embedding.requires_grad_(False)  # pyright: ignore
    names = EMA(network, 0.5).shadow.keys()
    assert "position_embedding.weight" not in names
    assert len([name for name in names if name in ("token_embedding.weight", "lm_head.weight")]) == 1


def test_average_checkpoints_is_the_mean(tmp_path: Path) -> None:
    run_training(tmp_path, max_steps=6, save_every=2, keep_checkpoints=3)
    paths = CheckpointManager(tmp_path, keep_checkpoints=3).list_checkpoints()
    assert len(paths) == 3
    models = [weights(load(path)) for path in paths]
    averaged = average_checkpoints(paths)
    for name, tensor in averaged.items():
        expected = torch.stack([one[name].double() for one in models]).mean(0)
        torch.testing.assert_close(tensor, expected.float(), rtol=1e-7, atol=1e-9)
    result = nn.Module.load_state_dict(model(SIZES), averaged, strict=False)
    assert not result.unexpected_keys
    assert_same(average_checkpoints(paths[:1]), {name: models[0][name] for name in averaged})


def test_averaging_different_models_raises(tmp_path: Path) -> None:
    run_training(tmp_path / "one", max_steps=1)
    run_training(tmp_path / "two", max_steps=1, model=Line(), source=[torch.ones(1)], objective=distance)
    paths = [CheckpointManager(tmp_path / name).path(1) for name in ("one", "two")]
    with pytest.raises(WeightsError, match=r"two/checkpoints/step-000000001 does not match the model: missing"):
        average_checkpoints(paths)


def test_averaging_a_damaged_checkpoint_raises(tmp_path: Path) -> None:
    run_training(tmp_path, max_steps=1)
    path = CheckpointManager(tmp_path).path(1)
    (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(WeightsError, match=r"model.safetensors is not what was saved: it was truncated"):
        average_checkpoints([path])


def test_a_step_that_was_skipped_on_the_device_leaves_the_average_alone() -> None:
    model = nn.Linear(3, 3)
    plain, conditional = EMA(model, 0.9), EMA(model, 0.9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    plain.update(50)
    conditional.update(50, torch.tensor(True))
    torch.testing.assert_close(conditional.shadow, plain.shadow)
    before = {name: tensor.clone() for name, tensor in conditional.shadow.items()}
    conditional.update(51, torch.tensor(False))
    assert all(torch.equal(tensor, before[name]) for name, tensor in conditional.shadow.items())
