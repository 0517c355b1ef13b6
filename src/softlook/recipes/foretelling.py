"""What a run will be like, worked out from data and device: every value, the steps, the time and the memory."""

from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import nn

from softlook.base.memory import check_trainable
from softlook.data.examples import Example
from softlook.recipes.corpus import Corpus
from softlook.recipes.job import Job, Plan
from softlook.recipes.memory import Memory, held_by, memory_of
from softlook.recipes.packing import LARGE
from softlook.recipes.remembering import Before
from softlook.recipes.settings import Sizes
from softlook.recipes.sizing import most_read, room_of, timed
from softlook.recipes.told import Schema, Settled, Told, settle
from softlook.recipes.trial import tried
from softlook.tokens import TextTokenizer
from softlook.train.device import choose_device

GIVEN = ("tokens.kind", "tokens.vocab", "size.dim", "size.depth", "size.heads", "pooling")
"""Settings that weights to start from decide."""


@dataclass(frozen=True)
class Foretold(Generic[Schema]):
    """All that is known of a run before it begins."""

    settled: Settled[Schema]
    tokenizer: TextTokenizer
    plan: Plan
    said: list[str]
    """Why it is so, in sentences."""
    pace: float | None = None
    """Seconds for each step; None where a run goes on, and nothing had to be found out."""
    memory: Memory | None = None

    def facts(self) -> dict[str, Any]:
        """What was found out by trying, as plain values."""
        return {"seconds_per_step": self.pace, "memory": self.memory and self.memory.to_json()}


def foretell(
    job: Job[Schema, Example],
    asked: Told[Schema],
    corpus: Corpus[Example],
    *,
    part: Corpus[Example] | None = None,
    before: Before | None = None,
    tokenizer: TextTokenizer | None = None,
) -> Foretold[Schema]:
    """Settle every value. What was chosen `before` stays.

    With a `part` of the corpus the tokenizer and the batches are made from that alone: then it is an estimate, quick
    however large the corpus is.
    """
    device = choose_device(asked.get("training.device"))
    room = room_of(device, asked.get("training.minutes"), asked.get("training.precision"))
    kept = {} if before is None else before.values
    chosen = job.choose(corpus, asked, room)
    if asked.get("from"):  # its sizes and its words come with it
        chosen.values = {name: value for name, value in chosen.values.items() if name not in GIVEN}
    settled = settle(asked, chosen.values | kept)
    if not asked.get("from"):
        check_trainable(_least_parameters(getattr(settled.settings, "size", Sizes())), device)
    torch.manual_seed(settled.settings.training.seed)
    tokenizer = tokenizer or job.tokenizer(part or corpus, settled.settings)
    plan = job.plan(part or corpus, settled.settings, tokenizer, device)
    if before is not None and not before.again:
        return Foretold(settled, tokenizer, plan, chosen.said + plan.said)
    times = 1.0 if part is None else corpus.characters / max(part.characters, 1)
    trial = tried(plan.model, plan.batches, plan.objective, room, settled.settings.training.precision)
    reads = times * plan.reads if plan.reads else most_read(times * plan.tokens, room.device)
    more = timed(trial.pace, reads, plan.batch, room, asked.values)
    settled = settle(asked, chosen.values | more.values | kept)
    memory = memory_of(
        trial,
        round(times * held_by([plan.batches])) + held_by([plan.evaluate, plan.sample]),
        is_averaged=settled.settings.training.average > 0,
        is_on_disk=corpus.characters > LARGE,
    )
    said = [*chosen.said, *more.said, *plan.said, f"{weights_of(plan.model)}, and memory: {memory}."]
    return Foretold(settled, tokenizer, plan, said, trial.pace, memory)


def _least_parameters(size: Sizes) -> int:
    """Parameters that attention and feed-forward layers of these sizes have at least."""
    dim, hidden = size.dim or 1, size.hidden or size.dim or 1
    return (size.depth or 1) * (4 * dim * dim + 2 * dim * hidden)


def weights_of(model: nn.Module) -> str:
    """How much there is to learn."""
    count = sum(parameter.numel() for parameter in model.parameters())
    learn = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return f"{count:,} weights" if learn == count else f"LoRA: {learn:,} of {count:,} weights learn"
