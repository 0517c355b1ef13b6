"""Numbers and names for people, and tables and sections of HTML."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softlook.base.errors import escape_control

TITLES = {
    "auc": "AUC",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R2",
    "ece": "ECE",
    "mcc": "MCC",
    "f1": "F1",
    "spearman": "Spearman",
    "bleu": "BLEU",
    "chrf": "chrF",
    "kl": "KL",
}
ERROR_METRICS, SMALL_ERROR = ("rmse", "mae"), 0.001
"""Errors in units of the target, which are shown in significant digits if they are small."""


def format_score(value: float, name: str = "") -> str:
    """A score with its significant digits.

    >>> format_score(0.75), format_score(61.234), format_score(93491.05)
    ('0.7500', '61.23', '93,491')
    >>> format_score(0.0000125, "rmse"), format_score(0.75, "seconds")
    ('1.25e-05', '0.8')
    """
    size = abs(value)
    if name == "seconds":
        return f"{value:.1f}" if size < 10 else f"{value:,.0f}"
    if name in ERROR_METRICS and 0 < size < SMALL_ERROR:
        return f"{value:.3g}"
    return f"{value:.4f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:,.0f}"


def format_score_name(name: str) -> str:
    """The name of a score for people.

    >>> format_score_name("log_loss"), format_score_name("test auc")
    ('log loss', 'test AUC')
    """
    return " ".join(TITLES.get(word, word) for word in name.replace("_", " ").split())


def format_value(value: Any, name: str = "") -> str:
    """A value of any JSON type.

    >>> format_value(1200), format_value(0.5), format_value("a"), format_value(None)
    ('1,200', '0.5000', 'a', '')
    """
    if isinstance(value, bool | list | dict):
        return json.dumps(value)
    if isinstance(value, float):
        return format_score(value, name)
    return f"{value:,}" if isinstance(value, int) else str("" if value is None else value)


def format_count(count: float) -> str:
    """A large number with three significant digits.

    >>> format_count(940), format_count(12_345), format_count(67_100_000)
    ('940', '12.3K', '67.1M')
    """
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= size:
            scaled = count / size
            return f"{scaled:.3g}{suffix}" if scaled < 100 else f"{scaled:.0f}{suffix}"
    return f"{count:.0f}"


def is_scalar(value: Any) -> bool:
    """Whether a score is a number or a string, and not a table."""
    return isinstance(value, int | float | str)


def is_lower_better(name: str) -> bool:
    """Whether a lower value of this score is better.

    >>> is_lower_better("test_rmse"), is_lower_better("accuracy")
    (True, False)
    """
    return name.split("_")[-1] in ("loss", "perplexity", "rmse", "mae", "error", "ece", "seconds", "byte")


def escape_html(text: str) -> str:
    """Text escaped for HTML, without control characters."""
    return html.escape(escape_control(text), quote=True)


@dataclass(frozen=True)
class Cell:
    """A table cell with a style. The text is escaped; `bar` is the fraction of a bar behind it."""

    text: str
    style: str = ""
    bar: float | None = None
    title: str = ""

    def html(self, tag: str = "td") -> str:
        """The cell as HTML."""
        style = " ".join(filter(None, (self.style, "bar" if self.bar is not None else "")))
        share = "" if self.bar is None else f"--share:{100 * min(max(self.bar, 0), 1):.1f}%"
        attributes = (("class", style), ("style", share), ("title", self.title))
        shown = "".join(f' {name}="{escape_html(value)}"' for name, value in attributes if value)
        lines = "\n".join(map(escape_html, self.text.split("\n")))
        return f"<{tag}{shown}>{lines}</{tag}>"


Row = Sequence["Cell | str"]


def number_cell(value: Any, name: str = "", style: str = "") -> Cell:
    """A number, aligned right."""
    return Cell(format_value(value, name), f"num {style}".strip())


def table(rows: Iterable[Row], *, head: Row = (), style: str = "") -> str:
    """An HTML table that scrolls if it is wider than the page. All cells are escaped."""
    first = f"<thead><tr>{''.join(_cell(cell).html('th') for cell in head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(_cell(cell).html() for cell in row)}</tr>" for row in rows)
    tag = f'<table class="{style}">' if style else "<table>"
    return f'<div class="wide">{tag}{first}<tbody>{body}</tbody></table></div>'


def _cell(cell: "Cell | str") -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def facts(values: Mapping[str, Any]) -> str:
    """A table of names and values; nested names are joined."""
    return table([(Cell(name, "name"), text) for name, text in _flat_rows(values)], style="facts")


def _flat_rows(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat_rows(value, f"{prefix}{name} ")
        else:
            rows.append((f"{prefix}{name}", format_value(value)))
    return rows


def section(title: str, *parts: str, note: str = "") -> str:
    """A section with a title and an explanation; the parts are HTML. Empty without parts."""
    if not any(parts):
        return ""
    explanation = f'<p class="note">{escape_html(note)}</p>' if note else ""
    return f"<section><h2>{escape_html(title)}</h2>{explanation}{''.join(parts)}</section>"


def card(content: str, title: str = "", note: str = "") -> str:
    """HTML in a box, with a title and an explanation; empty without content."""
    heading = f"<h3>{escape_html(title)}</h3>" if title else ""
    explanation = f'<p class="note">{escape_html(note)}</p>' if note else ""
    return f'<div class="card">{heading}{explanation}{content}</div>' if content else ""


def grid(*parts: str, columns: int = 2) -> str:
    """Boxes next to each other, as many as fit."""
    shown = [part for part in parts if part]
    return f'<div class="grid of-{columns}">{"".join(shown)}</div>' if shown else ""


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
