"""Estimate of a training run before it starts, for `softlook check`."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from softlook.base.device import choose_device
from softlook.data import Examples
from softlook.recipes.config.autosize import format_duration
from softlook.recipes.config.resolve import load_overrides
from softlook.recipes.config.schema import Files
from softlook.recipes.profiling.step_benchmark import MemoryEstimate
from softlook.recipes.tasks import TASKS, text_task
from softlook.recipes.text.corpus import read_corpus
from softlook.recipes.text.prepare import PreparedRun, prepare_run
from softlook.train.mixed_precision import choose_dtype


@dataclass(frozen=True)
class Estimate:
    """Size, steps, time and memory of a run on text or on a table."""

    command: str
    facts: dict[str, Any]
    """Everything as JSON types."""
    device: str
    size: str
    steps: str
    time: str
    memory: MemoryEstimate
    notes: tuple[str, ...] = ()
    """What the run would do with these data, such as truncating long texts."""

    def to_json(self) -> dict[str, Any]:
        return {"command": self.command, **self.facts, "memory": self.memory.to_json(), "notes": list(self.notes)}

    def lines(self) -> list[str]:
        """The same for people."""
        names = ("size", "steps", "time", "memory", "command")
        lines = (f"  {name:8} {getattr(self, name)}" for name in names)
        return [f"Estimate of `softlook train` on {self.device}:", *lines, *(f"  {note}" for note in self.notes)]


@dataclass(frozen=True)
class CorpusStats:
    """Statistics of data that has been read."""

    characters: int
    bad_rows: int = 0
    sample: Examples[Any] | None = None
    """Some of the examples, if there are many."""
    sample_characters: int = 0


def estimate(task: str, data: Files, stats: CorpusStats, *, valid: Files = ()) -> Estimate:
    """Estimate a run with automatic settings on this machine.

    >>> from pathlib import Path
    >>> _ = Path("corpus.txt").write_text("".join(f"{n} green bottles\\n" for n in range(99)))
    >>> estimate("lm", (Path("corpus.txt"),), CorpusStats(characters=1700)).command
    'softlook train lm --data corpus.txt'
    """
    values: dict[str, Any] = {"data": data}
    values |= {"valid": valid} if valid else {}
    values |= {"max_bad_rows": stats.bad_rows} if stats.bad_rows else {}
    overrides, implementation = load_overrides(TASKS[task](**values), environ=os.environ), text_task(task)
    if stats.sample is None:
        run = prepare_run(implementation, overrides, implementation.load_corpus(overrides))
    else:
        examples = stats.sample
        sample = read_corpus(lambda files: examples, examples.files, ())
        characters = round(sample.characters * stats.characters / max(stats.sample_characters, 1))
        run = prepare_run(implementation, overrides, replace(sample, characters=characters), sample=sample)
    return _describe(run, train_command(task, values))


def _describe(run: PreparedRun, command: str) -> Estimate:
    config, plan, seconds_per_step = run.resolved.config, run.plan, run.seconds_per_step
    assert seconds_per_step is not None and run.memory is not None
    device = choose_device(config.training.device)
    precision = str(choose_dtype(config.training.precision, device)).removeprefix("torch.")
    size = {name: value for name, value in config.model.model_dump(include={"dim", "depth", "heads"}).items() if value}
    parameters = sum(parameter.numel() for parameter in plan.model.parameters())
    limit, vocab_size = config.training.time_limit, run.tokenizer.vocab_size
    by_clock = None if limit is None else max(int(0.9 * limit / seconds_per_step), 1)
    steps = min(count for count in (config.training.max_steps, by_clock) if count is not None)
    seconds = min(steps * seconds_per_step, limit or float("inf"))
    units = {"depth": "blocks", "dim": "dimensions", "heads": "heads"}
    shape = ", ".join(f"{size[name]} {unit}" for name, unit in units.items() if name in size)
    return Estimate(
        command,
        {
            "device": str(device),
            "precision": precision,
            "model": {**size, "parameters": parameters},
            "tokenizer": {"type": config.tokenizer.type, "vocab_size": vocab_size},
            "batch_tokens": plan.batch_tokens,
            "steps": steps,
            "seconds_per_step": seconds_per_step,
            "seconds": seconds,
        },
        device=f"{device} in {precision}",
        size=f"{shape}: {parameters:,} parameters, vocabulary of {vocab_size:,} tokens ({config.tokenizer.type})",
        steps=f"{steps:,} of {plan.batch_tokens:,} tokens, about {seconds_per_step:.2g} s each",
        time=f"about {format_duration(seconds)}, plus evaluations"
        if limit is None
        else f"{format_duration(limit)} in all",
        memory=run.memory,
        notes=tuple(plan.messages),
    )


def train_command(task: str, values: Mapping[str, Any]) -> str:
    """The command line of a run.

    >>> from pathlib import Path
    >>> train_command("lm", {"data": (Path("my text.txt"),), "max_bad_rows": 3})
    "softlook train lm --data 'my text.txt' --max-bad-rows 3"
    """
    words = ["softlook", "train", task]
    for name, value in values.items():
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,))]
    return shlex.join(words)
