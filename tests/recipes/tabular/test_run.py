"""Table runs: the training of the estimators, with the run directory of every run."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from softlook.base.errors import ConfigError, DataError, TrainingError, WeightsError
from softlook.recipes.config.tabular_schema import TabularConfig, TabularModelConfig
from softlook.recipes.run_dir.layout import list_runs
from softlook.recipes.tabular.predict import load_predictor
from softlook.recipes.tabular.run import train_table
from softlook.recipes.text.run import evaluate
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


def features_and_table(path: Path) -> tuple[pa.Table, pa.Table]:
    table = pa.concat_tables(read_table(path))
    return table.drop_columns(["id", "buys", "spent"]), table


def has_equal_weights(one: Any, other: Any) -> bool:
    """Bit for bit."""
    state, other_state = one.model_.state_dict(), other.model_.state_dict()
    return state.keys() == other_state.keys() and all(torch.equal(state[name], other_state[name]) for name in state)


def equivalent_estimator(config: TabularConfig, kind: Callable[..., Any], **more: Any) -> Any:
    """The estimator that a user would construct for the same hyperparameters."""
    sizes = config.model.model_dump(exclude_none=True)
    own = {"ensemble": "single"} if config.estimator == "table" else {}
    return kind(**own, **sizes, batch_size=32, epochs=6, device="cpu", random_state=config.training.seed, **more)


ESTIMATORS = {
    "table classifier": ("table", "buys", TableTransformerClassifier),
    "table regressor": ("table", "spent", TableTransformerRegressor),
    "tab classifier": ("tab", "buys", TabTransformerClassifier),
    "tab regressor": ("tab", "spent", TabTransformerRegressor),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_run_trains_the_same_model_as_the_estimator(name: str, tmp_path: Path) -> None:
    estimator, target, kind = ESTIMATORS[name]
    other = {"buys": "spent", "spent": "buys"}[target]
    config = tabular_config(tmp_path, estimator=estimator, target=(target,), ignore=("id", other))
    result = train_table(config)
    X, table = features_and_table(config.data[0])
    expected = equivalent_estimator(config, kind).fit(X, table.column(target).to_numpy(zero_copy_only=False))
    assert result.estimator is not None and has_equal_weights(result.estimator, expected)
    assert [epoch["loss"] for epoch in result.estimator.history_] == [epoch["loss"] for epoch in expected.history_]
    loaded = load(result.run_dir)
    assert type(loaded) is kind and (loaded.predict(X) == expected.predict(X)).all()


def test_column_types_ordinal_categories_and_class_weights_reach_the_estimator(tmp_path: Path) -> None:
    config = tabular_config(
        tmp_path,
        column_types=("grade=category",),
        ordinal_categories=("city=Rome,Bern,Oslo",),
        class_weights=("yes=3",),
    )
    result = train_table(config)
    X, table = features_and_table(config.data[0])
    X = X.set_column(2, "grade", X.column("grade").cast(pa.int64()).cast(pa.string()))
    more: dict[str, Any] = {
        "column_types": {"grade": "category"},
        "ordinal_categories": {"city": ["Rome", "Bern", "Oslo"]},
    }
    expected = equivalent_estimator(config, TableTransformerClassifier, **more, class_weight={"yes": 3.0})
    assert has_equal_weights(result.estimator, expected.fit(X, table.column("buys").to_pylist()))


def test_errors_in_test_rows_are_raised_before_training(tmp_path: Path) -> None:
    lines = people(tmp_path / "test.csv").read_text().splitlines(keepends=True)
    (tmp_path / "test.csv").write_text("".join(lines[:3]) + "3,old,Rome,1,yes,2\n")
    config, events = tabular_config(tmp_path, test=(tmp_path / "test.csv",)), list[Event]()
    with pytest.raises(DataError, match=r"test\.csv:4: column 'age': expected numbers, got 'old'"):
        train_table(config, [events.append])
    (tmp_path / "test.csv").write_text("age,city,buys\n3,Rome,yes\n")
    with pytest.raises(DataError, match=r"test\.csv: there is no column 'grade', which is a column of the training"):
        train_table(config, [events.append])
    assert not events and not (tmp_path / "run" / "settings.json").exists()
    # columns in another order, one more, and without some that are ignored
    (tmp_path / "test.csv").write_text("more,grade,age,city,buys\n1,2,30,Rome,yes\n1,2,60,Rome,no\n")
    assert set(train_table(config).scores["test"]) >= {"accuracy"}


def test_a_column_of_lists_is_rejected_unless_it_is_ignored(tmp_path: Path) -> None:
    rows = pa.concat_tables(read_table(people(tmp_path / "people.csv"))).to_pylist()
    lines = [json.dumps({**row, "tags": ["a"]}) + "\n" for row in rows]
    (tmp_path / "lists.jsonl").write_text("".join(lines))
    with pytest.raises(DataError, match=r"lists\.jsonl: column 'tags': expected .* got list.*\n.*--ignore tags"):
        train_table(tabular_config(tmp_path, data=(tmp_path / "lists.jsonl",)))
    result = train_table(tabular_config(tmp_path, data=(tmp_path / "lists.jsonl",), ignore=("id", "spent", "tags")))
    assert evaluate(result.run_dir, (tmp_path / "lists.jsonl",))["rows"] == 240


def test_an_interrupt_while_scores_are_computed_logs_that_the_model_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, caplog.at_level("INFO", "softlook"), pytest.raises(KeyboardInterrupt):
        patch.setattr("softlook.recipes.tabular.run.compute_scores", interrupt)
        train_table(tabular_config(tmp_path))
    assert "The model is trained and saved. Run the same command again" in caplog.text
    assert train_table(tabular_config(tmp_path)).scores["accuracy"] > 0


class InterruptAt:
    """Sends a signal at a step, as Ctrl-C does."""

    def __init__(self, step: int, number: signal.Signals = signal.SIGINT) -> None:
        self.step, self.number = step, number

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepLogged) and event.step >= self.step:
            os.kill(os.getpid(), self.number)


@pytest.fixture
def log_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log after every step, so that a test can act within an epoch."""
    monkeypatch.setattr("softlook.recipes.tabular.checkpointing.LOG_SECONDS", 0.0)


@pytest.mark.parametrize("step", [3, 6, 20])  # an epoch has six steps
@pytest.mark.parametrize("early_stopping_metric", ["loss", "score"])
@pytest.mark.usefixtures("log_every_step")
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    step: int, early_stopping_metric: str, tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = train_table(tabular_config(tmp_path / "whole", train={"early_stopping_metric": early_stopping_metric}))
    config = tabular_config(tmp_path / "parts", train={"early_stopping_metric": early_stopping_metric})
    stopped = train_table(config, [InterruptAt(step)])
    assert stopped.estimator is None and not stopped.finished.complete and stopped.finished.signal == "SIGINT"
    events: list[Event] = []
    resumed = train_table(config, [events.append])
    assert events_of(events, Started)[0].step == stopped.finished.step >= step
    assert resumed.finished.complete and has_equal_weights(resumed.estimator, whole.estimator)
    assert resumed.scores == whole.scores
    assert resumed.estimator is not None and whole.estimator is not None
    for one, other in zip(resumed.estimator.history_, whole.estimator.history_, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.usefixtures("log_every_step")
def test_a_stopped_run_predicts_with_its_best_weights_so_far(tmp_path: Path) -> None:
    config = tabular_config(tmp_path, epochs=30)
    train_table(config, [InterruptAt(40)])
    X, _ = features_and_table(config.data[0])
    assert set(load(tmp_path / "run").predict(X)) <= {"yes", "no"}


def test_a_finished_run_is_loaded_and_not_trained_again(tmp_path: Path) -> None:
    config = tabular_config(tmp_path)
    first, events = train_table(config), list[Event]()
    again = train_table(config, [events.append])
    assert has_equal_weights(first.estimator, again.estimator) and first.scores == again.scores
    assert not events_of(events, StepLogged) and events_of(events, Finished)[0].complete


def test_a_run_that_reached_its_time_limit_says_so_and_is_not_trained_again(tmp_path: Path) -> None:
    config = tabular_config(tmp_path, epochs=10**6, train={"max_minutes": 0.05, "patience": 10**6})
    first = train_table(config)
    assert first.finished.reason == "the time limit was reached"
    again = train_table(config)
    assert again.finished.step == first.finished.step and has_equal_weights(first.estimator, again.estimator)


def test_more_epochs_continue_a_finished_run(tmp_path: Path) -> None:
    few = train_table(tabular_config(tmp_path, epochs=4))
    more = train_table(tabular_config(tmp_path, epochs=9))
    assert few.estimator is not None and more.estimator is not None
    assert len(more.estimator.history_) == 9 and more.estimator.history_[:4] == few.estimator.history_


def test_with_a_constant_learning_rate_an_extended_run_equals_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    paper = {"estimator": "ft", "model": {"dim": 16, "depth": 1, "heads": 2}}
    whole = train_table(tabular_config(tmp_path / "whole", epochs=9, **paper))
    train_table(tabular_config(tmp_path, epochs=4, **paper))
    extended = train_table(tabular_config(tmp_path, epochs=9, **paper))
    assert has_equal_weights(extended.estimator, whole.estimator)


@pytest.mark.usefixtures("log_every_step")
def test_sizes_chosen_for_the_rows_stay_with_a_run(tmp_path: Path) -> None:
    config = tabular_config(tmp_path, model={"depth": 1, "heads": 2})
    train_table(config, [InterruptAt(3)])
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["values"]["model.n_members"] >= 1 and settings["origins"]["model.n_members"] == "auto"
    assert train_table(config).finished.complete
    with pytest.raises(TrainingError, match=r"model\.n_members: was None, now 3"):
        train_table(tabular_config(tmp_path, model={"depth": 1, "heads": 2, "n_members": 3}))


def test_a_run_with_other_settings_or_data_is_not_resumed(tmp_path: Path) -> None:
    train_table(tabular_config(tmp_path))
    with pytest.raises(TrainingError, match=r"training\.seed: was 0, now 1"):
        train_table(tabular_config(tmp_path, train={"seed": 1}))
    changed = tabular_config(tmp_path)
    people(tmp_path / "people.csv", 200)
    with pytest.raises(TrainingError, match="the data have changed"):
        train_table(changed)


@pytest.mark.usefixtures("log_every_step")
def test_a_damaged_checkpoint_is_skipped(tmp_path: Path) -> None:
    config = tabular_config(tmp_path, train={"save_every": 1e-6})
    whole = train_table(config)
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    (newest / "model_non_ema.safetensors").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="model_non_ema"):
        load(tmp_path / "run")
    assert has_equal_weights(train_table(config).estimator, whole.estimator)
    assert has_equal_weights(load(tmp_path / "run"), whole.estimator)


def test_the_run_directory_is_complete(tmp_path: Path) -> None:
    result = train_table(tabular_config(tmp_path, no_baseline=False))
    names = {path.name for path in result.run_dir.iterdir()}
    assert {"config.json", "metadata.json", "settings.json", "events.jsonl", "metrics.csv", "best.json"} <= names
    assert {"report.html", "loss.svg", "scores.json", "checkpoints"} <= names
    event_names = {event["event"] for event in read_events(result.run_dir / "events.jsonl")}
    assert {"started", "step_logged", "evaluated", "saved", "finished"} <= event_names
    (listed,) = list_runs(tmp_path)
    assert (listed.task, listed.state) == ("table", "all epochs are done") and listed.best is not None
    scores = json.loads((result.run_dir / "scores.json").read_text())
    assert [row["model"] for row in scores["compared"]] == ["softlook", "LightGBM", "logistic regression"]
    assert all({"accuracy", "auc", "log_loss", "seconds"} <= row.keys() for row in scores["compared"])
    html = (result.run_dir / "report.html").read_text()
    assert "LightGBM" in html and "training.epochs" in html


def test_validation_and_test_files_are_used_as_such(tmp_path: Path) -> None:
    rows = people(tmp_path / "all.csv", 200).read_text().splitlines(keepends=True)
    (tmp_path / "valid.csv").write_text(rows[0] + "".join(rows[101:151]))
    (tmp_path / "test.csv").write_text(rows[0] + "".join(rows[151:]))
    events: list[Event] = []
    config = tabular_config(tmp_path, valid=(tmp_path / "valid.csv",), test=(tmp_path / "test.csv",))
    result = train_table(config, [events.append])
    X, table = features_and_table(config.data[0])
    X_valid, valid = features_and_table(tmp_path / "valid.csv")
    expected = equivalent_estimator(config, TableTransformerClassifier)
    expected.fit(X, table.column("buys").to_pylist(), eval_set=(X_valid, valid.column("buys").to_pylist()))
    assert has_equal_weights(result.estimator, expected)
    metrics = evaluate(result.run_dir, (tmp_path / "test.csv",))
    assert result.scores["test"] == pytest.approx({name: metrics[name] for name in metrics if name != "rows"})
    assert events_of(events, Evaluated)[-1].scores["accuracy"] <= 1


def test_several_targets_are_predicted_by_one_model(tmp_path: Path) -> None:
    result = train_table(tabular_config(tmp_path, target=("spent", "age"), ignore=("id", "buys"), no_baseline=False))
    assert {"rmse", "mae", "r2"} <= result.scores.keys()
    predictor = load_predictor(result.run_dir)
    predictions = predictor.predict(next(predictor.read_chunks([tmp_path / "people.csv"])))
    assert predictor.target == ("spent", "age") and predictions.values.shape == (240, 2)


def test_rows_without_a_target_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tabular_config(tmp_path)
    lines = config.data[0].read_text().replace(",yes,", ",,", 3)
    config.data[0].write_text(lines)
    with caplog.at_level("INFO", "softlook"):
        train_table(config)
    assert "3 rows without buys were dropped." in caplog.text
    assert "237 rows, 3 columns" in caplog.text


ERRORS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no target": ({"target": ()}, ConfigError, r"Set --target to one of id, age, city"),
    "an unknown target": ({"target": ("buy",)}, ConfigError, r"there is no column 'buy'\. Did you mean 'buys'\?"),
    "an unknown column type": ({"column_types": ("age=colour",)}, ConfigError, "expected one of number, boolean"),
    "a column type without a name": ({"column_types": ("age",)}, ConfigError, "the form zip=category; got 'age'"),
    "an unknown class": (
        {"class_weights": ("maybe=2",)},
        ConfigError,
        r"there is no class 'maybe'\. Classes: 'no', 'yes'\.",
    ),
    "class weights of numbers": (
        {"target": ("age",), "class_weights": ("balanced",)},
        ConfigError,
        "this is a regression problem",
    ),
    "strings as numbers": ({"problem": "regression"}, DataError, "buys: expected numbers, got"),
    "names as classes": ({"target": ("name",)}, DataError, "240 rows, too many for classes, and 'person 0' is not"),
    "no features": (
        {"ignore": ("id", "age", "city", "grade", "spent", "name")},
        ConfigError,
        "there is no feature column left",
    ),
    "a width that is not a multiple of the heads": (
        {"model": {"dim": 15, "heads": 4}},
        ConfigError,
        "dim must be a multiple of heads, got dim=15 and heads=4",
    ),
    "strings in a number column": ({"column_types": ("city=number",)}, DataError, "city"),
    "ensemble members of a TabTransformer": (
        {"estimator": "tab", "model": {"n_members": 4}},
        ConfigError,
        r"TabTransformerClassifier has no parameter model\.n_members",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_raised_before_anything_is_written(name: str, tmp_path: Path) -> None:
    more, error, message = ERRORS[name]
    config = tabular_config(tmp_path)
    header, *rows = config.data[0].read_text().splitlines()
    named = [f"{row},person {number}" for number, row in enumerate(rows)]
    config.data[0].write_text("\n".join([f"{header},name", *named]) + "\n")
    invalid = TabularConfig.model_validate({**config.model_dump(), **more})
    with pytest.raises(error, match=message):
        train_table(invalid)
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("estimator", ["table", "ft", "tab"])
def test_a_run_with_automatic_sizes_can_be_resumed(estimator: str, tmp_path: Path) -> None:
    config = tabular_config(tmp_path, epochs=1).model_copy(
        update={"estimator": estimator, "model": TabularModelConfig(dim=16)}
    )
    first, again = train_table(config), train_table(config)
    assert again.finished.step == first.finished.step


def test_the_reason_for_the_end_is_right_although_time_is_reserved_for_the_last_evaluation(tmp_path: Path) -> None:
    short = train_table(tabular_config(tmp_path, epochs=100_000, train={"max_minutes": 0.02}))
    assert short.finished.reason == "the time limit was reached"
    (tmp_path / "other").mkdir()
    long = train_table(tabular_config(tmp_path / "other", train={"max_minutes": 5.0}))
    assert long.finished.reason == "all epochs are done"


@pytest.mark.parametrize("target", ["buys", "spent"])
@pytest.mark.usefixtures("log_every_step")
def test_a_run_on_a_table_that_exceeds_the_memory_limit_can_be_resumed(target: str, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    other = {"buys": "spent", "spent": "buys"}[target]
    more: dict[str, Any] = {"target": (target,), "ignore": ("id", other), "train": {"memory_limit": 2e-6}}
    whole = train_table(tabular_config(tmp_path / "whole", **more, no_baseline=False))
    assert len(whole.scores["compared"]) == 3
    config = tabular_config(tmp_path / "parts", **more)
    assert not train_table(config, [InterruptAt(8)]).finished.complete
    assert has_equal_weights(train_table(config).estimator, whole.estimator)


def test_a_table_too_small_for_a_validation_split_is_trained_without_one(tmp_path: Path) -> None:
    config = tabular_config(tmp_path, epochs=2, no_baseline=False)
    people(config.data[0], 30)
    result = train_table(config)
    assert result.scores == {} and result.finished.complete


def test_the_rows_for_retrieval_are_saved_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.training.retrieval.MIN_VALIDATION_ROWS", 20)
    config = tabular_config(tmp_path, epochs=3)
    result = train_table(config)
    assert result.estimator is not None and result.estimator.retrieval_ is not None
    X, _ = features_and_table(config.data[0])
    again = train_table(config).estimator
    assert again is not None
    for other in (load(result.run_dir), again):
        assert (result.estimator._predict_raw(X) == other._predict_raw(X)).all()
