"""`softlook eval`: evaluate a run on other data."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.cli.console import CommandResult
from softlook.cli.options import DeviceOption


def evaluate(
    run: Annotated[Path, Parameter(help="run directory")],
    *,
    data: Annotated[tuple[Path, ...], Parameter(help="test files or folders")],
    device: DeviceOption = "auto",
) -> CommandResult:
    """Evaluate a run on other data."""
    from softlook.recipes.run_dir.report import format_score, format_score_name  # noqa: PLC0415  (imports torch)
    from softlook.recipes.text.run import evaluate as evaluate_run  # noqa: PLC0415

    scores = evaluate_run(run, data, device=device)
    lines = [
        f"{format_score_name(name):22} {format_score(value, name) if isinstance(value, float) else value}"
        for name, value in scores.items()
    ]
    return CommandResult(run, {"scores": scores}, "\n".join(lines))
