"""What training would be like, for whoever asks before it begins: chosen and tried as a run does it, on a sample."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from softlook.data import Examples
from softlook.recipes.corpus import Corpus, read_corpus
from softlook.recipes.foretelling import Foretold, foretell
from softlook.recipes.memory import Memory
from softlook.recipes.running import job_of
from softlook.recipes.settings import TASKS, Files
from softlook.recipes.sizing import spoken
from softlook.recipes.told import gather
from softlook.train.device import choose_device, choose_precision


@dataclass(frozen=True)
class Estimate:
    """A run that has not begun, on text or on a table: what it would choose, and what it would take."""

    command: str
    facts: dict[str, Any]
    """All of it as plain values."""
    device: str
    size: str
    steps: str
    time: str
    memory: Memory

    def to_json(self) -> dict[str, Any]:
        return {"command": self.command, **self.facts, "memory": self.memory.to_json()}

    def lines(self) -> list[str]:
        """The same for people."""
        return [
            f"What `softlook train` would do here, on {self.device}:",
            f"  size    {self.size}",
            f"  steps   {self.steps}",
            f"  time    {self.time}",
            f"  memory  {self.memory}",
            f"  type    {self.command}",
        ]


@dataclass(frozen=True)
class Known:
    """What somebody who went through the data knows of them."""

    characters: int
    bad: int = 0
    """Rows that had to be left out."""
    sample: Examples[Any] | None = None
    """Some of the examples, where there are many."""
    sampled: int = 0
    """Their characters."""


def estimate(task: str, data: Files, known: Known, *, valid: Files = ()) -> Estimate:
    """What a run on these data would choose on this machine, and what it would take.

    >>> from pathlib import Path
    >>> _ = Path("corpus.txt").write_text("".join(f"{n} green bottles\\n" for n in range(99)))
    >>> estimate("lm", (Path("corpus.txt"),), Known(characters=1700)).command
    'softlook train lm --data corpus.txt'
    """
    told: dict[str, Any] = {"data": data}
    told |= {"valid": valid} if valid else {}
    told |= {"max_bad_rows": known.bad} if known.bad else {}
    asked = gather(TASKS[task](**told), environ=os.environ)
    job = job_of(task)
    if known.sample is None:
        found = foretell(job, asked, job.read(asked))
    else:
        part = sampled(known.sample)
        whole = replace(part, characters=round(part.characters * known.characters / max(known.sampled, 1)))
        found = foretell(job, asked, whole, part=part)
    return estimated(found, command_of(task, told))


def sampled(examples: Examples[Any]) -> Corpus[Any]:
    """A sample as a corpus of its own, of which a part is held out."""
    return read_corpus(lambda files: examples, examples.files, ())


def estimated(found: Foretold[Any], command: str) -> Estimate:
    """What is worth saying of what was foretold."""
    settings, plan, pace = found.settled.settings, found.plan, found.pace
    assert pace is not None and found.memory is not None
    device = choose_device(settings.training.device)
    precision = str(choose_precision(settings.training.precision, device)).removeprefix("torch.")
    size = {name: value for name, value in settings.size.model_dump(include={"dim", "depth", "heads"}).items() if value}
    weights = sum(parameter.numel() for parameter in plan.model.parameters())
    steps, minutes, known = settings.training.steps, settings.training.minutes, found.tokenizer.vocab
    seconds = min(steps * pace, 60 * minutes if minutes else float("inf"))
    words = {"depth": "blocks", "dim": "wide", "heads": "heads"}
    sized = ", ".join(f"{size[name]} {word}" for name, word in words.items() if name in size)
    return Estimate(
        command,
        {
            "device": str(device),
            "precision": precision,
            "size": {**size, "weights": weights},
            "tokens": {"kind": settings.tokens.kind, "known": known},
            "batch": plan.batch,
            "steps": steps,
            "seconds_per_step": pace,
            "seconds": seconds,
        },
        device=f"{device} in {precision}",
        size=f"{sized}: {weights:,} weights, for {known:,} tokens ({settings.tokens.kind})",
        steps=f"{steps:,} of {plan.batch:,} tokens, about {pace:.2g} s each",
        time=f"about {spoken(seconds)}, and looks at held-out data",
        memory=found.memory,
    )


def command_of(task: str, told: Mapping[str, Any]) -> str:
    """What to type.

    >>> from pathlib import Path
    >>> command_of("lm", {"data": (Path("my text.txt"),), "max_bad_rows": 3})
    "softlook train lm --data 'my text.txt' --max-bad-rows 3"
    """
    words = ["softlook", "train", task]
    for name, value in told.items():
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,))]
    return shlex.join(words)
