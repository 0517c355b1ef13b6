"""Runs on tables: the estimators' own learning, in the folders that every run has."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from softlook.base.errors import ConfigError, DataError, TrainingError, WeightsError
from softlook.recipes.config.tabular_schema import TabularConfig, TabularModelConfig
from softlook.recipes.run_dir.layout import list_runs
from softlook.recipes.tabular.predict import load_predictor
from softlook.recipes.tabular.run import train_table
from softlook.recipes.text.evaluate import evaluate
from softlook.tabular import (
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
    load,
)
from softlook.tabular.io.files import read_table
from softlook.train.events import Evaluated, Event, Finished, Started, StepLogged, read_events
from tests.recipes.small import events_of, people, tabular_config


def frame(path: Path) -> tuple[pa.Table, pa.Table]:
    """What is predicted from, and all of it."""
    whole = pa.concat_tables(read_table(path))
    return whole.drop_columns(["id", "buys", "spent"]), whole


def same(one: Any, other: Any) -> bool:
    """To the bit."""
    own, others = one.model_.state_dict(), other.model_.state_dict()
    return own.keys() == others.keys() and all(torch.equal(own[name], others[name]) for name in own)


def plain(settings: TabularConfig, kind: Callable[..., Any], **more: Any) -> Any:
    """The estimator that somebody would make by hand, of the same settings."""
    sizes = settings.size.model_dump(exclude_none=True)
    return kind(**sizes, batch_size=32, epochs=6, device="cpu", random_state=settings.training.seed, **more)


COLUMN_TYPES = {
    "ft classes": ("ft", "buys", TableTransformerClassifier),
    "ft numbers": ("ft", "spent", TableTransformerRegressor),
    "tab classes": ("tab", "buys", TabTransformerClassifier),
    "tab numbers": ("tab", "spent", TabTransformerRegressor),
}


@pytest.mark.parametrize("name", COLUMN_TYPES)
def test_a_run_gives_the_model_that_the_estimator_gives(name: str, tmp_path: Path) -> None:
    estimator, target, kind = COLUMN_TYPES[name]
    other = {"buys": "spent", "spent": "buys"}[target]
    settings = tabular_config(tmp_path, estimator=estimator, target=(target,), ignore=("id", other))
    fitted = train_table(settings)
    X, whole = frame(settings.data[0])
    by_hand = plain(settings, kind).fit(X, whole.column(target).to_numpy(zero_copy_only=False))
    assert fitted.estimator is not None and same(fitted.estimator, by_hand)
    assert [epoch["loss"] for epoch in fitted.estimator.history_] == [epoch["loss"] for epoch in by_hand.history_]
    again = load(fitted.folder)
    assert type(again) is kind and (again.predict(X) == by_hand.predict(X)).all()


def test_what_is_told_of_columns_and_classes_reaches_the_estimator(tmp_path: Path) -> None:
    settings = tabular_config(
        tmp_path,
        column_types=("grade=category",),
        ordinal_categories=("city=Rome,Bern,Oslo",),
        class_weights=("yes=3",),
    )
    fitted = train_table(settings)
    X, whole = frame(settings.data[0])
    X = X.set_column(2, "grade", X.column("grade").cast(pa.int64()).cast(pa.string()))
    told: dict[str, Any] = {
        "column_types": {"grade": "category"},
        "ordinal_categories": {"city": ["Rome", "Bern", "Oslo"]},
    }
    by_hand = plain(settings, TableTransformerClassifier, **told, class_weight={"yes": 3.0})
    assert same(fitted.estimator, by_hand.fit(X, whole.column("buys").to_pylist()))


def test_what_is_wrong_with_test_rows_is_said_before_anything_is_learned(tmp_path: Path) -> None:
    lines = people(tmp_path / "test.csv").read_text().splitlines(keepends=True)
    (tmp_path / "test.csv").write_text("".join(lines[:3]) + "3,old,Rome,1,yes,2\n")
    settings, heard = tabular_config(tmp_path, test=(tmp_path / "test.csv",)), list[Event]()
    with pytest.raises(DataError, match=r"test\.csv:4: column 'age' is to hold numbers; 'old' came"):
        train_table(settings, [heard.append])
    (tmp_path / "test.csv").write_text("age,city,buys\n3,Rome,yes\n")
    with pytest.raises(DataError, match=r"test\.csv: there is no column 'grade', which is in the data"):
        train_table(settings, [heard.append])
    assert not heard and not (tmp_path / "run" / "settings.json").exists()
    (tmp_path / "test.csv").write_text("more,grade,age,city,buys\n1,2,30,Rome,yes\n1,2,60,Rome,no\n")
    assert set(train_table(settings).scores["test"]) >= {
        "accuracy"
    }  # in another order, with more and less that is left out


def test_a_column_of_lists_is_told_and_may_be_left_out(tmp_path: Path) -> None:
    rows = pa.concat_tables(read_table(people(tmp_path / "people.csv"))).to_pylist()
    lines = [json.dumps({**row, "tags": ["a"]}) + "\n" for row in rows]
    (tmp_path / "lists.jsonl").write_text("".join(lines))
    with pytest.raises(DataError, match=r"lists\.jsonl: column 'tags' holds list.*\n.*--ignore tags"):
        train_table(tabular_config(tmp_path, data=(tmp_path / "lists.jsonl",)))
    fitted = train_table(tabular_config(tmp_path, data=(tmp_path / "lists.jsonl",), ignore=("id", "spent", "tags")))
    assert evaluate(fitted.folder, (tmp_path / "lists.jsonl",))["rows"] == 240


def test_whoever_ends_the_comparison_hears_that_the_model_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def asked(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as now, caplog.at_level("INFO", "softlook"), pytest.raises(KeyboardInterrupt):
        now.setattr("softlook.recipes.tabular.run.scored", asked)
        train_table(tabular_config(tmp_path))
    assert "The model has learned and is saved. The same command goes on" in caplog.text
    assert train_table(tabular_config(tmp_path)).scores["accuracy"] > 0


class Interrupting:
    """Asks for the end at a certain step, as Ctrl-C does."""

    def __init__(self, step: int, number: signal.Signals = signal.SIGINT) -> None:
        self.step, self.number = step, number

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepLogged) and event.step >= self.step:
            os.kill(os.getpid(), self.number)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word after every step, so that a test can act within an epoch."""
    monkeypatch.setattr("softlook.recipes.tabular.checkpointing.WORD", 0.0)


@pytest.mark.parametrize("step", [3, 6, 20])  # an epoch has six steps
@pytest.mark.parametrize("early_stopping_metric", ["loss", "score"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    step: int, early_stopping_metric: str, often: None, tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = train_table(tabular_config(tmp_path / "whole", train={"early_stopping_metric": early_stopping_metric}))
    settings = tabular_config(tmp_path / "parts", train={"early_stopping_metric": early_stopping_metric})
    stopped = train_table(settings, [Interrupting(step)])
    assert stopped.estimator is None and not stopped.finished.complete and stopped.finished.signal == "SIGINT"
    heard: list[Event] = []
    parts = train_table(settings, [heard.append])
    assert events_of(heard, Started)[0].step == stopped.finished.step >= step
    assert parts.finished.complete and same(parts.estimator, whole.estimator)
    assert parts.scores == whole.scores
    assert parts.estimator is not None and whole.estimator is not None
    for one, other in zip(parts.estimator.history_, whole.estimator.history_, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_a_run_that_was_stopped_answers_with_its_best_weights_so_far(often: None, tmp_path: Path) -> None:
    settings = tabular_config(tmp_path, epochs=30)
    train_table(settings, [Interrupting(40)])
    X, _ = frame(settings.data[0])
    assert set(load(tmp_path / "run").predict(X)) <= {"yes", "no"}


def test_a_finished_run_is_found_as_it_was(tmp_path: Path) -> None:
    settings = tabular_config(tmp_path)
    first, heard = train_table(settings), list[Event]()
    again = train_table(settings, [heard.append])
    assert same(first.estimator, again.estimator) and first.scores == again.scores
    assert not events_of(heard, StepLogged) and events_of(heard, Finished)[0].complete


def test_a_run_whose_time_was_up_says_so_and_is_found_as_it_was(tmp_path: Path) -> None:
    settings = tabular_config(tmp_path, epochs=10**6, train={"max_minutes": 0.05, "patience": 10**6})
    first = train_table(settings)
    assert first.finished.reason == "the time is up"
    again = train_table(settings)
    assert again.finished.step == first.finished.step and same(first.estimator, again.estimator)


def test_more_epochs_go_on_from_the_end(tmp_path: Path) -> None:
    few = train_table(tabular_config(tmp_path, epochs=4))
    more = train_table(tabular_config(tmp_path, epochs=9))
    assert few.estimator is not None and more.estimator is not None
    assert len(more.estimator.history_) == 9 and more.estimator.history_[:4] == few.estimator.history_


def test_the_same_rate_goes_on_as_if_it_had_never_ended(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    sizes = {"model": {"dim": 16, "depth": 1, "heads": 2}, "preset": "paper"}
    whole = train_table(tabular_config(tmp_path / "whole", epochs=9, **sizes))
    train_table(tabular_config(tmp_path, epochs=4, **sizes))
    assert same(train_table(tabular_config(tmp_path, epochs=9, **sizes)).estimator, whole.estimator)


def test_sizes_that_were_found_for_the_rows_stay_with_a_run(often: None, tmp_path: Path) -> None:
    settings = tabular_config(tmp_path, size={"depth": 1, "heads": 2})
    train_table(settings, [Interrupting(3)])
    kept = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert kept["values"]["size.members"] >= 1 and kept["origins"]["size.members"] == "auto"
    assert train_table(settings).finished.complete
    with pytest.raises(TrainingError, match=r"size\.members: None then, 3 now"):
        train_table(tabular_config(tmp_path, size={"depth": 1, "heads": 2, "n_members": 3}))


def test_other_settings_or_data_are_refused(tmp_path: Path) -> None:
    train_table(tabular_config(tmp_path))
    with pytest.raises(TrainingError, match=r"training\.seed: 0 then, 1 now"):
        train_table(tabular_config(tmp_path, train={"seed": 1}))
    changed = tabular_config(tmp_path)
    people(tmp_path / "people.csv", 200)
    with pytest.raises(TrainingError, match="the data are not the same"):
        train_table(changed)


def test_a_damaged_checkpoint_is_passed_over(often: None, tmp_path: Path) -> None:
    settings = tabular_config(tmp_path, train={"save_every": 1e-6})
    whole = train_table(settings)
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    (newest / "model_non_ema.safetensors").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="raw"):
        load(tmp_path / "run")
    assert same(train_table(settings).estimator, whole.estimator)
    assert same(load(tmp_path / "run"), whole.estimator)


def test_the_folder_explains_itself(tmp_path: Path) -> None:
    fitted = train_table(tabular_config(tmp_path, no_baseline=False))
    names = {path.name for path in fitted.folder.iterdir()}
    assert {"config.json", "metadata.json", "settings.json", "events.jsonl", "metrics.csv", "best.json"} <= names
    assert {"report.html", "loss.svg", "scores.json", "checkpoints"} <= names
    column_types = {event["event"] for event in read_events(fitted.folder / "events.jsonl")}
    assert {"started", "step_logged", "evaluated", "saved", "finished"} <= column_types
    (listed,) = list_runs(tmp_path)
    assert (listed.task, listed.state) == ("table", "all epochs are done") and listed.best is not None
    scores = json.loads((fitted.folder / "scores.json").read_text())
    assert [row["model"] for row in scores["compared"]] == ["softlook", "LightGBM", "logistic regression"]
    assert all({"accuracy", "auc", "log_loss", "seconds"} <= row.keys() for row in scores["compared"])
    page = (fitted.folder / "report.html").read_text()
    assert "LightGBM" in page and "training.epochs" in page


def test_held_out_and_test_files_are_what_they_are_called(tmp_path: Path) -> None:
    rows = people(tmp_path / "all.csv", 200).read_text().splitlines(keepends=True)
    (tmp_path / "valid.csv").write_text(rows[0] + "".join(rows[101:151]))
    (tmp_path / "test.csv").write_text(rows[0] + "".join(rows[151:]))
    heard: list[Event] = []
    settings = tabular_config(tmp_path, valid=(tmp_path / "valid.csv",), test=(tmp_path / "test.csv",))
    fitted = train_table(settings, [heard.append])
    X, whole = frame(settings.data[0])
    held, labels = frame(tmp_path / "valid.csv")
    by_hand = plain(settings, TableTransformerClassifier)
    by_hand.fit(X, whole.column("buys").to_pylist(), eval_set=(held, labels.column("buys").to_pylist()))
    assert same(fitted.estimator, by_hand)
    assert fitted.scores["test"] == pytest.approx(
        {name: value for name, value in evaluate(fitted.folder, (tmp_path / "test.csv",)).items() if name != "rows"}
    )
    assert events_of(heard, Evaluated)[-1].scores["accuracy"] <= 1


def test_several_numbers_are_predicted_together(tmp_path: Path) -> None:
    fitted = train_table(tabular_config(tmp_path, target=("spent", "age"), ignore=("id", "buys"), no_baseline=False))
    assert {"rmse", "mae", "r2"} <= fitted.scores.keys()
    opened = load_predictor(fitted.folder)
    answered = opened.predict(next(opened.pieces([tmp_path / "people.csv"])))
    assert opened.target == ("spent", "age") and answered.values.shape == (240, 2)


def test_rows_without_a_target_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = tabular_config(tmp_path)
    lines = settings.data[0].read_text().replace(",yes,", ",,", 3)
    settings.data[0].write_text(lines)
    with caplog.at_level("INFO", "softlook"):
        train_table(settings)
    assert "3 rows without buys were left out." in caplog.text
    assert "237 rows of 3 columns" in caplog.text


FAULTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no target": ({"target": ()}, ConfigError, r"--target names it. There are id, age, city"),
    "a target that is not there": ({"target": ("buy",)}, ConfigError, r"no such column. Did you mean 'buys'\?"),
    "an odd kind": ({"column_types": ("age=colour",)}, ConfigError, "It may be number, boolean"),
    "a kind without a name": ({"column_types": ("age",)}, ConfigError, "is told as zip=category; 'age' came"),
    "a class that is not there": (
        {"class_weights": ("maybe=2",)},
        ConfigError,
        "no class 'maybe'. There are 'no', 'yes'.",
    ),
    "weights of numbers": ({"target": ("age",), "class_weights": ("balanced",)}, ConfigError, "numbers are predicted"),
    "words as numbers": ({"problem": "numbers"}, DataError, "buys is to hold numbers, and holds"),
    "names as classes": ({"target": ("name",)}, DataError, "240 rows, too many for classes, and 'person 0' is no"),
    "nothing to predict from": ({"ignore": ("id", "age", "city", "grade", "spent", "name")}, ConfigError, "no column"),
    "a width that heads do not share": (
        {"model": {"dim": 15, "heads": 4}},
        ConfigError,
        "4 heads cannot share a width of 15",
    ),
    "words that are to be read as numbers": ({"column_types": ("city=number",)}, DataError, "city"),
    "members of a TabTransformer": (
        {"estimator": "tab", "model": {"n_members": 4}},
        ConfigError,
        r"size\.members means nothing to TabTransformerClassifier",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_is_said_before_anything_is_made(name: str, tmp_path: Path) -> None:
    told_more, kind, words = FAULTS[name]
    settings = tabular_config(tmp_path)
    first, *rows = settings.data[0].read_text().splitlines()
    named = [f"{row},person {number}" for number, row in enumerate(rows)]
    settings.data[0].write_text("\n".join([f"{first},name", *named]) + "\n")
    asked = TabularConfig.model_validate({**settings.model_dump(), **told_more})
    with pytest.raises(kind, match=words):
        train_table(asked)
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("estimator", ["ft", "tab"])
def test_a_run_whose_sizes_are_all_left_to_it_goes_on(estimator: str, tmp_path: Path) -> None:
    settings = tabular_config(tmp_path, epochs=1).model_copy(
        update={"estimator": estimator, "model": TabularModelConfig(dim=16)}
    )
    first, again = train_table(settings), train_table(settings)
    assert again.finished.step == first.finished.step


def test_why_a_run_ended_is_true_although_time_was_kept_free_for_a_last_look(tmp_path: Path) -> None:
    short = train_table(tabular_config(tmp_path, epochs=100_000, train={"max_minutes": 0.02}))
    assert short.finished.reason == "the time is up"
    (tmp_path / "other").mkdir()
    assert (
        train_table(tabular_config(tmp_path / "other", train={"max_minutes": 5.0})).finished.reason
        == "all epochs are done"
    )


@pytest.mark.parametrize("target", ["buys", "spent"])
def test_a_table_too_large_to_be_held_goes_by_way_of_the_disk(target: str, often: None, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    other = {"buys": "spent", "spent": "buys"}[target]
    told: dict[str, Any] = {"target": (target,), "ignore": ("id", other), "train": {"memory_limit": 2e-6}}
    whole = train_table(tabular_config(tmp_path / "whole", **told, no_baseline=False))
    assert len(whole.scores["compared"]) == 3
    settings = tabular_config(tmp_path / "parts", **told)
    assert not train_table(settings, [Interrupting(8)]).finished.complete
    assert same(train_table(settings).estimator, whole.estimator)


def test_a_table_that_is_too_small_to_hold_some_out_is_learned_all_the_same(tmp_path: Path) -> None:
    settings = tabular_config(tmp_path, epochs=2, no_baseline=False)
    people(settings.data[0], 30)
    fitted = train_table(settings)
    assert fitted.scores == {} and fitted.finished.complete


def test_an_estimator_that_was_saved_can_be_asked_too(tmp_path: Path) -> None:
    X, whole = frame(people(tmp_path / "people.csv"))
    made = TableTransformerClassifier(dim=8, depth=1, heads=2, epochs=2, device="cpu", random_state=0)
    made.fit(X, whole.column("buys").to_pylist()).save(tmp_path / "kept")
    opened = load_predictor(tmp_path / "kept")
    found = np.concatenate([opened.predict(piece).values for piece in opened.pieces(tmp_path / "people.csv")])
    assert opened.target == ("prediction",) and (found == made.predict(X)).all()


def test_an_estimator_that_has_seen_no_labels_says_that_it_cannot_be_asked(tmp_path: Path) -> None:
    X, _ = frame(people(tmp_path / "people.csv"))
    made = TableTransformerClassifier(dim=8, depth=1, heads=2, device="cpu", random_state=0)
    made.pretrain(X, epochs=1).save(tmp_path / "kept")
    with pytest.raises(ConfigError, match=r"holds what pretrain learned, and has seen no labels yet. .*\.fit\(X, y\)"):
        load_predictor(tmp_path / "kept")


def test_rows_that_are_remembered_are_kept_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.training.retrieval.FEW_JUDGES", 20)
    settings = tabular_config(tmp_path, epochs=3)
    fitted = train_table(settings)
    assert fitted.estimator is not None and fitted.estimator.retrieval_ is not None
    X, _ = frame(settings.data[0])
    again = train_table(settings).estimator
    assert again is not None
    for other in (load(fitted.folder), again):
        assert (fitted.estimator._predict_raw(X) == other._predict_raw(X)).all()
