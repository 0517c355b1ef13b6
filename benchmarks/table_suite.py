"""`python -m benchmarks.table_suite FOLDER`: the default on a suite of tables, compared with other libraries.

FOLDER contains the tables (see `table_suite_data`), or, with `--datasets california ...`, the papers' tables (see
`tables_data`). Results of every run (table, model, split) are appended to --output as soon as they are known, and are
not computed again. All models are untuned. softlook's models and pytabkit's get training and validation rows together;
the others stop early on the validation rows. `--report RESULTS.jsonl` prints the page, and `--figure FILE.svg` draws
the critical difference diagram of the results. `--compare` adds the results of models that only another file has.
"""

import argparse
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.table_suite_data import load_suite_dataset, table_names
from benchmarks.table_suite_report import report
from benchmarks.tables_baselines import BASELINES, FitModel, FitParams, FittedModel
from benchmarks.tables_data import NAMES as PAPER_TABLES
from benchmarks.tables_data import Dataset, Split, load_dataset
from benchmarks.tables_models import NEURAL
from benchmarks.tables_results import Result, read_results
from benchmarks.tables_runner import RunConfig, make_parser, parse_args, run_tasks
from softlook.tabular import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
)
from softlook.tabular.ensemble.calibration import expected_calibration_error

LEARNING_RATE, PATIENCE = 0.03, 100
"""Of LightGBM, XGBoost and HistGradientBoosting, with at most 4,000 trees. CatBoost has its defaults."""
OURS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "softlook": (TableTransformerRegressor, TableTransformerClassifier, {}),
    "softlook, attention only": (TableTransformerRegressor, TableTransformerClassifier, {"ensemble": "attention"}),
    "softlook, single": (TableTransformerRegressor, TableTransformerClassifier, {"ensemble": "single"}),
    "ft-transformer": (FTTransformerRegressor, FTTransformerClassifier, {}),
    "tab-transformer": (TabTransformerRegressor, TabTransformerClassifier, {}),
}
"""Regressor, classifier and parameters: the default, and the papers' models."""


@dataclass(frozen=True)
class Task:
    """One run."""

    dataset: str
    model: str
    seed: int


def fit_ours(name: str) -> FitModel:
    """Fits a softlook estimator to training and validation rows, which it splits itself."""
    regressor, classifier, own = OURS[name]

    def fit(dataset: Dataset, params: FitParams) -> FittedModel:
        kind: Any = classifier if dataset.classes else regressor
        model = kind(random_state=params.seed, n_jobs=params.threads, time_limit=params.time_limit, **own)
        rows = _together(dataset.train, dataset.validation)
        model.fit(rows.frame, rows.targets)
        predict = model.predict_proba if dataset.classes else model.predict
        return FittedModel(predict, {"epochs": model.n_iter_, "leaderboard": model.leaderboard_})

    return fit


def fit_pytabkit(name: str) -> FitModel:
    """RealMLP and TabM with pytabkit's defaults; it splits training and validation rows itself.

    They accept no missing numbers: these are replaced by medians. They have no time limit.
    """

    def fit(dataset: Dataset, params: FitParams) -> FittedModel:
        import pytabkit  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  (optional)

        model = getattr(pytabkit, f"{name}_{'Classifier' if dataset.classes else 'Regressor'}")(
            random_state=params.seed, n_threads=params.threads, device="cpu"
        )
        rows = _together(dataset.train, dataset.validation)
        medians = rows.frame.select_dtypes("number").median()
        model.fit(rows.frame.fillna(medians), rows.targets)
        predict = model.predict_proba if dataset.classes else model.predict
        return FittedModel(lambda frame: predict(frame.fillna(medians)), {"version": version("pytabkit")})

    return fit


MODELS: dict[str, FitModel] = {
    **{name: fit_ours(name) for name in OURS},
    **{name: fit for name, fit in BASELINES.items() if name != "catboost-long"},
    "realmlp": fit_pytabkit("RealMLP_TD"),
    "tabm": fit_pytabkit("TabM_D"),
}


def _together(*splits: Split) -> Split:
    frame = pandas.concat([split.frame for split in splits], ignore_index=True)
    return Split(frame, np.concatenate([split.targets for split in splits]))


def run(task: Task, config: RunConfig) -> list[Result]:
    """Fit, and score on the test rows."""
    load = load_dataset if task.dataset in PAPER_TABLES else load_suite_dataset
    dataset = load(config.data_dir, task.dataset, task.seed).head(config.max_rows)
    if config.cpu_time:  # in a process of its own; softlook and the baselines read these clocks
        time.monotonic = time.perf_counter = time.process_time
    start = time.perf_counter()
    params = replace(config.fit_params(task.seed), learning_rate=LEARNING_RATE, patience=PATIENCE)
    fitted = MODELS[task.model](dataset, params)
    fit_end = time.perf_counter()
    metrics = evaluate_suite(dataset, fitted.predict(dataset.test.frame))
    result = {
        "score": metrics["loss"],
        "metrics": metrics,
        "fit_seconds": fit_end - start,
        "predict_seconds": time.perf_counter() - fit_end,
        "hardware": config.hardware("rtdl" if task.model in (*OURS, *NEURAL) else task.model),
        "time_limit": config.time_limit,
        "clock": "CPU time" if config.cpu_time else "wall-clock time",
        "rows": [len(split) for split in dataset.splits],
        "info": fitted.info,
    }
    return [result]


def evaluate_suite(dataset: Dataset, predictions: np.ndarray) -> dict[str, float]:
    """The loss, log loss or RMSE, and what else there is of accuracy, AUC and calibration error."""
    targets, classes = dataset.test.targets, dataset.classes
    if not classes:
        return {"loss": float(np.sqrt(np.mean((predictions - targets) ** 2)))}
    full = predictions.clip(1e-15)
    full = full / full.sum(1, keepdims=True)
    metrics = {
        "loss": float(log_loss(targets, full, labels=np.arange(classes))),
        "accuracy": float((predictions.argmax(1) == targets).mean()),
        "ece": expected_calibration_error(predictions, targets),
    }
    present = np.unique(targets)
    areas = [roc_auc_score(targets == index, predictions[:, index]) for index in present]
    return metrics | {"auc": float(np.mean(areas))}


def make_tasks(args: argparse.Namespace) -> list[Task]:
    """All tasks, split by split, the largest tables first."""
    datasets = args.datasets or table_names(args.data_dir)[::-1]
    return [Task(name, model, seed) for seed in range(args.seeds) for model in args.models for name in datasets]


def main() -> None:
    parser = make_parser("table_suite", __doc__, datasets=(), models=list(MODELS))
    parser.add_argument("--compare", type=Path, metavar="RESULTS", help="with --report: results of further models")
    parser.add_argument("--figure", type=Path, metavar="FILE.svg", help="with --report: draw the diagram")
    args = parse_args(parser)
    if args.report:
        results = read_results(args.report)
        others = read_results(args.compare) if args.compare else []
        models = {one["model"] for one in results}
        print(report([*results, *(one for one in others if one["model"] not in models)], args.figure))
    else:
        run_tasks(run, make_tasks(args), args)


if __name__ == "__main__":
    main()
