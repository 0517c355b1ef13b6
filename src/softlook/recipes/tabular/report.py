"""Columns and feature importances in the HTML report."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from softlook.recipes.run_dir.report import SMALL_ERROR, escape_html, format_score, format_score_name
from softlook.tabular.importance import FeatureImportances

COLUMNS = "columns"
"""The key of the per-column importances."""
MAX_SUMMARY_COLUMNS = 5


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
    groups = "".join(f'<p class="soft">{escape_html(line)}</p>' for line in lines[len(names) :])
    if importances is None:
        rows = "".join(f"<tr>{_name_cell(name, types)}</tr>" for name in names)
        return f'<h2>Columns</h2><div class="wide"><table>{rows}</table></div>{groups}'
    largest = {kind: max(one[kind] or 0 for one in importances[COLUMNS]) for kind in ("attention", "permutation")}
    metric = escape_html(format_score_name(importances["metric"]))
    head = f"<tr><th>column</th><th>attention</th><th>increase of {metric}</th></tr>"
    increase = partial(_format_increase, score=_score_format(importances, largest["permutation"]))
    rows = "".join(
        f"<tr>{_name_cell(one['name'], types)}{_bar(one['attention'], largest['attention'], _format_percent)}"
        f"{_bar(one['permutation'], largest['permutation'], increase)}</tr>"
        for one in importances[COLUMNS]
    )
    table = f'<div class="wide"><table>{head}{rows}</table></div>'
    return f'<h2>Columns</h2><p class="soft">{_legend(importances, metric)}</p>{table}{groups}'


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


def _format_percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _format_increase(value: float, *, score: str) -> str:
    return f"{'+' if value >= 0 else '−'}{format_score(abs(value), score)}"


def _score_format(importances: Mapping[str, Any], largest: float) -> str:
    """The score name that determines the digits: next to large increases small ones need none."""
    return importances["metric"] if largest < SMALL_ERROR else ""


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
