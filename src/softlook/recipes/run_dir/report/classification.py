"""Sections of a classifier's report: classes, confusion matrix, calibration and wrong examples."""

from collections.abc import Mapping
from typing import Any

from softlook.recipes.run_dir.report.charts import confusion_figure, reliability_figure
from softlook.recipes.run_dir.report.data import ReportData
from softlook.recipes.run_dir.report.formatting import Cell, card, format_value, grid, number_cell, section, table

SHOWN_CLASSES = 20
"""Classes of the table; the others are folded."""
MATRIX_NOTE = "Rows: labels. Columns: predictions. Colors: fraction of the label's examples."
RELIABILITY_NOTE = (
    "Accuracy by confidence. A calibrated model is on the dashed line; bars below it are overconfident. "
    "Bottom: number of examples."
)


def classification(run: ReportData) -> str:
    """The classification report on test data, or on validation data."""
    for split in ("test", "validation"):
        report = run.scores.get(split)
        if isinstance(report, Mapping) and isinstance(report.get("classes"), Mapping):
            return _sections(split, report)
    return ""


def _sections(split: str, report: Mapping[str, Any]) -> str:
    matrix, bins, confusions = (report.get(name) for name in ("confusion_matrix", "calibration", "confusions"))
    error = f"ECE {format_value(report.get('ece'))}"
    figures = grid(
        _figure(confusion_figure(**matrix), "Confusion matrix", MATRIX_NOTE) if matrix else "",
        _figure(reliability_figure(bins), "Reliability", f"{error}. {RELIABILITY_NOTE}") if bins else "",
        card(_confusions(confusions), "Most frequent confusions") if confusions and not matrix else "",
    )
    wrong = report.get("wrong_examples")
    return section(f"Classes, {split} data", card(_classes(report["classes"])), figures) + section(
        "Most confidently wrong",
        card(_wrong_examples(wrong)) if wrong else "",
        note=f"Wrong predictions on the {split} data with the highest confidence. Check the labels of these examples.",
    )


def _figure(svg: str, title: str, note: str) -> str:
    return card(f'<div class="fit">{svg}</div>', title, note)


def _classes(classes: Mapping[str, Mapping[str, float]]) -> str:
    """Precision, recall, F1 and support of each class, with bars; the largest class first."""
    ranked = sorted(classes.items(), key=lambda item: -item[1].get("support", 0))
    head = ["class", "precision", "recall", "F1", Cell("support", "num")]
    rows = [
        [
            Cell(name, "name"),
            *(Cell(f"{scores[metric]:.3f}", bar=scores[metric]) for metric in ("precision", "recall", "f1")),
            number_cell(int(scores["support"])),
        ]
        for name, scores in ranked
        if scores.keys() >= {"precision", "recall", "f1", "support"}
    ]
    shown, more = table(rows[:SHOWN_CLASSES], head=head, style="classes"), rows[SHOWN_CLASSES:]
    if not more:
        return shown
    return f"{shown}<details><summary>{len(more):,} more classes</summary>{table(more, head=head)}</details>"


def _confusions(confusions: list[Mapping[str, Any]]) -> str:
    rows = [[one["label"], one["prediction"], number_cell(one["examples"])] for one in confusions]
    return table(rows, head=["label", "prediction", Cell("examples", "num")])


def _wrong_examples(examples: list[Mapping[str, Any]]) -> str:
    rows = [
        [Cell(one["text"], "long"), one["label"], one["prediction"], Cell(f"{one['confidence']:.1%}", "num")]
        for one in examples
    ]
    return table(rows, head=["text", "label", "prediction", Cell("confidence", "num")])
