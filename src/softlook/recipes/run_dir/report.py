"""HTML report of a run, with its loss plot as SVG."""

import html
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from softlook.base.errors import escape_control
from softlook.lens.color import DARK, LIGHT
from softlook.lens.figure import FONT
from softlook.train.checkpoint.run_dir import EVENTS, METADATA
from softlook.train.events import read_events
from softlook.weights.schema import read_json

Settings = Sequence[tuple[str, str, str]]
"""Name, value and origin of each setting of a run."""
Event = Mapping[str, Any]
REPORT_FILE, PLOT_FILE = "report.html", "loss.svg"
COMPARED, ON, IMPORTANCES = "compared", "compared_on", "importances"
"""Scores that are not numbers: scores of other models, the rows they were computed on, and feature importances."""
TITLES = {"auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R2"}
ERROR_METRICS, SMALL_ERROR = ("rmse", "mae"), 0.001
"""Errors in units of the target, which are shown in significant digits if they are small."""
SHOWN_EVALUATIONS = 3
"""Evaluations whose samples are shown."""
STYLE = """
:root { color-scheme: light dark; --tint: #0066a12e; }
@media (prefers-color-scheme: dark) { :root { --tint: #6cb8ec4d; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1.2rem .15rem 0; vertical-align: top; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
.facts td:last-child { overflow-wrap: anywhere; white-space: normal; }
td span { white-space: normal; }
td.bar { min-width: 5rem; background: linear-gradient(to right, var(--tint) var(--share), #0000 0) 0 .2rem / 100% 1.4em
  no-repeat content-box; }
.wide { overflow-x: auto; } svg { max-width: 100%; min-width: 32rem; height: auto; } .soft { opacity: .7; }
""".strip()
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 320, 64, 44, 24, 44
MAX_POINTS = 400
"""Points of a line in the plot."""
Point = tuple[float, float]


def write_report(folder: Path, settings: Settings, scores: Mapping[str, Any], *, extra: str = "") -> None:
    """Write the loss plot and the report of a run so far; `extra` is an additional HTML section."""
    events = read_events(folder / EVENTS)
    train = [(event["step"], event["loss"]) for event in events if event["event"] == "step_logged"]
    evaluations = [event for event in events if event["event"] == "evaluated"]
    valid = [(event["step"], event["scores"].get("loss", float("nan"))) for event in evaluations]
    figure = loss_figure(train, valid)
    if figure:
        (folder / PLOT_FILE).write_text(figure, encoding="utf-8")
    report = render_report(folder, events, figure, settings, scores, extra)
    (folder / REPORT_FILE).write_text(report, encoding="utf-8")


def render_report(
    folder: Path, events: Sequence[Event], figure: str, settings: Settings, scores: Mapping[str, Any], extra: str
) -> str:
    """The report as HTML, in one file, without scripts. All values are escaped."""
    metadata = read_json(folder / METADATA)
    metadata |= {"command": shlex.join(metadata.get("command", []))}
    last = events[-1]["step"] if events else 0
    ended = next((event for event in reversed(events) if event["event"] in ("started", "finished")), {})
    state = ended.get("reason", "running")
    sampled = [event for event in events if event["event"] == "sampled"][-SHOWN_EVALUATIONS:]
    title = escape_html(f"Run {folder.name}")
    plain = {name: value for name, value in scores.items() if name not in (COMPARED, ON, IMPORTANCES)}
    parts = [
        f'<h1>{title}</h1>\n<p class="soft">Step {last:,}: {escape_html(str(state))}.</p>',
        figure and f'<div class="wide">{figure}</div>',
        "<h2>Scores</h2>" + _table([(format_score_name(name), value) for name, value in _rows(plain)]) if plain else "",
        _comparison(scores[COMPARED], scores.get(ON, "")) if scores.get(COMPARED) else "",
        extra,
        "<h2>Samples</h2>" + "".join(_samples(event) for event in reversed(sampled)) if sampled else "",
        "<h2>Settings</h2>" + _table([("setting", "value", "origin"), *settings], head=True),
        "<h2>Environment</h2>" + _table(_rows(metadata)),
    ]
    body = "\n".join(filter(None, parts))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _samples(event: Event) -> str:
    rows = [(name, text) for sample in event["samples"] for name, text in sample.items()]
    return f'<p class="soft">Step {event["step"]:,}</p>' + _table(rows)


def _comparison(models: Sequence[Mapping[str, Any]], on: str) -> str:
    names = list(models[0])
    head = [format_score_name(name) for name in names]
    rows = ([_cell(model.get(name), name) for name in names] for model in models)
    where = f'<p class="soft">On the {escape_html(on)}.</p>' if on else ""
    return f"<h2>Comparison</h2>{where}{_table([head, *rows], head=True)}"


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


def _cell(value: Any, name: str = "") -> str:
    if isinstance(value, float):
        return format_score(value, name)
    return value if isinstance(value, str) else json.dumps(value)


def _rows(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _rows(value, f"{prefix}{name} ")
        else:
            rows.append((f"{prefix}{name}", _cell(value)))
    return rows


def _table(rows: Iterable[Sequence[str]], *, head: bool = False) -> str:
    cells = []
    for number, row in enumerate(rows):
        tag = "th" if head and number == 0 else "td"
        cells.append("<tr>" + "".join(f"<{tag}>{escape_html(cell)}</{tag}>" for cell in row) + "</tr>")
    style = "" if head else ' class="facts"'
    return f'<div class="wide"><table{style}>{"".join(cells)}</table></div>'


def escape_html(text: str) -> str:
    """Text escaped for HTML, without control characters."""
    return html.escape(escape_control(text), quote=True)


def loss_figure(train: Sequence[Point], valid: Sequence[Point], *, title: str = "Loss") -> str:
    """SVG of the training loss and the validation loss by step.

    >>> svg = loss_figure([(1, 4.0), (100, 2.0)], [(100, 2.5)])
    >>> "step 100, validation: 2.500" in svg
    True
    """
    train, valid = ([(step, loss) for step, loss in points if math.isfinite(loss)] for points in (train, valid))
    points = [*train, *valid]
    if not points:
        return ""
    frame = _Frame(max(step for step, _ in points), *_limits(min(y for _, y in points), max(y for _, y in points)))
    dark = "".join(f".softlook .sl-{name}{{fill:{color}}}" for name, color in DARK.items())
    dark += "".join(f".softlook .sl-{name}-line{{stroke:{color}}}" for name, color in DARK.items())
    description = f"{title}: from {points[0][1]:.3f} to {train[-1][1] if train else valid[-1][1]:.3f}."
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}">',
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>",
        f"<style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
        f'<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>',
        _text(LEFT, 26, title, "ink", 'font-size="15" font-weight="600"'),
        _text(WIDTH - RIGHT, 26, "training", "query", 'font-size="12" text-anchor="end"'),
        _text(WIDTH - RIGHT - 80, 26, "validation", "key", 'font-size="12" text-anchor="end"'),
        *_axes(frame),
        _line(frame, downsample(train), "query"),
        _line(frame, valid, "key"),
        *(_dot(frame, step, loss) for step, loss in valid),
        "</svg>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


class _Frame:
    """Coordinates of the plot."""

    def __init__(self, steps: float, low: float, high: float) -> None:
        self.steps, self.low, self.high = max(steps, 1.0), low, high

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.steps

    def y(self, loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - loss) / (self.high - self.low)


def downsample(points: Sequence[Point]) -> list[Point]:
    """At most `MAX_POINTS` points, each the mean of a group.

    >>> downsample([(1, 2.0), (2, 4.0)])
    [(1, 2.0), (2, 4.0)]
    """
    size = -(-len(points) // MAX_POINTS)
    if size <= 1:
        return list(points)
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


def _limits(low: float, high: float) -> tuple[float, float]:
    """The limits of the y axis, with a margin."""
    margin = max(high - low, 0.1) * 0.05
    return max(low - margin, 0.0), high + margin


def _axes(frame: _Frame) -> list[str]:
    lines = []
    for tick in range(5):
        loss = frame.low + (frame.high - frame.low) * tick / 4
        y = frame.y(loss)
        lines.append(f'<path class="sl-edge-line" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{LIGHT["edge"]}"/>')
        lines.append(_text(LEFT - 8, y + 4, f"{loss:.3g}", "soft", 'font-size="12" text-anchor="end"'))
        step = frame.steps * tick / 4
        lines.append(_text(frame.x(step), HEIGHT - 20, f"{step:,.0f}", "soft", 'font-size="12" text-anchor="middle"'))
    return lines


def _line(frame: _Frame, points: Sequence[Point], color: str) -> str:
    if len(points) < 2:
        return ""
    path = "L".join(f"{frame.x(step):.1f} {frame.y(loss):.1f}" for step, loss in points)
    return f'<path class="sl-{color}-line" d="M{path}" fill="none" stroke="{LIGHT[color]}" stroke-width="1.5"/>'


def _dot(frame: _Frame, step: float, loss: float) -> str:
    title = f"<title>step {step:,.0f}, validation: {loss:.3f}</title>"
    center = f'cx="{frame.x(step):.1f}" cy="{frame.y(loss):.1f}"'
    return f'<circle class="sl-key" {center} r="3" fill="{LIGHT["key"]}">{title}</circle>'


def _text(x: float, y: float, text: str, color: str, attributes: str) -> str:
    return f'<text class="sl-{color}" x="{x:.1f}" y="{y:.1f}" fill="{LIGHT[color]}" {attributes}>{escape(text)}</text>'
