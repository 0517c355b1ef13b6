"""What a table's model is worth, and what others make of the same rows."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from softlook.recipes.report import COMPARED, IMPORTANCES, ON, score_name, shown
from softlook.recipes.settings import Table
from softlook.recipes.tables_data import TableData
from softlook.recipes.tables_page import as_scores, in_a_line
from softlook.tabular.baselines import baselines
from softlook.tabular.encoding.rows import Rows
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.importance import quick_importances
from softlook.tabular.learning.fitting import Learner
from softlook.tabular.learning.metrics import scores_on
from softlook.tabular.wording import percent

log = logging.getLogger("softlook.recipes")
MODEST = 60.0
"""Seconds that a baseline may take at least; where ours took longer, as long as that."""
OURS = "softlook"


def scored(
    estimator: TableEstimator,
    learner: Learner,
    data: TableData,
    test: Rows | None,
    *,
    settings: Table,
    known: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Scores on held-out rows and, where there are some, on test rows; with other models beside ours if wished for.

    `known` are scores of before, and `seconds` is what all of learning took.
    """
    scores: dict[str, Any] = {}
    if learner.held is not None:
        scores |= scores_on(estimator, learner.held)
    if test is not None:
        scores["test"] = scores_on(estimator, test)
    on = learner.held if test is None else test
    if on is None:
        log.info("Nothing was held out, and no --test came: what it is worth is not known.")
        return scores
    where = f"{len(on):,} {'held-out rows, by which it was also chosen when to stop' if test is None else 'test rows'}"
    if (memory := estimator.memory_) is not None:
        log.info(
            f"{len(memory.weight):,} rows are remembered; those nearest to a row make up {percent(memory.share)} of "
            "its answer. How much that is to be, the held-out rows decided."
        )
    compared = [{"model": OURS, **scores.get("test", scores), "seconds": seconds}]
    if not settings.no_baseline:
        before = known.get(COMPARED, [])[1:] if known.get(ON) == where else []
        compared += before or _others(estimator, learner, on, settings, max(MODEST, seconds))
    log.info("\n".join([f"On the {where}:", *lines(compared)]))
    measure = "log_loss" if data.target.answers == "classes" else "rmse"
    found = quick_importances(estimator, on, seed=settings.training.seed)
    scores[IMPORTANCES] = as_scores(found, measure)
    log.info(in_a_line(scores[IMPORTANCES]))
    return {**scores, COMPARED: compared, ON: where} if len(compared) > 1 else scores


def lines(compared: Sequence[Mapping[str, Any]]) -> list[str]:
    """Models and their scores, as a table.

    >>> lines([{"model": "softlook", "accuracy": 0.875, "seconds": 61.2}])
    ['  model     accuracy  seconds', '  softlook  0.8750    61']
    """
    names = list(compared[0])
    rows = [[score_name(name) for name in names]]
    rows += [[_shown(name, one.get(name)) for name in names] for one in compared]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.ljust(size) for cell, size in zip(row, wide, strict=True)).rstrip() for row in rows]


def _shown(name: str, value: Any) -> str:
    return shown(value, name) if isinstance(value, float) else str(value or "")


def _others(
    estimator: TableEstimator, learner: Learner, on: Rows, settings: Table, seconds: float
) -> list[dict[str, Any]]:
    log.info("Others learn from the same rows, to compare with; --no-baseline leaves that out.")
    found = baselines(
        learner.train, learner.held, on, targets=estimator.targets_, seconds=seconds, seed=settings.training.seed
    )
    return [{"model": one.name, **one.scores, "seconds": one.seconds} for one in found]


def rows_for_test(estimator: TableEstimator, data: TableData) -> Rows | None:
    """Test rows as the model reads them, where there are some."""
    if data.test is None:
        return None
    rows = estimator.reading_.read(data.test.X)
    return Rows(rows.numbers, rows.categories, torch.from_numpy(estimator.targets_.encode(data.test.y)))
