"""`softlook tune`: hyperparameter search for tables."""

import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from softlook.cli.activity import activity
from softlook.cli.config_app import config_command
from softlook.cli.console import CommandResult, OutputStream
from softlook.cli.next_steps import next_steps
from softlook.cli.options import FLATTEN, ConfigOption, DataArgs, add_files, quote
from softlook.recipes.config.resolve import load_overrides
from softlook.recipes.config.tabular_schema import TuneConfig

if TYPE_CHECKING:
    from softlook.tabular.tuning import TrialResult

log = logging.getLogger("softlook.cli")
DEFAULTS = TuneConfig()
EXAMPLES = """
  softlook tune --data adult.csv --target income --trials 20 --max-minutes 10
  softlook tune --data adult.csv --target income --estimator ft --model.depth 3
  softlook train table --config runs/tune-adult/best.toml
"""
STATE_SUFFIXES = {"complete": "", "pruned": ", pruned", "failed": ", failed"}


def tune(
    *files: DataArgs,
    search: Annotated[TuneConfig, FLATTEN] = DEFAULTS,
    config: ConfigOption = None,
) -> CommandResult:
    """Search for the best hyperparameters for a table."""
    from softlook.recipes.tabular.tune import tune as run_search  # noqa: PLC0415  (imports torch)

    overrides = load_overrides(add_files(search, files), config=config, environ=os.environ)
    try:
        with activity("reading the table"):
            result = run_search(overrides, _trial_reporter(OutputStream(), overrides.get("trials")))
    except KeyboardInterrupt:
        log.info("All finished trials are saved. The same command continues with the others.")
        raise
    best = next((trial for trial in result.trials if trial.is_best), None)
    if best is not None:
        log.info(f"The best of {len(result.trials)} trials is {best.number + 1}: validation loss {best.loss:.4f}.")
    log.info(next_steps((f"softlook train table --config {quote(result.best)}", "train with the best settings")))
    details: dict[str, Any] = {"trials": len(result.trials), "params": result.params}
    return CommandResult(result.best, details)


app = config_command("tune", tune, help="Search for the best hyperparameters for a table.", help_prologue=EXAMPLES)


def _trial_reporter(output: OutputStream, num_trials: int) -> "Callable[[TrialResult], None]":
    def report(trial: "TrialResult") -> None:
        log.info(describe_trial(trial, num_trials))
        if output.json:
            output.write_object(asdict(trial))
            output.flush()

    return report


def describe_trial(trial: "TrialResult", num_trials: int) -> str:
    """The result and the settings of a trial."""
    parts = [] if trial.loss is None else [f"validation loss {trial.loss:.4f}"]
    if trial.score is not None and trial.score != -(trial.loss or 0.0):
        parts.append(f"accuracy {trial.score:.4f}")
    parts += [f"{trial.epochs} epochs", f"{trial.seconds:.1f} s"]
    suffix = STATE_SUFFIXES[trial.state] + f": {trial.error}" * bool(trial.error) + ", best so far" * trial.is_best
    settings = ", ".join(f"{name} {_format(value)}" for name, value in trial.params.items())
    return f"trial {trial.number + 1} of {num_trials}: {', '.join(parts)}{suffix}\n    {settings}"


def _format(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
