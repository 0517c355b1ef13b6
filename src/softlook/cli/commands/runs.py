"""`softlook runs`: list runs."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from softlook.base.errors import escape_control
from softlook.cli.console import CommandResult
from softlook.cli.next_steps import next_steps, run_commands
from softlook.recipes.tasks import TASKS

if TYPE_CHECKING:
    from softlook.recipes.run_dir.layout import RunSummary

HEADER = ("run", "task", "step", "best validation", "state")
log = logging.getLogger("softlook.cli")


def runs(folder: Annotated[Path, Parameter(help="folder of run directories")] = Path("runs")) -> CommandResult:
    """List runs, newest first."""
    from softlook.recipes.run_dir.layout import list_runs  # noqa: PLC0415  (imports torch)

    summaries = list_runs(folder) if folder.is_dir() else []
    if not summaries:
        log.info(f"There are no runs in {folder}. `softlook train` starts one.")
    rows = [HEADER] * bool(summaries) + [
        (
            str(run.path),
            run.task,
            f"{run.step:,} of {run.steps:,}" if run.steps else f"{run.step:,}",
            "" if run.best is None else f"{run.best:.4f}",
            run.state,
        )
        for run in summaries
    ]
    listed = [{**asdict(run), "path": str(run.path)} for run in summaries]
    return CommandResult(folder, {"runs": listed}, "\n".join(_align(rows)), _hint(summaries))


def _hint(summaries: list["RunSummary"]) -> str:
    """Commands for the newest run that has a model."""
    newest = next((run for run in summaries if run.task in TASKS), None)
    if newest is None:
        return ""
    return next_steps(*run_commands(TASKS[newest.task], newest.path, name="the newest model"))


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(escape_control(cell).ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
