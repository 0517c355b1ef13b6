"""What is said of a run on a table before it begins is what it will be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.recipes.config.resolve import explicit_overrides
from softlook.recipes.config.tabular_schema import TabularModelConfig
from softlook.recipes.tabular.dry_run import DurationEstimate
from softlook.recipes.tabular.run import dry_run, train_table
from softlook.train.checkpoint.train_state import OPTIMIZER
from softlook.train.events import Event, Started
from tests.recipes.profiling.test_step_benchmark import Kept
from tests.recipes.small import events_of, people, tabular_config

LONG = DurationEstimate(step=0.1, look=2.0, remembering=5.0, epoch=10, epochs=30, looks=3, limit=None)


@pytest.fixture(autouse=True)
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.recipes.profiling.step_benchmark.TRIES", 4)


def test_a_rehearsal_settles_everything_and_writes_nothing(tmp_path: Path) -> None:
    found = dry_run(explicit_overrides(tabular_config(tmp_path)))
    assert found.resolved.origins["optim.lr"] == "recipe ours"
    assert found.resolved.config.optim.lr == 1e-3
    assert found.resolved.origins["answers"] == "auto"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("estimator", ["ft", "tab"])
def test_a_run_has_the_steps_the_sizes_and_the_columns_that_were_foreseen(estimator: str, tmp_path: Path) -> None:
    found, heard = dry_run(explicit_overrides(tabular_config(tmp_path, estimator=estimator))), list[Event]()
    assert not (tmp_path / "run").exists()
    fitted = train_table(tabular_config(tmp_path, estimator=estimator), [heard.append])
    (started,) = events_of(heard, Started)
    assert (found.duration.steps, found.weights) == (started.steps, started.parameters)
    assert fitted.estimator is not None and found.columns == fitted.estimator.preprocessor_.describe()
    assert found.rows == (192, 48) and found.batch == 32
    looks = [epoch for epoch in fitted.estimator.history_ if "val_loss" in epoch]
    assert found.duration.looks == len(looks)


def test_sizes_that_are_found_for_the_rows_are_explicit_overrides(tmp_path: Path) -> None:
    found = dry_run(explicit_overrides(tabular_config(tmp_path, size=TabularModelConfig(heads=2))))
    assert found.resolved.config.size.dim == found.size["dim"] > 0
    assert found.resolved.origins["size.dim"] == "auto"


def test_a_run_takes_the_memory_that_was_foreseen(tmp_path: Path) -> None:
    memory = dry_run(explicit_overrides(tabular_config(tmp_path))).memory
    kept = Kept()
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack):
        fitted = train_table(tabular_config(tmp_path))
    assert memory.activations / 2 < kept.most < 2 * memory.activations
    assert fitted.estimator is not None
    weights = sum(p.numel() * p.element_size() for p in fitted.estimator.model_.parameters() if p.requires_grad)
    assert weights <= memory.weights < 1.1 * weights + 10_000
    assert memory.gradients == pytest.approx(weights, rel=0.01) and memory.best == memory.weights
    (newest, *_) = sorted((fitted.folder / "checkpoints").glob("step-*"), reverse=True)
    assert memory.optimizer / 2 < (newest / OPTIMIZER).stat().st_size < 2 * memory.optimizer
    assert memory.data > 240 * 3 * 4 and not memory.data_on_disk


def test_rows_that_go_by_way_of_the_disk_are_said_to_lie_there(tmp_path: Path) -> None:
    memory = dry_run(explicit_overrides(tabular_config(tmp_path, train={"memory_limit": 2e-6}))).memory
    assert memory.data_on_disk > 192 * 3 * 4


def test_a_rehearsal_leaves_the_dice_as_they_were(tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    dry_run(explicit_overrides(tabular_config(tmp_path)))
    assert torch.equal(torch.get_rng_state(), before)


def test_time_is_that_of_steps_and_looks_and_rows_to_remember() -> None:
    assert LONG.steps == 300 and LONG.seconds == pytest.approx(41)
    assert LONG.said() == "300 steps of about 0.1 s and 3 looks of about 2 s: 41 s, or less."
    assert replace(LONG, limit=20.0).seconds == 20
    assert replace(LONG, look=0.0, looks=0).said() == "300 steps of about 0.1 s: 35 s, or less."


def test_where_patience_alone_decides_no_time_is_made_up(tmp_path: Path) -> None:
    sizes = TabularModelConfig(dim=16, depth=1, heads=2)
    settings = tabular_config(tmp_path, preset="paper", size=sizes)
    open_ = settings.model_copy(update={"training": settings.training.model_copy(update={"epochs": None})})
    found = dry_run(explicit_overrides(open_))
    assert found.duration.steps is None and found.duration.seconds is None
    assert any(sentence.endswith("patience ends it.") for sentence in found.said)
    limited = open_.model_copy(update={"training": open_.training.model_copy(update={"max_minutes": 2.0})})
    assert dry_run(explicit_overrides(limited)).duration.seconds == 120


def test_without_held_out_rows_nobody_looks(tmp_path: Path) -> None:
    settings = tabular_config(tmp_path)
    people(settings.data[0], 30)
    duration = dry_run(explicit_overrides(settings)).duration
    assert duration.looks == duration.evaluate == duration.retrieval_seconds == 0


@pytest.mark.slow  # a busy machine gets three tries
def test_a_run_takes_the_time_that_was_foreseen(tmp_path: Path) -> None:
    seen: list[float] = []
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        told_more: dict[str, Any] = {
            "model": TabularModelConfig(dim=64, depth=2, heads=4, n_members=4),
            "train": {"patience": 99},
        }
        found = dry_run(explicit_overrides(tabular_config(folder, epochs=15, **told_more)))
        took = train_table(tabular_config(folder, epochs=15, **told_more)).finished.seconds
        assert found.duration.seconds is not None
        seen.append(found.duration.seconds / took)
        if 0.5 < seen[-1] < 2:
            return
    pytest.fail(f"foreseen / taken: {seen}")
