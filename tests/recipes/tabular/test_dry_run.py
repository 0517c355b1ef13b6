"""A dry run of a table run predicts what the run does."""

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
from tests.recipes.profiling.test_step_benchmark import SavedTensors
from tests.recipes.small import events_of, people, tabular_config

DURATION = DurationEstimate(
    step=0.1, evaluation=2.0, retrieval=5.0, steps_per_epoch=10, epochs=30, evaluations=3, limit=None
)


@pytest.fixture(autouse=True)
def few_benchmark_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.recipes.profiling.step_benchmark.MAX_STEPS", 4)


def test_a_dry_run_resolves_the_config_and_writes_nothing(tmp_path: Path) -> None:
    estimate = dry_run(explicit_overrides(tabular_config(tmp_path)))
    assert estimate.resolved.origins["optim.lr"] == "preset default"
    assert estimate.resolved.config.optim.lr == 1e-3
    assert estimate.resolved.origins["problem"] == "auto"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("estimator", ["table", "tab"])
def test_a_run_has_the_predicted_steps_sizes_and_columns(estimator: str, tmp_path: Path) -> None:
    estimate, events = dry_run(explicit_overrides(tabular_config(tmp_path, estimator=estimator))), list[Event]()
    assert not (tmp_path / "run").exists()
    result = train_table(tabular_config(tmp_path, estimator=estimator), [events.append])
    (started,) = events_of(events, Started)
    assert (estimate.duration.steps, estimate.parameters) == (started.steps, started.parameters)
    assert result.estimator is not None and estimate.columns == result.estimator.preprocessor_.describe()
    assert estimate.rows == (192, 48) and estimate.batch_size == 32
    evaluations = [epoch for epoch in result.estimator.history_ if "val_loss" in epoch]
    assert estimate.duration.evaluations == len(evaluations)


def test_sizes_chosen_for_the_rows_are_part_of_the_resolved_config(tmp_path: Path) -> None:
    estimate = dry_run(explicit_overrides(tabular_config(tmp_path, model=TabularModelConfig(heads=2))))
    assert estimate.resolved.config.model.dim == estimate.size["dim"] > 0
    assert estimate.resolved.origins["model.dim"] == "auto"


def test_a_run_needs_the_predicted_memory(tmp_path: Path) -> None:
    memory = dry_run(explicit_overrides(tabular_config(tmp_path))).memory
    saved = SavedTensors()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
        result = train_table(tabular_config(tmp_path))
    assert memory.activations / 2 < saved.peak < 2 * memory.activations
    assert result.estimator is not None
    weights = sum(p.numel() * p.element_size() for p in result.estimator.model_.parameters() if p.requires_grad)
    assert weights <= memory.weights < 1.1 * weights + 10_000
    assert memory.gradients == pytest.approx(weights, rel=0.01) and memory.best == memory.weights
    (newest, *_) = sorted((result.run_dir / "checkpoints").glob("step-*"), reverse=True)
    assert memory.optimizer / 2 < (newest / OPTIMIZER).stat().st_size < 2 * memory.optimizer
    assert memory.data > 240 * 3 * 4 and not memory.data_on_disk


def test_rows_that_are_read_from_disk_are_counted_as_data_on_disk(tmp_path: Path) -> None:
    memory = dry_run(explicit_overrides(tabular_config(tmp_path, train={"memory_limit": 2e-6}))).memory
    assert memory.data_on_disk > 192 * 3 * 4


def test_a_dry_run_does_not_change_the_rng_state(tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    dry_run(explicit_overrides(tabular_config(tmp_path)))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_duration_is_that_of_steps_evaluations_and_retrieval() -> None:
    assert DURATION.steps == 300 and DURATION.seconds == pytest.approx(41)
    assert DURATION.describe() == "300 steps of about 0.1 s and 3 evaluations of about 2 s: at most 41 s."
    assert replace(DURATION, limit=20.0).seconds == 20
    without_evaluations = replace(DURATION, evaluation=0.0, evaluations=0)
    assert without_evaluations.describe() == "300 steps of about 0.1 s: at most 35 s."


def test_the_duration_is_unknown_if_only_early_stopping_ends_training(tmp_path: Path) -> None:
    config = tabular_config(tmp_path, estimator="ft", model=TabularModelConfig(dim=16, depth=1, heads=2))
    unlimited = config.model_copy(update={"training": config.training.model_copy(update={"epochs": None})})
    estimate = dry_run(explicit_overrides(unlimited))
    assert estimate.duration.steps is None and estimate.duration.seconds is None
    assert any(line.endswith("until early stopping.") for line in estimate.description)
    limited = unlimited.model_copy(update={"training": unlimited.training.model_copy(update={"max_minutes": 2.0})})
    assert dry_run(explicit_overrides(limited)).duration.seconds == 120


def test_without_validation_rows_there_are_no_evaluations(tmp_path: Path) -> None:
    config = tabular_config(tmp_path)
    people(config.data[0], 30)
    duration = dry_run(explicit_overrides(config)).duration
    assert duration.evaluations == duration.evaluation == duration.retrieval == 0


@pytest.mark.slow  # three attempts, since the machine may be busy
def test_a_run_takes_the_predicted_time(tmp_path: Path) -> None:
    ratios: list[float] = []
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        more: dict[str, Any] = {
            "model": TabularModelConfig(dim=64, depth=2, heads=4, n_members=4),
            "train": {"patience": 99},
        }
        estimate = dry_run(explicit_overrides(tabular_config(folder, epochs=15, **more)))
        seconds = train_table(tabular_config(folder, epochs=15, **more)).finished.seconds
        assert estimate.duration.seconds is not None
        ratios.append(estimate.duration.seconds / seconds)
        if 0.5 < ratios[-1] < 2:
            return
    pytest.fail(f"predicted / measured seconds: {ratios}")
