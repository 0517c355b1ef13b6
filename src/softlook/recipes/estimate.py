"""What training would be like, for whoever asks before it begins: chosen and tried as a run does it, on a sample."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
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
    """A run that has not begun."""

    command: str
    device: str
    precision: str
    size: dict[str, int]
    """Width, depth and heads, where there are any, and weights in all."""
    tokens: dict[str, Any]
    """The kind of tokenizer, and how many tokens it knows."""
    batch: int
    """Tokens."""
    steps: int
    seconds_per_step: float
    seconds: float
    """Of all steps; looks at held-out data and checkpoints come on top."""
    memory: Memory

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "memory": self.memory.to_json()}

    def lines(self) -> list[str]:
        """The same for people."""
        words = {"depth": "blocks", "dim": "wide", "heads": "heads"}
        size = ", ".join(f"{self.size[name]} {word}" for name, word in words.items() if name in self.size)
        tokens = f"{self.tokens['known']:,} tokens ({self.tokens['kind']})"
        return [
            f"What `softlook train` would do here, on {self.device} in {self.precision}:",
            f"  size    {size}: {self.size['weights']:,} weights, for {tokens}",
            f"  steps   {self.steps:,} of {self.batch:,} tokens, about {self.seconds_per_step:.2g} s each",
            f"  time    about {spoken(self.seconds)}, and looks at held-out data",
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
    settings, plan = found.settled.settings, found.plan
    assert found.pace is not None and found.memory is not None
    device = choose_device(settings.training.device)
    size = {name: value for name, value in settings.size.model_dump(include={"dim", "depth", "heads"}).items() if value}
    steps, minutes = settings.training.steps, settings.training.minutes
    return Estimate(
        command=command,
        device=str(device),
        precision=str(choose_precision(settings.training.precision, device)).removeprefix("torch."),
        size={**size, "weights": sum(parameter.numel() for parameter in plan.model.parameters())},
        tokens={"kind": settings.tokens.kind, "known": found.tokenizer.vocab},
        batch=plan.batch,
        steps=steps,
        seconds_per_step=found.pace,
        seconds=min(steps * found.pace, 60 * minutes if minutes else float("inf")),
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
