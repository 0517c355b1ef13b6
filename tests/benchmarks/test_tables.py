"""The tabular benchmarks compare fairly: no model sees a test row, and all are scored on the same rows."""

import argparse
import json
import subprocess
import sys
import xml.dom.minidom
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pandas
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("narwhals")

from benchmarks import tables, tables_few_labels, tables_importance, tables_noise
from benchmarks.tables_baselines import BASELINES, FitParams, categorical_encoder
from benchmarks.tables_data import Dataset, Metric, Split, evaluate, load_dataset
from benchmarks.tables_figure import Panel, figure
from benchmarks.tables_models import SOFTLOOK, make_estimator
from benchmarks.tables_results import Result, append_result, read_results
from benchmarks.tables_rtdl import rtdl
from benchmarks.tables_runner import pending_tasks, store_results

ROWS = 400


def make_frame(rows: int = ROWS, seed: int = 0) -> pandas.DataFrame:
    """An informative number, a row index, and a category with missing values."""
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "size": rng.normal(size=rows),
            "row": np.arange(rows, dtype=float),
            "color": rng.choice(["red", "blue"], rows).astype(object),
        }
    )
    frame.loc[rng.random(rows) < 0.1, "color"] = None
    return frame


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Files with the names of the datasets and synthetic columns."""
    for path, target, rows, seed in [
        ("adult/adult_train", "income", ROWS, 0),
        ("adult/adult_test", "income", 100, 1),
        ("bank_marketing/bank_marketing", "y", ROWS, 2),
        ("california_housing/california_housing", "MedHouseVal", ROWS, 3),
    ]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        frame = make_frame(rows, seed)
        classes = np.where(frame["size"] > 0.5, "yes", "no")
        targets = frame["size"] if target == "MedHouseVal" else classes
        frame.assign(**{target: targets}).to_csv(tmp_path / f"{path}.csv.gz", index=False)
    splits = np.array(["train", "train", "val", "test"] * (ROWS // 4))
    pandas.DataFrame({"split": splits}).to_csv(tmp_path / "california_housing" / "rtdl_split.csv.gz", index=False)
    return tmp_path


def make_dataset(metric: Metric = "accuracy") -> Dataset:
    """A dataset that can be learned."""
    frame = make_frame()
    numbers = frame["size"].to_numpy() + (frame["color"] == "red").to_numpy()
    targets = numbers if metric == "RMSE" else (numbers > 0.5).astype(np.int64)
    whole = Split(frame, targets)
    return Dataset("learnable", metric, *(whole.take(rows) for rows in np.split(np.arange(ROWS), [240, 320])))


def make_result(**overrides: object) -> Result:
    timing = {"fit_seconds": 1.0, "predict_seconds": 0.1, "hardware": "cpu"}
    task = {"dataset": "adult", "model": "table-transformer", "seed": 0}
    return {**task, "metric": "accuracy", "score": 0.9, **timing, **overrides}


# --- datasets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["income", "bank"])
def test_a_random_split_has_every_row_once_in_the_ratio_65_15_20(data_dir, name):
    dataset = load_dataset(data_dir, name, 0)
    rows = [split.frame["row"].tolist() for split in dataset.splits]
    assert [len(part) for part in rows] == [260, 60, 80]
    assert sorted(sum(rows, [])) == list(range(ROWS))


def test_the_seed_determines_a_random_split(data_dir):
    tests = [load_dataset(data_dir, "bank", seed).test.frame["row"].tolist() for seed in (0, 0, 1)]
    assert tests[0] == tests[1] != tests[2]


def test_a_split_file_determines_the_split(data_dir):
    dataset = load_dataset(data_dir, "california", 3)
    assert [len(split) for split in dataset.splits] == [200, 100, 100]
    assert dataset.test.frame["row"].tolist() == list(range(3, ROWS, 4))
    assert np.allclose(dataset.test.targets, dataset.test.frame["size"])


def test_the_test_rows_of_adult_are_those_of_its_test_file_for_every_seed(data_dir):
    dataset = load_dataset(data_dir, "adult", 4)
    assert [len(split) for split in dataset.splits] == [320, 80, 100]
    assert np.allclose(dataset.test.frame["size"], make_frame(100, 1)["size"])


def test_the_error_for_a_missing_dataset_names_its_file(data_dir):
    with pytest.raises(FileNotFoundError, match=r"covertype\.csv"):
        load_dataset(data_dir, "covertype", 0)


def test_only_perfect_predictions_have_perfect_scores():
    dataset = make_dataset()
    one_hot = np.eye(2)[dataset.test.targets]
    metrics = evaluate(dataset, one_hot)
    assert metrics["accuracy"] == metrics["AUC"] == 1 and metrics["log loss"] < 1e-6
    assert evaluate(dataset, 1 - one_hot)["AUC"] == 0
    regression = make_dataset("RMSE")
    assert evaluate(regression, regression.test.targets + 2.0)["RMSE"] == pytest.approx(2)


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*BASELINES, pytest.param("rtdl", marks=pytest.mark.slow)])
@pytest.mark.parametrize("metric", ["accuracy", "RMSE"])
def test_every_baseline_learns_a_learnable_dataset(model, metric):
    library = {"catboost-long": "catboost", "histgb": "sklearn", "linear": "sklearn", "rtdl": "rtdl_revisiting_models"}
    pytest.importorskip(library.get(model) or model)
    dataset = make_dataset(metric)
    fitted = {**BASELINES, "rtdl": rtdl}[model](dataset, FitParams(time_limit=20.0))
    metrics = evaluate(dataset, fitted.predict(dataset.test.frame))
    assert metrics["RMSE"] < 0.6 * dataset.test.targets.std() if metric == "RMSE" else metrics["AUC"] > 0.9


@pytest.mark.parametrize("metric", ["accuracy", "RMSE"])
@pytest.mark.parametrize("model", SOFTLOOK)
def test_every_softlook_estimator_of_the_benchmarks_has_valid_parameters(model, metric):
    estimator = make_estimator(model, make_dataset(metric), FitParams(seed=3, threads=1, time_limit=5.0))
    assert estimator._select_hyperparameters().epochs is None
    assert estimator.random_state == 3 and estimator.n_jobs == 1 and estimator.time_limit == 5.0


def test_categories_are_those_of_the_training_rows():
    dataset = make_dataset()
    encoded = categorical_encoder(dataset)(dataset.test.frame.assign(color="green"))["color"]
    assert list(encoded.cat.categories) == ["blue", "red"] and encoded.isna().to_numpy().all()


# --- results ---------------------------------------------------------------------------------------------------------


def test_an_interrupted_write_loses_only_its_own_line(tmp_path):
    path = tmp_path / "results.jsonl"
    append_result(path, make_result(seed=0))
    with path.open("a") as file:
        file.write('{"dataset": "ad')
    append_result(path, make_result(seed=1))
    assert [result["seed"] for result in read_results(path)] == [0, 1]


def test_tasks_with_stored_results_are_not_run_again(tmp_path):
    path, tasks = tmp_path / "results.jsonl", [tables.Task("adult", "table-transformer", seed) for seed in range(3)]
    path.write_text(json.dumps(make_result(seed=1) | {"info": {"epochs": 3}}) + "\n")
    assert [task.seed for task in pending_tasks(tasks, path)] == [0, 2]


def test_results_are_stored_and_errors_are_reported(tmp_path):
    task, path = tables.Task("adult", "xgboost", 2), tmp_path / "results.jsonl"
    missing, failed, finished = Future(), Future(), Future()
    missing.set_exception(ModuleNotFoundError("No module named 'xgboost'", name="xgboost"))
    failed.set_exception(ValueError("no such thing"))
    assert store_results(task, missing, path) == "adult, xgboost, seed 2: skipped, xgboost is not installed"
    assert store_results(task, failed, path) == "adult, xgboost, seed 2: failed with ValueError: no such thing"
    assert not path.exists()
    finished.set_result([{"score": 0.875}])
    assert store_results(task, finished, path) == "adult, xgboost, seed 2: 0.8750"
    assert read_results(path) == [{"dataset": "adult", "model": "xgboost", "seed": 2, "score": 0.875}]


@pytest.mark.slow
def test_a_benchmark_runs_from_files_to_a_table(data_dir, tmp_path):
    output = tmp_path / "results.jsonl"
    options = ["--datasets", "bank", "--models", "linear", "--seeds", "2", "--jobs", "2", "--output", str(output)]
    script = [sys.executable, "-m", "benchmarks.tables"]
    run = subprocess.run([*script, str(data_dir), *options], capture_output=True, text=True, check=True)
    assert run.stdout.count("bank, linear") == 2 and len(read_results(output)) == 2
    report = subprocess.run([*script, "--report", str(output)], capture_output=True, text=True, check=True).stdout
    assert "### bank" in report and "| linear |" in report


@pytest.mark.parametrize("script", [tables, tables_few_labels, tables_importance, tables_noise])
def test_a_benchmark_requires_datasets_or_results(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark"])
    with pytest.raises(SystemExit, match="2"):
        script.main()
    assert "the directory of the datasets is required, or --report RESULTS" in capsys.readouterr().err


def test_a_deterministic_model_runs_once_on_a_fixed_split():
    args = argparse.Namespace(datasets=["adult", "bank"], models=["table-transformer", "lightgbm"], seeds=3)
    tasks = tables.make_tasks(args)
    counts = [sum((task.dataset, task.model) == (name, "lightgbm") for task in tasks) for name in ("adult", "bank")]
    assert counts == [1, 3] and len(tasks) == 3 + 1 + 3 + 3
    assert tasks[0].dataset == "adult" and tasks[0].model == "table-transformer"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"score": 0.8741}, "≥ 0.874: reached"),
        ({"score": 0.8739}, "≥ 0.874: missed"),
        ({"dataset": "california", "metric": "RMSE", "score": 0.4249}, "≤ 0.425: reached"),
        ({"dataset": "california", "metric": "RMSE", "score": 0.4251}, "≤ 0.425: missed"),
    ],
)
def test_the_mean_score_reaches_or_misses_the_goal(overrides, expected):
    assert expected in "\n".join(tables.report([make_result(**overrides)]))


def test_the_best_model_is_first_whether_lower_or_higher_is_better():
    results = [make_result(score=0.8), make_result(model="catboost", score=0.9)]
    report = "\n".join(tables.report(results))
    assert report.index("catboost") < report.index("table-transformer")
    report = "\n".join(tables.report([result | {"dataset": "california", "metric": "RMSE"} for result in results]))
    assert report.index("table-transformer") < report.index("catboost")


# --- noise -----------------------------------------------------------------------------------------------------------


def test_the_fraction_of_missing_cells_is_exact_and_smaller_fractions_are_subsets():
    frame = make_frame(2000).drop(columns="color")
    some, more = (tables_noise.corrupt(frame, "missing", fraction, 0).isna().to_numpy() for fraction in (0.3, 0.6))
    assert some.mean() == pytest.approx(0.3, abs=0.03) and more.mean() == pytest.approx(0.6, abs=0.03)
    assert more[some].all()


def test_noisy_cells_have_values_of_their_own_column():
    frame = make_frame()
    noisy = tables_noise.corrupt(frame, "noisy", 0.5, 0)
    assert set(noisy["row"]) <= set(frame["row"]) and set(noisy["color"].dropna()) == {"red", "blue"}
    assert (noisy["row"] != frame["row"]).to_numpy().mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("corruption", tables_noise.CORRUPTIONS)
def test_a_fraction_of_zero_changes_nothing(corruption):
    pandas.testing.assert_frame_equal(tables_noise.corrupt(make_frame(), corruption, 0.0, 0), make_frame())


def test_corrupting_the_training_rows_keeps_the_test_rows():
    dataset = make_dataset()
    corrupted = tables_noise.corrupt_training(dataset, "missing", 0.9, 0)
    assert corrupted.test is dataset.test and corrupted.train.frame.isna().to_numpy().mean() > 0.8


def test_the_clean_result_starts_both_curves():
    model = "table-transformer"
    common = {"dataset": "bank", "model": model, "seed": 0, "metric": "AUC", "score": 0.9, "corruption": "noisy"}
    results = [common | {"training": "clean", "fraction": fraction} for fraction in (0.0, 0.1)]
    results.append(common | {"training": "noisy", "training_fraction": 0.1, "fraction": 0.1, "score": 0.8})
    test_only, train_and_test = tables_noise.panels(results)
    assert test_only.curves == {model: [(0.0, 0.9), (0.1, 0.9)]}
    assert train_and_test.curves == {model: [(0.0, 0.9), (0.1, 0.8)]}
    assert sum(tables_noise.TRAIN_AND_TEST in table for table in tables_noise.report(results)) == 1


def test_a_figure_is_one_well_formed_svg_with_every_curve():
    curves = {"linear": [(0.0, 0.9), (0.7, 0.7)], "<boosting>": [(0.0, 0.95), (0.7, 0.6)]}
    svg = figure([Panel("a & b", curves), Panel("c", curves)], title="Noise", x_label="fraction")
    root = xml.dom.minidom.parseString(svg).documentElement
    assert root is not None and len(root.getElementsByTagName("circle")) == 8


# --- few labels and importances --------------------------------------------------------------------------------------


def test_no_more_than_the_given_number_of_labels_is_used():
    few = tables_few_labels.keep_labels(make_dataset(), 50, 0)
    own_validation = tables_few_labels.validate_on_train(few, 0)
    assert [len(split) for split in few.splits] == [50, 80, 80]
    assert [len(split) for split in own_validation.splits] == [40, 10, 80]
    rows = [set(split.frame["row"]) for split in own_validation.splits]
    assert rows[0] | rows[1] == set(few.train.frame["row"]) and not rows[0] & rows[1]
    assert set(few.train.targets) == {0, 1}


def test_the_gain_of_pretraining_is_measured_on_the_same_labels():
    common = {"dataset": "bank", "validation": "split", "seed": 0, "labels": 50}
    results = [
        common | {"model": "table-transformer", "score": 0.7},
        common | {"model": "table-transformer-rtd", "score": 0.8},
        common | {"model": "table-transformer", "score": 0.1, "seed": 1},
    ]
    report = "\n".join(tables_few_labels.report(results))
    assert "table-transformer-rtd +0.100 over table-transformer, better in 1 of 1" in report


def test_only_the_informative_column_of_the_synthetic_dataset_determines_the_class():
    dataset = tables_importance.make_synthetic(0)
    frame = pandas.concat([split.frame for split in dataset.splits])
    targets = np.concatenate([split.targets for split in dataset.splits])
    assert ((frame["a"] > 0).to_numpy() == targets).mean() > 0.95
    assert abs(((frame["b"] > 0).to_numpy() == targets).mean() - 0.5) < 0.05
    assert abs(targets[(frame["c"] == "red").to_numpy()].mean() - targets.mean()) < 0.05
