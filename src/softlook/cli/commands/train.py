"""`softlook train`: train a model, one subcommand per task."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from softlook.cli.config_app import config_command
from softlook.cli.console import CommandResult, ConsoleHandler, Terminated, active_console, active_handler
from softlook.cli.next_steps import next_steps, run_commands
from softlook.cli.options import FLATTEN, ConfigOption, DataArgs, add_files, quote
from softlook.recipes.config.resolve import ConfigOverrides, load_overrides
from softlook.recipes.config.schema import RunConfig
from softlook.recipes.tasks import TASKS

log = logging.getLogger("softlook.cli")
EXAMPLES = """
  softlook train translate --data pairs.tsv        two columns, or two files
  softlook train lm --data corpus.txt              one document per file
  softlook train mlm --data corpus.txt --next-sentence
  softlook train classify --data reviews.csv --text review --label stars
  softlook train tag --data train.conll             token and tag on each line
  softlook train word2vec --data corpus.txt
  softlook train table --data adult.csv --target income
  softlook train images --data photos               a folder for each class
"""
EPILOGUE = """
Every setting can also be given in a file (--config run.toml) or in the
environment (SOFTLOOK_OPTIM__LR=3e-4). Flags take precedence over the
environment, and the environment over the file. The same command resumes a
stopped run; --fresh starts a new run next to it.
"""


@dataclass(frozen=True)
class TrainOptions:
    """Options besides the config."""

    config_file: Annotated[ConfigOption, Parameter(name="--config")] = None
    dry_run: Annotated[bool, Parameter(help="print every setting and the estimated cost, and do not train")] = False


@dataclass(frozen=True)
class DistributedOptions(TrainOptions):
    """Options of tasks that support data-parallel training."""

    devices: Annotated[int, Parameter(help="number of processes on this machine, each on its own device (DDP)")] = 1


@dataclass(frozen=True)
class TrainOutcome:
    """Result of a run, in plain values."""

    run_dir: Path
    step: int
    complete: bool
    signal: str | None
    scores: dict[str, Any]


def _command(task: str, config_class: type[RunConfig], options_class: type[TrainOptions]) -> Callable[..., Any]:
    default_config, default_options = config_class(), options_class()

    def command(
        *files: DataArgs,
        config: Annotated[config_class, FLATTEN] = default_config,  # pyright: ignore[reportInvalidTypeForm]
        options: Annotated[options_class, FLATTEN] = default_options,  # pyright: ignore[reportInvalidTypeForm]
    ) -> CommandResult:
        return train(task, config, files, options)

    return command


app = App(name="train", help="Train a model.", help_prologue=EXAMPLES, help_epilogue=EPILOGUE)
for _task, _config in TASKS.items():
    _options = TrainOptions if _task in ("table", "images") else DistributedOptions
    _example = "\n".join(line for line in EXAMPLES.splitlines() if f" train {_task} " in line)
    _texts = {"help": _config.__doc__, "help_prologue": f"\n{_example}\n"}
    app.command(config_command(_task, _command(_task, _config, _options), **_texts))


def train(task: str, config: RunConfig, files: tuple[Path, ...], options: TrainOptions) -> CommandResult:
    """Train a task's model, or print what would be done."""
    overrides = load_overrides(add_files(config, files), config=options.config_file, environ=os.environ)
    if options.dry_run:
        return print_dry_run(task, overrides)
    devices = options.devices if isinstance(options, DistributedOptions) else 1
    outcome = train_single(task, overrides) if devices == 1 else train_distributed(task, overrides, devices)
    if not outcome.complete:
        log.info(f"Everything up to step {outcome.step:,} is saved. The same command resumes from there.")
        raise KeyboardInterrupt if outcome.signal in (None, "SIGINT") else Terminated
    if task != "table":  # tables print theirs, compared with those of other models
        log.info("\n".join(_score_lines(outcome.scores)))
    log.info(_next_steps(task, outcome.run_dir, overrides.values))
    return CommandResult(outcome.run_dir, {"steps": outcome.step, "scores": outcome.scores})


def train_single(task: str, overrides: ConfigOverrides[Any]) -> TrainOutcome:
    """Train in this process."""
    from softlook.cli.progress import progress  # noqa: PLC0415  (imports torch)
    from softlook.recipes.tasks import train as train_task  # noqa: PLC0415

    handler = active_handler()
    started_at = None if handler is None else handler.started_at
    with progress(TASKS[task].unit) as reporter:
        result = train_task(task, overrides, [reporter], progress=False, started_at=started_at)
    finished = result.finished
    return TrainOutcome(result.run_dir, finished.step, finished.complete, finished.signal, result.scores)


def train_distributed(task: str, overrides: ConfigOverrides[Any], devices: int) -> TrainOutcome:
    """Train in several processes on this machine; rank zero reports."""
    from softlook.recipes.run_dir.layout import run_dir_path  # noqa: PLC0415  (imports torch)
    from softlook.train.distributed.world import launch  # noqa: PLC0415

    values = {**overrides.values, "run_dir": run_dir_path(task, overrides), "fresh": False}
    shared = ConfigOverrides(overrides.schema, values, overrides.origins)
    return launch(_train_rank, devices, task, shared, active_console() is None)


def _train_rank(task: str, overrides: ConfigOverrides[Any], is_quiet: bool) -> TrainOutcome:
    from softlook.train.distributed import is_rank_zero  # noqa: PLC0415  (imports torch)

    with ConsoleHandler(quiet=is_quiet or not is_rank_zero()).installed():
        return train_single(task, overrides)


def print_dry_run(task: str, overrides: ConfigOverrides[Any]) -> CommandResult:
    """Every setting with its origin, and the results of a few trial steps."""
    from softlook.recipes.tasks import dry_run  # noqa: PLC0415  (imports torch)

    plan = dry_run(task, overrides)
    resolved = plan.resolved
    rows = [f"{name:24} {value:20} {origin}" for name, value, origin in resolved.rows()]
    details = {"settings": resolved.values(), "origins": resolved.origins, **plan.measurements()}
    return CommandResult(Path(), details, "\n".join(rows))


def _score_lines(scores: Mapping[str, Any]) -> list[str]:
    """Scores on validation and test data, for people."""
    from softlook.recipes.run_dir.report import format_score, format_score_name  # noqa: PLC0415  (imports torch)

    groups = {"validation": {**scores, **scores.get("validation", {})}, "test": scores.get("test", {})}
    lines: list[str] = []
    for group, values in groups.items():
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        cells = [
            f"{format_score_name(name)} {format_score(value, name) if isinstance(value, float) else f'{value:,}'}"
            for name, value in numbers.items()
        ]
        lines += [f"{group.capitalize()} scores: {', '.join(cells)}"] if cells else []
    return lines


def _next_steps(task: str, run_dir: Path, values: Mapping[str, Any]) -> str:
    """Commands that use the trained model."""
    name = quote(run_dir)
    rows = [*run_commands(TASKS[task], run_dir), (str(run_dir / "report.html"), "report of the run, for a browser")]
    has_counts = task != "tag" and not values.get("no_ngrams") and not values.get("init_from")
    has_architecture = values.get("arch") in (None, "gpt", "llama") and not values.get("memory")
    if task in ("mlm", "lm", "tag") and has_architecture and not has_counts:
        rows.append((f"softlook export hf {name}", "export it to Hugging Face"))
    return next_steps(*rows)
