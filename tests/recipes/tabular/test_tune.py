"""A search in a folder: it goes on, and leaves settings that a run takes."""

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
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "people.csv")


def asked(**told: Any) -> TuneConfig:
    small = TabularModelConfig(dim=8, depth=1, heads=2, n_members=1)
    short = TabularTrainingConfig(epochs=2, device="cpu", seed=3)
    given = {"data": (Path("people.csv"),), "target": ("buys",), "ignore": ("id", "spent"), "trials": 2}
    return TuneConfig(**({"model": small, "training": short} | given | told))  # pyright: ignore[reportArgumentType]


def test_a_run_with_the_best_settings_is_the_best_trial() -> None:
    found = tune(asked())
    best = next(one for one in found.profile_table_step if one.is_best)
    told = load_overrides(TabularConfig(no_baseline=True), config=found.best)
    assert told.values["size.dim"] == 8 and told.values["optim.lr"] == best.settings["lr"]
    run = train_table(told)
    assert run.estimator is not None and run.finished.complete
    losses = [epoch["val_loss"] for epoch in run.estimator.history_ if "val_loss" in epoch]
    assert min(losses) == best.loss


def test_the_same_words_go_on_and_others_are_refused() -> None:
    first = tune(asked())
    heard: list[Any] = []
    later = tune(asked(trials=3), heard.append)
    assert len(later.profile_table_step) == 3 and [one.number for one in heard] == [2]
    assert [one.settings for one in later.profile_table_step[:2]] == [one.settings for one in first.profile_table_step]
    lines = [json.loads(line) for line in (later.folder / "trials.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2] and sum(line["is_best"] for line in lines) == 1
    assert lines[0]["settings"] == first.profile_table_step[0].settings
    with pytest.raises(TrainingError, match=r"recipe: 'ours' then, 'paper' now"):
        tune(asked(preset="paper", size=TabularModelConfig(dim=8, depth=1, heads=2)))


def test_a_search_is_listed_and_the_run_after_it_has_the_name_of_its_data() -> None:
    found = tune(asked())
    best = next(one for one in found.profile_table_step if one.is_best)
    (listed,) = list_runs(Path("runs"))
    assert (listed.task, listed.step, listed.best) == ("tune", 2, best.loss) and "best.toml" in listed.state
    assert run_dir_path("table", load_overrides(TabularConfig(), config=found.best)) == Path("runs/table-people")
    named = tune(asked(data=(people(Path("train.csv")),)))
    assert (
        run_dir_path("table", load_overrides(TabularConfig(), config=named.best)).name
        == f"table-{Path.cwd().name}-train"
    )


def test_rows_for_a_test_are_not_looked_at() -> None:
    found = tune(asked(test=(Path("not-there-yet.csv"),)))
    content = tomllib.loads(found.best.read_text())
    assert content["test"] == ["../../not-there-yet.csv"] and content["data"] == ["../../people.csv"]
    assert not {"trials", "minutes", "run", "fresh"} & content.keys()


def test_numbers_can_be_searched_for_too() -> None:
    found = tune(
        asked(target=("spent",), ignore=("id", "buys"), estimator="tab", size=TabularModelConfig(dim=8, heads=2))
    )
    assert found.settings.keys() == {"size.depth", "size.dropout", "optim.lr", "optim.weight_decay"}
    assert tomllib.loads(found.best.read_text())["answers"] == "numbers"


def test_what_cannot_be_read_is_said_before_anything_is_written() -> None:
    with pytest.raises(ConfigError, match="which column is to be predicted"):
        tune(asked(target=()))
    assert not Path("runs").exists()


def test_settings_survive_as_toml() -> None:
    values = {"data": ['a "b"\\c\x7f\n.csv'], "model": {"dim": 8, "dropout": 1e-05}, "fresh": False}
    assert tomllib.loads(to_toml(values)) == values
