"""Scores of a trained table model, and of baselines."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.run_dir.report import COMPARED, IMPORTANCES, ON, format_score, format_score_name
from softlook.recipes.tabular.data import TableData
from softlook.recipes.tabular.report import importances_to_json, summarize_importances
from softlook.tabular.baselines import fit_baselines
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.formatting import percent
from softlook.tabular.importance import estimate_importances
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.training.metrics import evaluate_rows
from softlook.tabular.training.trainer import TableTrainer

log = logging.getLogger("softlook.recipes")
MIN_BASELINE_SECONDS = 60.0
"""Time limit of a baseline; the training time of the model itself, if that is longer."""
OWN_NAME = "softlook"


def compute_scores(
    estimator: TableEstimator,
    trainer: TableTrainer,
    data: TableData,
    test: TableTensors | None,
    *,
    config: TabularConfig,
    previous: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Scores on validation and test rows, baselines and feature importances.

    `previous` are the scores of an earlier start of the run; `seconds` is the training time.
    """
    scores: dict[str, Any] = {}
    if trainer.validation is not None:
        scores |= evaluate_rows(estimator, trainer.validation)
    if test is not None:
        scores["test"] = evaluate_rows(estimator, test)
    rows = trainer.validation if test is None else test
    if rows is None:
        log.info("There are no validation rows and no --test: the model is not evaluated.")
        return scores
    where = f"{len(rows):,} {'validation rows, also used for early stopping' if test is None else 'test rows'}"
    if (retrieval := estimator.retrieval_) is not None:
        log.info(
            f"Retrieval: {len(retrieval.weight):,} training rows; the nearest ones contribute "
            f"{percent(retrieval.mix)} of a prediction, as determined on the validation rows."
        )
    compared = [{"model": OWN_NAME, **scores.get("test", scores), "seconds": seconds}]
    if not config.no_baseline:
        before = previous.get(COMPARED, [])[1:] if previous.get(ON) == where else []
        limit = max(MIN_BASELINE_SECONDS, seconds)
        compared += before or _baseline_scores(estimator, trainer, rows, config, limit)
    log.info("\n".join([f"Scores on {where}:", *format_table(compared)]))
    metric = "log_loss" if data.target.problem == "classification" else "rmse"
    importances = estimate_importances(estimator, rows, seed=config.training.seed)
    scores[IMPORTANCES] = importances_to_json(importances, metric)
    log.info(summarize_importances(scores[IMPORTANCES]))
    return {**scores, COMPARED: compared, ON: where} if len(compared) > 1 else scores


def format_table(compared: Sequence[Mapping[str, Any]]) -> list[str]:
    """Models and their scores as lines of a table.

    >>> format_table([{"model": "softlook", "accuracy": 0.875, "seconds": 61.2}])
    ['  model     accuracy  seconds', '  softlook  0.8750    61']
    """
    names = list(compared[0])
    rows = [[format_score_name(name) for name in names]]
    rows += [[_format_cell(name, one.get(name)) for name in names] for one in compared]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _format_cell(name: str, value: Any) -> str:
    return format_score(value, name) if isinstance(value, float) else str(value or "")


def _baseline_scores(
    estimator: TableEstimator, trainer: TableTrainer, rows: TableTensors, config: TabularConfig, seconds: float
) -> list[dict[str, Any]]:
    log.info("Training baselines on the same rows; --no-baseline leaves them out.")
    baselines = fit_baselines(
        trainer.train_rows,
        trainer.validation,
        rows,
        target=estimator.target_,
        seconds=seconds,
        seed=config.training.seed,
    )
    return [{"model": one.name, **one.scores, "seconds": one.seconds} for one in baselines]


def to_test_rows(estimator: TableEstimator, data: TableData) -> TableTensors | None:
    """The test rows as tensors, if there are some."""
    if data.test is None:
        return None
    rows = estimator.preprocessor_.transform(data.test.X)
    return TableTensors(rows.numbers, rows.categories, torch.from_numpy(estimator.target_.encode(data.test.y)))
