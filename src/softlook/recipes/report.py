"""A page about a run: one file, nothing fetched, nothing in it that can act."""

import html
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from softlook.base.excerpt import escaped
from softlook.recipes.plot import loss_figure
from softlook.train.events import read_events
from softlook.train.folder import EVENTS, STORY
from softlook.weights.schema import read_json

REPORT, PLOT = "report.html", "loss.svg"
COMPARED, ON, IMPORTANCES = "compared", "compared_on", "importances"
"""Scores that are no numbers: models, each with its own scores; on which rows that was; and what columns matter."""
TITLES = {"auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R2"}
AMOUNTS, SMALL = ("rmse", "mae"), 0.001
"""Scores as large as what is predicted, which are told by their first digits where that itself is so small."""
LOOKS = 3
"""Looks of which the samples are shown."""
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


def write_report(
    folder: Path, settings: Sequence[tuple[str, str, str]], scores: Mapping[str, Any], *, own: str = ""
) -> None:
    """Draw the plot and write the page, as far as the run has got; `own` is HTML that only runs of its kind have."""
    events = read_events(folder / EVENTS)
    train = [(event["step"], event["loss"]) for event in events if event["event"] == "trained"]
    looks = [event for event in events if event["event"] == "evaluated"]
    held = [(event["step"], event["scores"].get("loss", float("nan"))) for event in looks]
    figure = loss_figure(train, held)
    if figure:
        (folder / PLOT).write_text(figure, encoding="utf-8")
    (folder / REPORT).write_text(page(folder, events, figure, settings, scores, own=own), encoding="utf-8")


def page(
    folder: Path,
    events: Sequence[Mapping[str, Any]],
    figure: str,
    settings: Sequence[tuple[str, str, str]],
    scores: Mapping[str, Any],
    *,
    own: str = "",
) -> str:
    """The page as HTML. Whatever came from outside is text in it, and nothing else."""
    story = read_json(folder / STORY)
    story |= {"command": shlex.join(story.get("command", []))}
    last = events[-1]["step"] if events else 0
    ended = next((event for event in reversed(events) if event["event"] in ("started", "finished")), {})
    state = ended.get("reason", "under way")
    sampled = [event for event in events if event["event"] == "sampled"][-LOOKS:]
    title = safe(f"Run {folder.name}")
    plain = {name: value for name, value in scores.items() if name not in (COMPARED, ON, IMPORTANCES)}
    parts = [
        f'<h1>{title}</h1>\n<p class="soft">Step {last:,}: {safe(str(state))}.</p>',
        figure and f'<div class="wide">{figure}</div>',
        "<h2>Scores</h2>" + _table([(score_name(name), said) for name, said in _rows(plain)]) if plain else "",
        _compared(scores[COMPARED], scores.get(ON, "")) if scores.get(COMPARED) else "",
        own,
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


def _compared(models: Sequence[Mapping[str, Any]], on: str) -> str:
    names = list(models[0])
    head = [score_name(name) for name in names]
    rows = ([_cell(one.get(name), name) for name in names] for one in models)
    where = f'<p class="soft">On the {safe(on)}.</p>' if on else ""
    return f"<h2>Beside others</h2>{where}{_table([head, *rows], head=True)}"


def shown(value: float, name: str = "") -> str:
    """A score with as many digits as say something.

    >>> shown(0.75), shown(61.234), shown(93491.05), shown(0.0000125, "rmse"), shown(0.75, "seconds")
    ('0.7500', '61.23', '93,491', '1.25e-05', '0.8')
    """
    size = abs(value)
    if name == "seconds":
        return f"{value:.1f}" if size < 10 else f"{value:,.0f}"
    if name in AMOUNTS and 0 < size < SMALL:
        return f"{value:.3g}"
    return f"{value:.4f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:,.0f}"


def score_name(name: str) -> str:
    """The name of a score as people write it.

    >>> score_name("log_loss"), score_name("test auc")
    ('log loss', 'test AUC')
    """
    return " ".join(TITLES.get(word, word) for word in name.replace("_", " ").split())


def _cell(value: Any, name: str = "") -> str:
    return shown(value, name) if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _rows(values: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _rows(value, f"{before}{name} ")
        else:
            rows.append((f"{before}{name}", _cell(value)))
    return rows


def _table(rows: Iterable[Sequence[str]], *, head: bool = False) -> str:
    made = []
    for number, row in enumerate(rows):
        kind = "th" if head and number == 0 else "td"
        made.append("<tr>" + "".join(f"<{kind}>{safe(cell)}</{kind}>" for cell in row) + "</tr>")
    kind = "" if head else ' class="facts"'
    return f'<div class="wide"><table{kind}>{"".join(made)}</table></div>'


def safe(text: str) -> str:
    """Text that is text in HTML, and acts in no way."""
    return html.escape(escaped(text), quote=True)
