"""What a run on a table will be like: its columns, sizes, time and memory, by a few steps on its own rows."""

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa
from torch import nn
from torch.optim import Optimizer

from softlook.recipes.foretelling import weights_of
from softlook.recipes.memory import Memory, held_by, memory_of
from softlook.recipes.remembering import place_of, remembered
from softlook.recipes.settings import Table
from softlook.recipes.sizing import spoken
from softlook.recipes.tables_data import Part, TableData
from softlook.recipes.tables_learning import introduced, sizes_of
from softlook.recipes.tables_settling import estimator_for, settled_for, with_found_sizes
from softlook.recipes.told import Settled, Told
from softlook.recipes.trial import STILL, Step, Trial, measured
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.learning.fitting import Epoch, Learner, Limits, seconds_to_answer
from softlook.tabular.learning.row_memory import seconds_to_remember
from softlook.tabular.learning.stepping import Stepping
from softlook.tabular.learning.stored_rows import StoredRows
from softlook.train.chance import chance
from softlook.train.folder import RunFolder


@dataclass(frozen=True)
class Duration:
    """Seconds, by what they go into; each was measured."""

    step: float
    look: float
    """At the held-out rows; 0 where there are none."""
    remembering: float
    """Rows, at the very end."""
    epoch: int
    """Steps of one."""
    epochs: int | None
    """At most; None where patience alone decides."""
    looks: int
    """For these epochs, or for one where patience decides."""
    limit: float | None

    @property
    def steps(self) -> int | None:
        """At most."""
        return None if self.epochs is None else self.epochs * self.epoch

    @property
    def seconds(self) -> float | None:
        """Of all, at most; None where nobody can know."""
        if self.steps is None:
            return self.limit
        found = self.steps * self.step + self.looks * self.look + self.remembering
        return found if self.limit is None else min(found, self.limit)

    def said(self) -> str:
        """The same for people."""
        if self.steps is None:
            looks = f", and looks of about {self.look:.2g} s" if self.look else ""
            limit = "" if self.limit is None else f", within {spoken(self.limit)}"
            return f"Steps of about {self.step:.2g} s, {self.epoch:,} an epoch{looks}; patience ends it{limit}."
        assert self.seconds is not None
        looks = f" and {self.looks:,} looks of about {self.look:.2g} s" if self.look else ""
        return f"{self.steps:,} steps of about {self.step:.2g} s{looks}: {spoken(self.seconds)}, or less."


@dataclass(frozen=True)
class Foreseen:
    """All that is known of a run before it begins."""

    settled: Settled[Table]
    said: list[str]
    """What was understood, and why it is so, in sentences."""
    columns: list[str]
    device: str
    rows: tuple[int, int]
    """To learn from, and held out."""
    size: dict[str, int]
    """Depth, width, heads and members."""
    weights: int
    batch: int
    """Rows."""
    duration: Duration
    memory: Memory

    def facts(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "columns": self.columns,
            "device": self.device,
            "rows": self.rows[0],
            "held_out": self.rows[1],
            "size": {**self.size, "weights": self.weights},
            "batch": self.batch,
            "steps": self.duration.steps,
            "seconds_per_step": self.duration.step,
            "seconds": self.duration.seconds,
            "memory": self.memory.to_json(),
        }


def rehearsed(asked: Told[Table], data: TableData) -> Foreseen:
    """Everything up to the first step, as a run does it, and a few steps with a copy of the model. Nothing is kept."""
    before = remembered(RunFolder(place_of("table", asked)), asked)
    settled = settled_for(asked, data, {} if before is None else before.values)
    estimator = estimator_for(settled.settings, data)
    rehearsal = Rehearsal(settled, data, estimator)
    estimator._fit(*data.train, None, data.valid, rehearsal)
    assert rehearsal.found is not None
    return rehearsal.found


class Rehearsal:
    """Stands in for whoever would have a learner learn."""

    def __init__(self, settled: Settled[Table], data: TableData, estimator: TableEstimator) -> None:
        self.settled, self.data, self.estimator = settled, data, estimator
        self.found: Foreseen | None = None

    def __call__(self, learner: Learner, limits: Limits) -> list[Epoch]:
        """What an estimator's `fit` asks for: here nothing is learned."""
        estimator, settings = self.estimator, self.settled.settings
        trial = tried(learner)
        memory, duration = memory_for(learner, trial, self.data), duration_of(learner, trial, limits)
        said = [*introduced(learner, estimator, settings.training), duration.said()]
        if not settings.no_baseline:
            said.append("Models to compare with come on top of that; --no-baseline leaves them out.")
        self.found = Foreseen(
            settled=with_found_sizes(self.settled, type(estimator), learner.recipe),
            said=[*said, f"{weights_of(learner.model)}, and memory: {memory}."],
            columns=estimator.reading_.told(),
            device=str(learner.total.device),
            rows=(len(learner.train), 0 if learner.held is None else len(learner.held)),
            size=sizes_of(learner),
            weights=sum(parameter.numel() for parameter in learner.model.parameters()),
            batch=learner.size,
            duration=duration,
            memory=memory,
        )
        return []


def tried(learner: Learner) -> Trial:
    """What a step on rows takes."""

    def stepping(twin: nn.Module) -> tuple[Optimizer, Step]:
        steps = Stepping(twin, learner.targets, learner.recipe)
        return steps.optimizer, lambda rows: steps.step(rows, STILL, learner.size).item()  # it waits for the device

    epochs = (learner.train.batches(learner.size, chance(learner.seed, number)) for number in count(1))
    return measured(learner.model, stepping, (rows for epoch in epochs for rows in epoch), learner.total.device)


def duration_of(learner: Learner, trial: Trial, limits: Limits) -> Duration:
    """From what a step and a row take to what all of them do."""
    epoch, last, held = learner.steps_an_epoch(), learner.last_epoch(), learner.held
    apart = max(1, -(-learner.recipe.look_every // epoch))
    look = remembering = 0.0
    if held is not None:
        look = len(held) * seconds_to_answer(learner.model, held, learner.targets)
        most = learner.recipe.memory or 0
        remembering = seconds_to_remember(learner.model, len(learner.train), held, learner.targets, most)
    looks = 0 if held is None else -(-(last or 1) // apart)
    return Duration(trial.pace, look, remembering, epoch, last, looks, limits.seconds)


def memory_for(learner: Learner, trial: Trial, data: TableData) -> Memory:
    """What a trial and the rows say: those of the model, and the table that they were read from."""
    train, held = learner.train, held_by([learner.held])
    raw = sum(_raw(part) for part in (data.train, data.valid, data.test) if part is not None)
    on_disk = isinstance(train, StoredRows)
    size = sum(train.counts) * train.record.itemsize if isinstance(train, StoredRows) else held_by([train])
    found = memory_of(trial, size, is_averaged=False, is_on_disk=on_disk)
    more = train.window if isinstance(train, StoredRows) else 0
    return replace(found, data=found.data + more + held + raw, best=0 if learner.held is None else trial.weights)


def _raw(part: Part) -> int:
    return part.X.nbytes if isinstance(part.X, pa.Table) else 0
