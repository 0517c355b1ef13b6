"""What to do next: the last lines of a command."""

from pathlib import Path
from typing import TYPE_CHECKING

from softlook.cli.options import quote

if TYPE_CHECKING:
    from softlook.recipes.config.schema import RunConfig  # imports pydantic


def next_steps(*commands: tuple[str, str]) -> str:
    """What to do next: commands, or files, and what each is for.

    >>> print(next_steps(("softlook runs", "list runs"), ("softlook serve runs/a", "serve it")))
    Next:
      softlook runs          list runs
      softlook serve runs/a  serve it
    """
    width = max(len(command) for command, _ in commands)
    return "\n".join(("Next:", *(f"  {command:{width}}  {purpose}".rstrip() for command, purpose in commands)))


def run_commands(config: "type[RunConfig]", run_dir: Path, *, name: str = "the model") -> list[tuple[str, str]]:
    """Commands that use and evaluate the model of a run of a task, and what each is for.

    >>> from softlook.recipes.config.schema import ClassificationConfig
    >>> run_commands(ClassificationConfig, Path("runs/a"))[0]
    ('softlook classify runs/a "..."', 'use the model')
    """
    run = quote(run_dir)
    rows = [(f"softlook {config.inference_command} {run} {config.example_input}", f"use {name}")]
    if config.task != "word2vec":  # word vectors have no score on other data
        data = "FOLDER" if config.task == "images" else "FILE"
        rows.append((f"softlook eval {run} {data}", "evaluate it on other data"))
    return rows
