"""A hyperparameter search can be resumed, and its best config is one that a run accepts."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import ConfigError, TrainingError
from softlook.recipes.config.resolve import load_overrides
from softlook.recipes.config.tabular_schema import TabularConfig, TabularModelConfig, TabularTrainingConfig, TuneConfig
from softlook.recipes.run_dir.layout import list_runs, run_dir_path
from softlook.recipes.tabular.run import train_table
from softlook.recipes.tabular.tune import to_toml, tune
from tests.recipes.small import people


@pytest.fixture(autouse=True)
def _in_a_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "people.csv")


def tune_config(**more: Any) -> TuneConfig:
    small = TabularModelConfig(dim=8, depth=1, heads=2, n_members=1)
    short = TabularTrainingConfig(epochs=2, device="cpu", seed=3)
    values = {"data": (Path("people.csv"),), "target": ("buys",), "ignore": ("id", "spent"), "trials": 2}
    return TuneConfig(**({"model": small, "training": short} | values | more))  # pyright: ignore[reportArgumentType]


def test_a_run_with_the_best_config_reproduces_the_best_trial() -> None:
    result = tune(tune_config())
    best = next(trial for trial in result.trials if trial.is_best)
    overrides = load_overrides(TabularConfig(no_baseline=True, ensemble="single"), config=result.best)
    assert overrides.values["model.dim"] == 8 and overrides.values["optim.lr"] == best.params["lr"]
    run = train_table(overrides)
    assert run.estimator is not None and run.finished.complete
    losses = [epoch["val_loss"] for epoch in run.estimator.history_ if "val_loss" in epoch]
    assert min(losses) == best.loss


def test_the_same_config_resumes_a_search_and_another_is_rejected() -> None:
    first = tune(tune_config())
    new_trials: list[Any] = []
    resumed = tune(tune_config(trials=3), new_trials.append)
    assert len(resumed.trials) == 3 and [trial.number for trial in new_trials] == [2]
    assert [trial.params for trial in resumed.trials[:2]] == [trial.params for trial in first.trials]
    lines = [json.loads(line) for line in (resumed.folder / "trials.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2] and sum(line["is_best"] for line in lines) == 1
    assert lines[0]["params"] == first.trials[0].params
    with pytest.raises(TrainingError, match=r"estimator: was 'table', now 'ft'"):
        tune(tune_config(estimator="ft", model=TabularModelConfig(dim=8, depth=1, heads=2)))


def test_a_search_is_listed_and_the_run_after_it_is_named_after_its_data() -> None:
    result = tune(tune_config())
    best = next(trial for trial in result.trials if trial.is_best)
    (listed,) = list_runs(Path("runs"))
    assert (listed.task, listed.step, listed.best) == ("tune", 2, best.loss) and "best.toml" in listed.state
    assert run_dir_path("table", load_overrides(TabularConfig(), config=result.best)) == Path("runs/table-people")
    generic = tune(tune_config(data=(people(Path("train.csv")),)))
    name = run_dir_path("table", load_overrides(TabularConfig(), config=generic.best)).name
    assert name == f"table-{Path.cwd().name}-train"


def test_a_search_does_not_read_test_rows() -> None:
    result = tune(tune_config(test=(Path("does-not-exist.csv"),)))
    content = tomllib.loads(result.best.read_text())
    assert content["test"] == ["../../does-not-exist.csv"] and content["data"] == ["../../people.csv"]
    assert not {"trials", "max_minutes", "run_dir", "fresh", "loggers"} & content.keys()


def test_a_search_works_for_regression() -> None:
    sizes = TabularModelConfig(dim=8, heads=2)
    result = tune(tune_config(target=("spent",), ignore=("id", "buys"), estimator="tab", model=sizes))
    assert result.params.keys() == {"model.depth", "model.dropout", "optim.lr", "optim.weight_decay"}
    assert tomllib.loads(result.best.read_text())["problem"] == "regression"


def test_a_config_error_is_raised_before_anything_is_written() -> None:
    with pytest.raises(ConfigError, match="no target column is given"):
        tune(tune_config(target=()))
    assert not Path("runs").exists()


def test_a_config_survives_a_round_trip_through_toml() -> None:
    values = {"data": ['a "b"\\c\x7f\n.csv'], "model": {"dim": 8, "dropout": 1e-05}, "fresh": False}
    assert tomllib.loads(to_toml(values)) == values
