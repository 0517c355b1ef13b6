"""A page about a run: one file, nothing fetched, nothing in it that can act."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from softlook.base.excerpt import escaped
from softlook.recipes.plot import loss_figure
from softlook.train.events import read_events
from softlook.train.folder import EVENTS, STORY
from softlook.weights.schema import read_json

REPORT, PLOT = "report.html", "loss.svg"
COMPARED = "compared"
"""The score that is a table: models, each with its own scores."""
LOOKS = 3
"""Looks of which the samples are shown."""
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1.2rem .15rem 0; vertical-align: top; }
td, code { overflow-wrap: anywhere; } td.number { font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; } .soft { opacity: .7; }
""".strip()


def write_report(folder: Path, settings: Sequence[tuple[str, str, str]], scores: Mapping[str, Any]) -> None:
    """Draw the plot and write the page, as far as the run has got."""
    events = read_events(folder / EVENTS)
    train = [(event["step"], event["loss"]) for event in events if event["event"] == "trained"]
    looks = [event for event in events if event["event"] == "evaluated"]
    held = [(event["step"], event["scores"].get("loss", float("nan"))) for event in looks]
    figure = loss_figure(train, held)
    if figure:
        (folder / PLOT).write_text(figure, encoding="utf-8")
    (folder / REPORT).write_text(page(folder, events, figure, settings, scores), encoding="utf-8")


def page(
    folder: Path,
    events: Sequence[Mapping[str, Any]],
    figure: str,
    settings: Sequence[tuple[str, str, str]],
    scores: Mapping[str, Any],
) -> str:
    """The page as HTML. Whatever came from outside is text in it, and nothing else."""
    story = read_json(folder / STORY)
    last = events[-1]["step"] if events else 0
    ended = next((event for event in reversed(events) if event["event"] in ("started", "finished")), {})
    state = ended.get("reason", "under way")
    sampled = [event for event in events if event["event"] == "sampled"][-LOOKS:]
    title = _safe(f"Run {folder.name}")
    parts = [
        f'<h1>{title}</h1>\n<p class="soft">Step {last:,}: {_safe(str(state))}.</p>',
        figure,
        "<h2>Scores</h2>" + _table(_rows({name: scores[name] for name in scores if name != COMPARED}))
        if scores
        else "",
        "<h2>Beside others</h2>" + _compared(scores[COMPARED]) if scores.get(COMPARED) else "",
        "<h2>What it says</h2>" + "".join(_said(event) for event in reversed(sampled)) if sampled else "",
        "<h2>Settings</h2>" + _table([("setting", "value", "from"), *settings], head=True),
        "<h2>How it began</h2>" + _table(_rows(story)),
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


def _said(event: Mapping[str, Any]) -> str:
    rows = [(name, text) for sample in event["samples"] for name, text in sample.items()]
    return f'<p class="soft">Step {event["step"]:,}</p>' + _table(rows)


def _compared(models: Sequence[Mapping[str, Any]]) -> str:
    names = list(models[0])
    return _table([names, *([_shown(one.get(name)) for name in names] for one in models)], head=True)


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _rows(values: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _rows(value, f"{before}{name} ")
        else:
            rows.append((f"{before}{name}", _shown(value)))
    return rows


def _table(rows: Iterable[Sequence[str]], *, head: bool = False) -> str:
    made = []
    for number, row in enumerate(rows):
        kind = "th" if head and number == 0 else "td"
        made.append("<tr>" + "".join(f"<{kind}>{_safe(cell)}</{kind}>" for cell in row) + "</tr>")
    return f"<table>{''.join(made)}</table>"


def _safe(text: str) -> str:
    return html.escape(escaped(text), quote=True)
