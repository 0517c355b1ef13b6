"""Averages of weights, over time and over checkpoints."""

from pathlib import Path

import pytest
import torch
from torch import nn

from softlook.base.errors import WeightsError
from softlook.train.average import Average, mean_of
from softlook.train.snapshots import Snapshots
from softlook.weights import load
from tests.train.tiny import SIZES, Line, assert_same, distance, model, trained, weights


def test_the_average_is_what_the_formula_says() -> None:
    line = Line(1.0)
    average, wanted = Average(line, decay=0.9), 1.0
    for step in range(1, 40):
        with torch.no_grad():
            line.value.fill_(float(step % 7))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        wanted = decay * wanted + (1 - decay) * (step % 7)
    assert average.tensors["value"].item() == pytest.approx(wanted, rel=1e-5)


def test_the_model_has_its_own_weights_back_even_after_an_error() -> None:
    own = model()
    average, before = Average(own, 0.5), weights(own)
    with torch.no_grad():
        for tensor in average.tensors.values():
            tensor.add_(1.0)
    kept = {name: tensor.clone() for name, tensor in average.tensors.items()}
    with pytest.raises(ZeroDivisionError), average.in_place():
        torch.testing.assert_close(weights(own)["norm.bias"], before["norm.bias"] + 1)
        raise ZeroDivisionError
    assert_same(own, before)
    assert_same(average.tensors, kept)


def test_a_tied_matrix_is_averaged_once_and_frozen_weights_not_at_all() -> None:
    own = model()
    own.places.requires_grad_(False)  # pyright: ignore
    names = Average(own, 0.5).tensors.keys()
    assert "places.table.weight" not in names
    assert len([name for name in names if name in ("tokens.table.weight", "head.weight")]) == 1


def test_checkpoints_are_averaged_number_by_number(tmp_path: Path) -> None:
    trained(tmp_path, steps=6, save_every=2, keep=3)
    paths = Snapshots(tmp_path, keep=3).all()
    assert len(paths) == 3
    models = [weights(load(path)) for path in paths]
    averaged = mean_of(paths)
    for name, tensor in averaged.items():
        wanted = torch.stack([one[name].double() for one in models]).mean(0)
        torch.testing.assert_close(tensor, wanted.float(), rtol=1e-7, atol=1e-9)
    whole = nn.Module.load_state_dict(model(SIZES), averaged, strict=False)
    assert not whole.unexpected_keys
    assert_same(mean_of(paths[:1]), {name: models[0][name] for name in averaged})


def test_checkpoints_of_different_models_are_not_averaged(tmp_path: Path) -> None:
    trained(tmp_path / "one", steps=1)
    trained(tmp_path / "two", steps=1, model=Line(), source=[torch.ones(1)], objective=distance)
    paths = [Snapshots(tmp_path / name).path(1) for name in ("one", "two")]
    with pytest.raises(WeightsError, match=r"two/checkpoints/step-000000001 does not fit: it lacks"):
        mean_of(paths)


def test_a_damaged_checkpoint_is_not_averaged(tmp_path: Path) -> None:
    trained(tmp_path, steps=1)
    path = Snapshots(tmp_path).path(1)
    (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(WeightsError, match=r"model.safetensors is not what was saved: it was truncated"):
        mean_of([path])
