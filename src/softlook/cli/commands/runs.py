"""`softlook runs`: list runs."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.base.errors import escape_control
from softlook.cli.console import CommandResult

log = logging.getLogger("softlook.cli")


def runs(folder: Annotated[Path, Parameter(help="folder of run directories")] = Path("runs")) -> CommandResult:
    """List runs, newest first."""
    from softlook.recipes.run_dir.layout import list_runs  # noqa: PLC0415  (imports torch)

    summaries = list_runs(folder) if folder.is_dir() else []
    if not summaries:
        log.info(f"There are no runs in {folder}. See `softlook train --help`.")
    rows = [
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
    return CommandResult(folder, {"runs": listed}, "\n".join(_align(rows)))


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(escape_control(cell).ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
