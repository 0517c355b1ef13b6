"""Scores of a table model and of baselines, and its feature importances, as text and in the HTML report."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from softlook.base.activity import report_activity
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.run_dir.report.data import COMPARED, IMPORTANCES, ON
from softlook.recipes.run_dir.report.formatting import (
    SMALL_ERROR,
    card,
    escape_html,
    format_score,
    format_score_name,
    format_table,
    section,
)
from softlook.recipes.tabular.data import TableData
from softlook.recipes.tabular.ensemble import LEADERBOARD, RunEnsemble
from softlook.tabular.baselines import fit_baselines
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.formatting import percent
from softlook.tabular.importance import FeatureImportances, estimate_importances
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.training.metrics import evaluate_rows
from softlook.tabular.training.trainer import TableTrainer

log = logging.getLogger("softlook.recipes")
MIN_BASELINE_SECONDS = 60.0
"""Time limit of a baseline; the training time of the model itself, if that is longer."""
OWN_NAME, SINGLE_NAME = "softlook", "softlook, one attention model"
COLUMNS = "columns"
"""The key of the per-column importances."""
MAX_SUMMARY_COLUMNS = 5


def compute_scores(
    estimator: TableEstimator,
    trainer: TableTrainer,
    data: TableData,
    test: TableTensors | None,
    *,
    ensemble: RunEnsemble | None,
    config: TabularConfig,
    previous: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Scores on validation and test rows, baselines and feature importances.

    With an ensemble the scores are its own, and those of the estimator, a single attention model, are compared with
    them; importances are the estimator's. `previous` are the scores of an earlier start of the run; `seconds` is the
    training time of the estimator.
    """
    report_activity("evaluating the model")
    single = _own_scores(estimator, trainer, test)
    scores = single if ensemble is None else _ensemble_scores(ensemble, data, single)
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
    compared = [{"model": OWN_NAME, **single.get("test", single), "seconds": seconds}]
    if ensemble is not None:
        compared = _compare_ensemble(ensemble, scores, compared[0])
        log.info("\n".join(["Ensemble:", *format_table(scores[LEADERBOARD])]))
        where = where if test is not None else f"{where}; {_describe_out_of_fold(ensemble)}"
    if not config.no_baseline:
        own = (OWN_NAME, SINGLE_NAME)
        before = [one for one in previous.get(COMPARED, []) if one["model"] not in own and previous[ON] == where]
        limit = max(MIN_BASELINE_SECONDS, sum(one["seconds"] for one in compared))
        compared += before or _baseline_scores(estimator, trainer, rows, config, limit)
    log.info("\n".join([f"Scores on {where}:", *format_table(compared)]))
    report_activity("estimating the importance of the columns")
    metric = "log_loss" if data.target.problem == "classification" else "rmse"
    importances = estimate_importances(estimator, rows, seed=config.training.seed)
    scores[IMPORTANCES] = importances_to_json(importances, metric)
    log.info(summarize_importances(scores[IMPORTANCES]))
    return {**scores, COMPARED: compared, ON: where} if len(compared) > 1 else scores


def _own_scores(estimator: TableEstimator, trainer: TableTrainer, test: TableTensors | None) -> dict[str, Any]:
    """Metrics on validation rows, and on test rows."""
    scores: dict[str, Any] = {}
    if trainer.validation is not None:
        scores |= evaluate_rows(estimator, trainer.validation)
    if test is not None:
        scores["test"] = evaluate_rows(estimator, test)
    return scores


def _ensemble_scores(ensemble: RunEnsemble, data: TableData, single: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of the ensemble, of which those on validation rows are out-of-fold, and its models."""
    validation = ensemble.scores or {name: value for name, value in single.items() if name != "test"}
    scores: dict[str, Any] = {**validation, LEADERBOARD: ensemble.leaderboard()}
    test = to_test_rows(ensemble.estimator, data)
    return scores if test is None else scores | {"test": evaluate_rows(ensemble.estimator, test)}


def _compare_ensemble(
    ensemble: RunEnsemble, scores: Mapping[str, Any], single: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The ensemble, if it has scores on these rows, and the single attention model."""
    own = scores.get("test", ensemble.scores)
    first = [{"model": OWN_NAME, **own, "seconds": ensemble.seconds}] if own else []
    return [*first, {**single, "model": SINGLE_NAME}]


def _describe_out_of_fold(ensemble: RunEnsemble) -> str:
    return f"of the ensemble: out-of-fold predictions for {ensemble.rows:,} of them"


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


def importances_to_json(importances: FeatureImportances, metric: str) -> dict[str, Any]:
    """Importances as JSON values, the most important column first; None if unknown."""
    columns = [
        {
            "name": importances.names[index],
            "attention": _known(float(importances.attention[index])),
            "permutation": _known(float(importances.permutation[index])),
        }
        for index in importances.ranking().tolist()
    ]
    return {
        "metric": metric,
        "rows": importances.rows,
        "rank_correlation": _known(importances.correlation),
        COLUMNS: columns,
    }


def summarize_importances(importances: Mapping[str, Any]) -> str:
    """The most important columns in one line.

    >>> two = [{"name": "age", "permutation": 0.25}, {"name": "city", "permutation": 0.0}]
    >>> summarize_importances({"metric": "log_loss", "columns": two})
    'Most important columns, by the increase of log loss when permuted: age 0.2500.'
    """
    first = [one for one in importances[COLUMNS][:MAX_SUMMARY_COLUMNS] if (one["permutation"] or 0) > 0]
    if not first:
        return "No column is important by itself: permuting any one does not change the loss."
    score = _score_format(importances, first[0]["permutation"])
    cost = ", ".join(f"{one['name']} {format_score(one['permutation'], score)}" for one in first)
    name = format_score_name(importances["metric"])
    return f"Most important columns, by the increase of {name} when permuted: {cost}."


def render_columns(lines: Sequence[str], names: Sequence[str], importances: Mapping[str, Any] | None) -> str:
    """All columns as HTML with their types, and with bars of importance once they are known.

    `lines` are those of `TablePreprocessor.describe`: one for each column, then one for each one-hot group.
    """
    types = {name: line.removeprefix(f"{name}: ") for name, line in zip(names, lines, strict=False)}
    groups = "".join(f'<p class="note">{escape_html(line)}</p>' for line in lines[len(names) :])
    if importances is None:
        rows = "".join(f"<tr>{_name_cell(name, types)}</tr>" for name in names)
        return section("Columns", card(f'<div class="wide"><table>{rows}</table></div>{groups}'))
    largest = {kind: max(one[kind] or 0 for one in importances[COLUMNS]) for kind in ("attention", "permutation")}
    metric = escape_html(format_score_name(importances["metric"]))
    head = f"<tr><th>column</th><th>attention</th><th>increase of {metric}</th></tr>"
    score = _score_format(importances, largest["permutation"])

    def percentage(value: float) -> str:
        return f"{100 * value:.1f} %"

    def increase(value: float) -> str:
        return f"{'+' if value >= 0 else '−'}{format_score(abs(value), score)}"

    rows = "".join(
        f"<tr>{_name_cell(one['name'], types)}{_bar(one['attention'], largest['attention'], percentage)}"
        f"{_bar(one['permutation'], largest['permutation'], increase)}</tr>"
        for one in importances[COLUMNS]
    )
    table = f'<div class="wide"><table>{head}{rows}</table></div>'
    note = _legend(importances, format_score_name(importances["metric"]))
    return section("Columns", card(f"{table}{groups}"), note=note)


def _legend(importances: Mapping[str, Any], metric: str) -> str:
    correlation = importances["rank_correlation"]
    agreement = "" if correlation is None else f" Rank correlation of both: {correlation:.2f}."
    return (
        "Attention: fraction of the attention on a column, mean over heads, blocks and rows. Permutation importance: "
        f"the increase of {metric} when the column is permuted among {importances['rows']:,} rows that were not used "
        f"for training.{agreement}"
    )


def _name_cell(name: str, types: Mapping[str, str]) -> str:
    return f'<td>{escape_html(name)}<br><span class="soft">{escape_html(types.get(name, ""))}</span></td>'


def _bar(value: float | None, largest: float, format_value: Callable[[float], str]) -> str:
    if value is None:
        return '<td class="soft">unknown</td>'
    fraction = max(0.0, value / largest) if largest > 0 else 0.0
    return f'<td class="bar" style="--share:{100 * fraction:.1f}%">{escape_html(format_value(value))}</td>'


def _score_format(importances: Mapping[str, Any], largest: float) -> str:
    """The score name that determines the digits: next to large increases small ones need none."""
    return importances["metric"] if largest < SMALL_ERROR else ""


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
