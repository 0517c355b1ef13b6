"""HTML report of a run: one file without scripts, for light and dark pages, narrow screens and print."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softlook.recipes.run_dir.report import sections
from softlook.recipes.run_dir.report.attention import attention
from softlook.recipes.run_dir.report.classification import classification
from softlook.recipes.run_dir.report.data import ReportData, Settings
from softlook.recipes.run_dir.report.formatting import escape_html
from softlook.recipes.run_dir.report.plots import standalone
from softlook.recipes.run_dir.report.style import STYLE

REPORT_FILE, PLOT_FILE = "report.html", "loss.svg"


def write_report(folder: Path, settings: Settings, scores: Mapping[str, Any], *, extra: str = "") -> None:
    """Write the loss plot and the report of a run so far; `extra` is an additional HTML section."""
    run = ReportData.read(folder, settings, scores)
    if figure := sections.loss_plot(run):
        (folder / PLOT_FILE).write_text(standalone(figure), encoding="utf-8")
    (folder / REPORT_FILE).write_text(render_report(run, extra), encoding="utf-8")


def render_report(run: ReportData, extra: str = "") -> str:
    """The report as HTML. All values are escaped."""
    parts = [
        sections.header(run),
        sections.tiles(run),
        sections.curves(run),
        sections.summary(run),
        sections.comparison(run),
        classification(run),
        extra,
        sections.samples(run),
        attention(run),
        sections.warnings(run),
        sections.settings(run),
        sections.environment(run),
    ]
    body = "\n".join(filter(None, parts))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape_html(run.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
