"""The columns of a table on the page about its run: what each was taken for, and what it is to the model."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from softlook.recipes.report import SMALL, safe, score_name, shown
from softlook.tabular.importance import Importances

COLUMNS = "columns"
"""The score that is a table of columns, each with both opinions on what it matters."""
FIRST = 5
"""Columns that are named where there is room for a line alone."""


def as_scores(importances: Importances, measure: str) -> dict[str, Any]:
    """Both opinions on every column as JSON has them, those that matter most first; None where one is silent."""
    found = [
        {
            "name": importances.names[place],
            "attention": _known(float(importances.attention[place])),
            "permutation": _known(float(importances.permutation[place])),
        }
        for place in importances.order().tolist()
    ]
    return {
        "measure": measure,
        "rows": importances.rows,
        "rank_correlation": _known(importances.correlation),
        COLUMNS: found,
    }


def in_a_line(found: Mapping[str, Any]) -> str:
    """The columns that matter most.

    >>> two = [{"name": "age", "permutation": 0.25}, {"name": "city", "permutation": 0.0}]
    >>> in_a_line({"measure": "log_loss", "columns": two})
    'Columns that matter most, by the log loss that shuffling them costs: age 0.2500.'
    """
    first = [one for one in found[COLUMNS][:FIRST] if (one["permutation"] or 0) > 0]
    if not first:
        return "No column matters by itself: whichever is shuffled, the answers are as good."
    measure = _measure(found, first[0]["permutation"])
    cost = ", ".join(f"{one['name']} {shown(one['permutation'], measure)}" for one in first)
    return f"Columns that matter most, by the {score_name(found['measure'])} that shuffling them costs: {cost}."


def columns_part(lines: Sequence[str], names: Sequence[str], found: Mapping[str, Any] | None) -> str:
    """All columns as HTML, each with what it was taken for; as bars what it matters, once that is known.

    `lines` are those of `Reading.told`: one for each name, then what columns tell together.
    """
    held = {name: line.removeprefix(f"{name}: ") for name, line in zip(names, lines, strict=False)}
    together = "".join(f'<p class="soft">{safe(line)}</p>' for line in lines[len(names) :])
    if found is None:
        rows = "".join(f"<tr>{_about(name, held)}</tr>" for name in names)
        return f'<h2>Columns</h2><div class="wide"><table>{rows}</table></div>{together}'
    most = {which: max(one[which] or 0 for one in found[COLUMNS]) for which in ("attention", "permutation")}
    head = f"<tr><th>column</th><th>looked at</th><th>{safe(score_name(found['measure']))}, if shuffled</th></tr>"
    more = partial(_more, measure=_measure(found, most["permutation"]))
    rows = "".join(
        f"<tr>{_about(one['name'], held)}{_bar(one['attention'], most['attention'], _share)}"
        f"{_bar(one['permutation'], most['permutation'], more)}</tr>"
        for one in found[COLUMNS]
    )
    table = f'<div class="wide"><table>{head}{rows}</table></div>'
    return f'<h2>Columns</h2><p class="soft">{_explained(found)}</p>{table}{together}'


def _explained(found: Mapping[str, Any]) -> str:
    agree = found["rank_correlation"]
    said = "" if agree is None else f" Rank correlation of both: {agree:.2f}."
    return (
        "Looked at: the share of the look of the answer that falls on a column, the mean over heads, blocks and rows. "
        f"Shuffled: how much larger {safe(score_name(found['measure']))} is when the column's cells are dealt out anew "
        f"among {found['rows']:,} rows that were not learned from.{said}"
    )


def _about(name: str, held: Mapping[str, str]) -> str:
    return f'<td>{safe(name)}<br><span class="soft">{safe(held.get(name, ""))}</span></td>'


def _bar(value: float | None, most: float, told: Callable[[float], str]) -> str:
    if value is None:
        return '<td class="soft">not known</td>'
    share = max(0.0, value / most) if most > 0 else 0.0
    return f'<td class="bar" style="--share:{100 * share:.1f}%">{safe(told(value))}</td>'


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _more(value: float, *, measure: str) -> str:
    return f"{'+' if value >= 0 else '−'}{shown(abs(value), measure)}"


def _measure(found: Mapping[str, Any], most: float) -> str:
    """The name that says how many digits a cost has: beside larger ones, what is next to nothing needs none."""
    return found["measure"] if most < SMALL else ""


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
