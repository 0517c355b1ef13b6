"""What to do next: the last lines of a command."""

from pathlib import Path

from softlook.cli.options import quote
from softlook.recipes.tasks import TASKS


def next_steps(*commands: tuple[str, str]) -> str:
    """What to do next: commands, or files, and what each is for.

    >>> print(next_steps(("softlook runs", "list runs"), ("softlook serve runs/a", "serve it")))
    Next:
      softlook runs          list runs
      softlook serve runs/a  serve it
    """
    width = max(len(command) for command, _ in commands)
    return "\n".join(("Next:", *(f"  {command:{width}}  {purpose}".rstrip() for command, purpose in commands)))


def run_commands(task: str, run_dir: Path, *, name: str = "the model") -> list[tuple[str, str]]:
    """Commands that use and evaluate the model of a run, and what each is for.

    >>> run_commands("classify", Path("runs/a"))[0]
    ('softlook classify runs/a "..."', 'use the model')
    """
    config, run = TASKS[task], quote(run_dir)
    rows = [(f"softlook {config.inference_command} {run} {config.example_input}", f"use {name}")]
    if task != "word2vec":  # word vectors have no score on other data
        rows.append((f"softlook eval {run} {'FOLDER' if task == 'images' else 'FILE'}", "evaluate it on other data"))
    return rows
