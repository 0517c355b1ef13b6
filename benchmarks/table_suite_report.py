"""The page of a suite: mean ranks, win rates and losses, and a critical difference diagram."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range

from benchmarks.critical_difference import diagram
from benchmarks.tables_results import Result, group_by, markdown_table

REFERENCE = "softlook"
KINDS = ("attention", "trees", "linear")
RESAMPLES = 10_000
Losses = dict[tuple[str, int], float]
"""Of a model, by table and split."""


def report(results: list[Result], figure: Path | None = None) -> str:
    """The page in Markdown, of the tables and splits that the reference was run on; `figure`: where to draw."""
    expected = {(one["dataset"], one["seed"]) for one in results if one["model"] == REFERENCE}
    results = [one for one in results if (one["dataset"], one["seed"]) in expected]
    by_model: dict[str, Losses] = {}
    for (model,), own in group_by(results, "model").items():
        by_model[model] = {(one["dataset"], one["seed"]): one["score"] for one in own}
    complete = _complete(by_model)
    ranks = mean_ranks(by_model, complete)
    tables = sorted({table for table, _ in by_model[complete[0]]})
    distance = critical_difference(len(complete), len(tables))
    if figure is not None:
        figure.write_text(diagram(ranks, distance, title=f"Mean ranks over {len(tables)} tables"))
    absent = [name for name in by_model if name not in complete]
    note = f"\n\nNot ranked, because some runs are absent: {', '.join(absent)}." if absent else ""
    return "\n\n".join(
        [
            "## Ranks",
            _rank_table(results, by_model, ranks) + note,
            f"Ranks differ significantly if they are more than {distance:.2f} apart (Nemenyi test, 5 %).",
            "## Losses",
            "Log loss of classification, RMSE of the standardized target of regression: the mean over splits.",
            _loss_table(by_model, complete, tables),
            "## Weights",
            "Weights of the models in softlook's ensemble: the mean over splits.",
            _weight_table([one for one in results if one["model"] == REFERENCE], tables),
        ]
    )


def _complete(by_model: dict[str, Losses]) -> list[str]:
    """Models with results for every table and split that the reference has."""
    expected = by_model[REFERENCE]
    return [name for name, losses in by_model.items() if losses.keys() >= expected.keys()]


def mean_ranks(by_model: dict[str, Losses], models: Sequence[str]) -> dict[str, float]:
    """The mean rank of each model over tables, of its mean loss over splits; the best first.

    >>> mean_ranks({"a": {("t", 0): 0.1}, "b": {("t", 0): 0.2}}, ["b", "a"])
    {'a': 1.0, 'b': 2.0}
    """
    tables = sorted({table for table, _ in by_model[models[0]]})
    losses = np.array([[_mean_loss(by_model[name], table) for name in models] for table in tables])
    ranks = rankdata(losses, axis=1).mean(0)
    return dict(sorted(zip(models, ranks.tolist(), strict=True), key=lambda one: one[1]))


def win_rate(ours: Losses, other: Losses) -> tuple[float, float, float]:
    """The fraction of tables and splits with a lower loss, and its 95 % interval over resampled tables.

    >>> win_rate({("t", 0): 0.1, ("t", 1): 0.3}, {("t", 0): 0.2, ("t", 1): 0.2})
    (0.5, 0.5, 0.5)
    """
    common = sorted(ours.keys() & other.keys())
    tables = sorted({table for table, _ in common})
    wins = [statistics.mean(_win(ours[key], other[key]) for key in common if key[0] == table) for table in tables]
    sampled = np.random.default_rng(0).choice(wins, (RESAMPLES, len(wins))).mean(1)
    low, high = np.quantile(sampled, [0.025, 0.975])
    return float(np.mean(wins)), float(low), float(high)


def critical_difference(models: int, tables: int) -> float:
    """Nemenyi's critical difference of mean ranks at 5 % (Demsar 2006).

    >>> round(critical_difference(5, 14), 2)
    1.63
    """
    quantile = float(studentized_range.ppf(0.95, models, np.inf)) / 2**0.5
    return quantile * (models * (models + 1) / (6 * tables)) ** 0.5


def _win(ours: float, other: float) -> float:
    return 0.5 if ours == other else float(ours < other)


def _mean_loss(losses: Losses, table: str) -> float:
    return statistics.mean(loss for (name, _), loss in losses.items() if name == table)


def _rank_table(results: list[Result], by_model: dict[str, Losses], ranks: dict[str, float]) -> str:
    header = ["model", "mean rank", "softlook is better in", "accuracy", "AUC", "ECE", "fit, s", "predict, s", "on"]
    rows = []
    for name, rank in ranks.items():
        own = [result for result in results if result["model"] == name]
        seconds = [f"{statistics.mean(one[key] for one in own):.1f}" for key in ("fit_seconds", "predict_seconds")]
        hardware = ", ".join(sorted({one["hardware"] for one in own}))
        metrics = [_mean_metric(own, metric) for metric in ("accuracy", "auc", "ece")]
        rows.append([name, f"{rank:.2f}", _versus(by_model, name), *metrics, *seconds, hardware])
    return markdown_table(header, rows)


def _versus(by_model: dict[str, Losses], name: str) -> str:
    if name == REFERENCE or REFERENCE not in by_model:
        return ""
    rate, low, high = win_rate(by_model[REFERENCE], by_model[name])
    return f"{rate:.0%} ({low:.0%} to {high:.0%})"


def _mean_metric(results: list[Result], metric: str) -> str:
    values = [one["metrics"][metric] for one in results if metric in one["metrics"]]
    return f"{statistics.mean(values):.4f}" if values else ""


def _loss_table(by_model: dict[str, Losses], models: Sequence[str], tables: Sequence[str]) -> str:
    rows = []
    for table in tables:
        means = [_mean_loss(by_model[name], table) for name in models]
        rows.append([table, *(f"**{loss:.4f}**" if loss == min(means) else f"{loss:.4f}" for loss in means)])
    return markdown_table(["table", *models], rows)


def _weight_table(results: list[Result], tables: Sequence[str]) -> str:
    rows = []
    for table in tables:
        boards = [one["info"]["leaderboard"] for one in results if one["dataset"] == table]
        rows.append([table, *(f"{_mean_weight(boards, kind):.2f}" for kind in KINDS)])
    return markdown_table(["table", *KINDS], rows)


def _mean_weight(boards: list[list[dict[str, Any]]], kind: str) -> float:
    return statistics.mean(sum(entry["weight"] for entry in board if entry["kind"] == kind) for board in boards)
