"""Stopped anywhere and started again, a run ends as if it had never stopped: bit for bit."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import TrainingError
from softlook.train import Loss, Optim
from softlook.train.events import Evaluated, Finished, Started, Trained
from softlook.train.examples import Rows
from softlook.train.objectives import language
from softlook.train.snapshots import Snapshots
from softlook.weights.files import read_file
from softlook.weights.schema import read_json
from tests.train.tiny import (
    Line,
    assert_same,
    assert_same_place,
    batches,
    distance,
    look,
    said,
    sentences,
    trained,
)

STEPS, EPOCH = 16, len(batches().epoch(0))
EDGES = [EPOCH - 1, EPOCH, EPOCH + 1, 2 * EPOCH]
"""Steps at which an epoch ends, or is about to, where each takes one batch."""
FILES = ("model.safetensors", "optimizer.safetensors", "dice.safetensors")
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (3, {}),
    "averaged, with looks": (10, {"average": 0.9, "evaluate_every": 3, "evaluate": look()}),
    "accumulated, in bfloat16": (10, {"accumulate": 3, "precision": "bfloat16", "average": 0.5}),
    "in float16": (3, {"precision": "float16"}),
    "made ready ahead": (3, {"ahead": 3, "accumulate": 2}),
}
"""How often to stop, and the settings."""


def points(count: int) -> list[int]:
    """Places to stop at: about the edges of epochs first, then anywhere."""
    dice = torch.Generator().manual_seed(count)
    anywhere = [n + 1 for n in torch.randperm(STEPS - 1, generator=dice).tolist() if n + 1 not in EDGES]
    return [n for n in (*EDGES, *anywhere) if n < STEPS][:count]


def kept(run: Path) -> dict[str, torch.Tensor]:
    """All that the last checkpoint of a run holds."""
    path = Snapshots(run).path(STEPS)
    scaler = read_json(path / "progress.json")["scaler"]
    tensors = {f"{file}/{name}": tensor for file in FILES for name, tensor in read_file(path / file).items()}
    return tensors | {f"scaler/{name}": torch.tensor(value) for name, value in scaler.items()}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_stopped_ends_as_one_that_is_not(way: str, tmp_path: Path) -> None:
    count, settings = WAYS[way]
    settings = {"steps": STEPS, "save_every": 100, **settings}
    whole, unbroken = trained(tmp_path / "whole", **settings)
    assert len(points(count)) == count
    for stop in points(count):
        run = tmp_path / f"stopped at {stop}"
        _, progress = trained(run, stop_at=stop, **settings)
        assert progress.step == stop
        again, progress = trained(run, **settings)
        assert_same(again, whole)
        assert_same_place(progress, unbroken)
        assert_same(kept(run), kept(tmp_path / "whole"))


def test_a_run_can_be_stopped_after_every_single_step(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 10, "accumulate": 2, "average": 0.9, "evaluate_every": 3, "evaluate": look()}
    heard: list[Any] = []
    whole, unbroken = trained(tmp_path / "whole", **settings)
    for step in range(1, 10):
        trained(tmp_path / "pieces", heard, stop_at=step, **settings)
    pieced, progress = trained(tmp_path / "pieces", heard, **settings)
    assert_same(pieced, whole)
    assert_same_place(progress, unbroken)
    assert [event.step for event in said(heard, Evaluated)] == [3, 6, 9, 10]
    assert [event.step for event in said(heard, Started)] == [0, *range(1, 10)]


def test_each_example_is_seen_once_in_each_epoch_however_often_a_run_is_stopped(tmp_path: Path) -> None:
    seen: Counter[tuple[int, ...]] = Counter()

    def objective(model: nn.Module, batch: Rows) -> Loss:
        for ids, wanted in zip(batch.ids.tolist(), batch.wanted.tolist(), strict=True):
            length = sum(id >= 0 for id in wanted)
            seen[(*ids[:length], wanted[length - 1])] += 1
        return language()(model, batch)

    for stop in (1, EPOCH - 1, EPOCH, EPOCH + 2, 2 * EPOCH, None):
        trained(tmp_path, steps=3 * EPOCH, objective=objective, stop_at=stop)
    assert seen == Counter({tuple(sentence): 3 for sentence in sentences()})


def test_losses_and_learning_rates_go_on_where_they_were(tmp_path: Path) -> None:
    whole: list[Any] = []
    pieces: list[Any] = []
    trained(tmp_path / "whole", whole, steps=9)
    trained(tmp_path / "pieces", pieces, steps=9, stop_at=4)
    trained(tmp_path / "pieces", pieces, steps=9)
    story = [[(e.step, e.loss, e.lr, e.gradient) for e in said(heard, Trained)] for heard in (whole, pieces)]
    assert story[0] == story[1]


@pytest.mark.parametrize("stop", [1, 3, 5, 7])
def test_a_loss_that_is_averaged_over_several_steps_does_not_depend_on_where_a_run_was_stopped(
    stop: int, tmp_path: Path
) -> None:
    whole: list[Any] = []
    pieces: list[Any] = []
    trained(tmp_path / "whole", whole, steps=9, report_every=4)
    trained(tmp_path / "pieces", pieces, steps=9, report_every=4, stop_at=stop)
    trained(tmp_path / "pieces", pieces, steps=9, report_every=4)
    logged = [[(e.step, e.loss, e.lr) for e in said(heard, Trained)] for heard in (whole, pieces)]
    assert logged[0] == logged[1] and [step for step, _, _ in logged[0]] == [4, 8, 9]


def test_looking_at_held_out_data_changes_nothing_that_is_learned() -> None:
    looks: list[float] = []

    def chancy(model: nn.Module) -> dict[str, float]:
        looks.append(torch.rand(()).item())
        return {"loss": -float(len(looks))}  # each better than the one before, so that the last weights are kept

    blind, _ = trained(steps=9)
    looking, _ = trained(steps=9, evaluate=chancy, evaluate_every=2)
    assert len(set(looks)) == 5
    assert_same(blind, looking)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    def files() -> list[tuple[Path, int]]:
        return sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "checkpoints").rglob("*"))

    heard: list[Any] = []
    first, _ = trained(tmp_path, steps=6, evaluate=look(), evaluate_every=3)
    before = files()
    second, _ = trained(tmp_path, heard, steps=6, evaluate=look(), evaluate_every=3)
    assert_same(first, second)
    assert files() == before
    assert [type(event) for event in heard] == [Started, Finished]


@pytest.mark.parametrize("stops", [(), (3,), (2, 5, 7)], ids=str)
def test_patience_is_remembered(stops: tuple[int, ...], tmp_path: Path) -> None:
    """Every look is worse than the first: the run ends after three of them, however it is cut into pieces."""
    losses = iter(range(100))
    settings: dict[str, Any] = {"steps": 100, "evaluate": lambda model: {"loss": float(next(losses))}}
    for stop in stops:
        trained(tmp_path, patience=3, evaluate_every=2, stop_at=stop, **settings)
    heard: list[Any] = []
    _, progress = trained(tmp_path, heard, patience=3, evaluate_every=2, **settings)
    assert (progress.step, progress.best_step, progress.waited) == (8, 2, 3)
    assert heard[-1].reason == "no better for 3 looks"


def test_settings_that_change_what_is_learned_must_stay_and_others_may_change(tmp_path: Path) -> None:
    trained(tmp_path, steps=2)
    with pytest.raises(TrainingError, match=r"was made with other settings:\n  training.seed: 0 then, 1 now\nGive the"):
        trained(tmp_path, steps=2, seed=1)
    with pytest.raises(TrainingError, match=r"optim.lr: 0.01 then, 0.5 now"):
        trained(tmp_path, steps=2, optim=Optim(lr=0.5, warmup=3))
    _, progress = trained(tmp_path, steps=3, save_every=7, keep=3, minutes=5)
    assert progress.step == 3


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    trained(tmp_path, steps=2)
    with pytest.raises(
        ValueError, match=r"step-000000002/model.safetensors does not fit: it lacks 'value'; it also holds"
    ):
        trained(tmp_path, steps=2, model=Line(), objective=distance, source=[torch.ones(2)])
