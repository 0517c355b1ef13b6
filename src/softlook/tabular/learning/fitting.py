"""The loop that a table's model learns in: rows lie on the device, and nothing waits for it but the end of an epoch.

It is not `softlook.train.fit`: a step on a table takes a few milliseconds, and threads, signals, checkpoints and a word
from the device at every step would cost as much again, and have no place inside a grid search.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from softlook.base.errors import TrainingError
from softlook.tabular.defaults import MANY_JUDGES, Recipe
from softlook.tabular.encoding.rows import LEAST, Rows, Supply
from softlook.tabular.encoding.targets import Targets
from softlook.tabular.learning.row_memory import Memory, remember, seconds_to_remember
from softlook.tabular.learning.settling import enough_epochs, rows_a_step
from softlook.tabular.learning.stepping import Stepping, falling, scores_of
from softlook.tabular.learning.timing import quickest
from softlook.train.chance import chance

Epoch = dict[str, Any]
"""What is known after an epoch: its number, losses, seconds, and whether it was the best so far."""
Tell = Callable[[Epoch], None]
DICE = RLock()
"""torch has one set of dice for a whole process: who learns, holds them, so that threads do not mix up their chance."""
LOOKING = 0.5
"""Of the time, the most that is kept for what comes after the last step."""


@dataclass(frozen=True)
class Limits:
    """When to stop at the latest."""

    seconds: float | None = None
    began: float = 0.0

    def share(self) -> float:
        """Of the time, how much has gone by."""
        return 0.0 if self.seconds is None else (time.monotonic() - self.began) / self.seconds

    def reached(self, spare: float = 0.0) -> bool:
        """Is it time, where so many seconds are still needed for something else?"""
        return self.seconds is not None and self.share() + spare / self.seconds >= 1

    def room(self) -> float:
        """Seconds that may be kept for what comes after the last step: never more than are left."""
        return math.inf if self.seconds is None else self.seconds * max(0.0, min(LOOKING, 1 - self.share()))


@torch.inference_mode()
def answers(model: nn.Module, rows: Rows, targets: Targets, memory: Memory | None = None) -> Tensor:
    """(N, C) in double precision: what members and memory say together, a part of the rows at a time."""
    model.eval()
    parts = rows.split(rows.at_once(model))
    return torch.cat([_answers_to_some(model, part, targets, memory)[: len(part)] for part in parts])


def _answers_to_some(model: Any, rows: Rows, targets: Targets, memory: Memory | None) -> Tensor:
    """Answers that do not depend on how many rows are asked for: the last few would go through other kernels."""
    count = -(-len(rows) // LEAST) * LEAST
    if count != len(rows):
        rows = rows.take(torch.arange(count, device=rows.numbers.device).clamp(max=len(rows) - 1))
    if memory is None:
        scores = scores_of(model, rows)
        return targets.answer(scores.cpu() if scores.device.type == "mps" else scores)
    states = model.states(rows.numbers, rows.categories)
    scores, own = model.read(states), states.mean(1)
    if own.device.type == "mps":  # which has no double precision
        scores, own = scores.cpu(), own.cpu()
    return memory.joined(targets.answer(scores), own)


def seconds_to_answer(model: nn.Module, rows: Rows, targets: Targets) -> float:
    """How long a model takes to answer a row, by a few of them."""
    some = rows.take(slice(rows.at_once(model)))
    return quickest(lambda: answers(model, some, targets).sum().item()) / len(some)  # a number waits for the device


@contextmanager
def dice(seed: int, device: torch.device) -> Iterator[None]:
    """All of torch's chance by `seed` in here; outside, everything is as it was."""
    devices = [device] if device.type == "cuda" else []
    with DICE, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def seed_from(random_state: Any) -> int:
    """A seed by what scikit-learn calls a random state: None for chance, a number, or dice that roll on.

    >>> seed_from(0) == seed_from(0)
    True
    """
    return int(check_random_state(random_state).randint(2**31 - 1))


def _nothing() -> None:
    pass


class Learner:
    """A model, what it learns from, and the best weights so far."""

    def __init__(
        self, model: nn.Module, train: Supply, held: Rows | None, *, targets: Targets, recipe: Recipe, seed: int
    ) -> None:
        self.model, self.held, self.targets, self.recipe, self.seed = model, held, targets, recipe, seed
        self.train = train.evened()
        self.stepping = Stepping(model, targets, recipe)
        self.optimizer, self.weights = self.stepping.optimizer, self.stepping.weights
        self.size = rows_a_step(recipe, len(train))
        self.steps, self.looked, self.history = 0, 0, list[Epoch]()
        self.best, self.mark, self.waited, self.kept = -math.inf, -math.inf, 0, dict[str, Tensor]()
        self.seen, self.total = 0, torch.zeros((), device=self.weights[0].device)
        self.memory: Memory | None = None
        self.ended, self.spare, self.enough = False, 0.0, 0.0
        """Whether it is over, seconds to keep for what comes after the last step, and a limit that was reached."""
        self.judges, self.remembers, self.remembering = 0 if held is None else len(held), True, 0.0
        """How many held-out rows judge, whether rows are to be remembered, and how many seconds that takes."""
        self.between: Callable[[], None] = _nothing
        """Called after every step, when all is at rest: who keeps a run looks at the clock, or leaves by a fault."""

    def learn(self, limits: Limits, tell: Tell) -> list[Epoch]:
        """Epochs until it is enough; the model is left with its best weights."""
        last = self.last_epoch()
        done = bool(self.history) and not self.seen  # it may go on with what `softlook.tabular.checkpoints` put back
        self.save_time(limits)
        is_late = self._is_late(limits)
        self.ended = done and (len(self.history) == last or self.waited >= self.recipe.patience or is_late)
        self.memory = self._remembered() if self.ended else None
        while not self.ended:
            number = len(self.history) + 1
            epoch: Epoch = {"epoch": number, "loss": self._epoch(number, limits)}
            self.ended = number == last or self._is_late(limits)
            if self.held is not None and (self.ended or self.steps - self.looked >= self.recipe.look_every):
                self.looked = self.steps
                self.ended = self.look(epoch) or self.ended or self._is_late(limits)
            self.history.append(epoch | {"seconds": time.monotonic() - limits.began})
            if self.ended:
                self.memory = self._remembered()
            tell(self.history[-1])
        if self.kept:
            self.model.load_state_dict(self.kept)
        self.model.eval()
        return self.history

    def save_time(self, limits: Limits) -> None:
        """Under a limit, see what comes after the last step, and keep time for it from the first step on.

        Where it would take too much of the time, nothing is remembered, and fewer of the held-out rows judge.
        """
        if self.held is None or limits.seconds is None:
            return
        each, most = seconds_to_answer(self.model, self.held, self.targets), self.recipe.memory or 0
        is_first = self.best == -math.inf  # later looks compare with the first one: they have the same judges
        if is_first and each * self.judges > limits.room():
            self.judges = max(min(LEAST, self.judges), int(limits.room() / each))
            self.remembers = False
        if self.remembers:
            self.remembering = seconds_to_remember(self.model, len(self.train), self.held, self.targets, most)
        if is_first and each * self.judges + self.remembering > limits.room():
            self.remembers, self.remembering = False, 0.0
        self.spare = each * self.judges + self.remembering

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """By group and name, all that changes in place; the optimizer's memory and the best weights are kept apart."""
        return {"model": self.model.state_dict()}

    def answer(self) -> dict[str, Tensor]:
        """The weights to answer with: the best so far, or as they are where nobody has looked."""
        return self.kept or self.model.state_dict()

    def last_epoch(self) -> int | None:
        """The number of the last epoch, where it is known before."""
        if self.recipe.epochs is not None:
            return self.recipe.epochs
        if self.held is None:
            return -(-self.recipe.blind // self.steps_an_epoch())
        return enough_epochs(self.recipe, self.steps_an_epoch())

    def steps_an_epoch(self) -> int:
        """How often weights change in an epoch."""
        return -(-len(self.train) // self.size)

    def _rate(self, limits: Limits) -> float:
        """The learning rate: it rises for a few steps, then falls to nothing with the steps, or the time, left."""
        last = self.last_epoch()
        if self.recipe.schedule == "constant" or last is None:
            return self.recipe.lr
        steps = last * self.steps_an_epoch()
        rise = (self.steps + 1) / (self.recipe.warmup * steps + 1)
        return falling(self.recipe.lr, rise=rise, gone=max(self.steps / steps, limits.share()))

    def _epoch(self, number: int, limits: Limits) -> float:
        """Once through the rows, from where it stands; gives the mean loss."""
        self.model.train()
        for rows in self.train.batches(self.size, chance(self.seed, number), self.seen):
            self.total += self.stepping.step(rows, self._rate(limits), self.size) * len(rows)
            self.steps += 1
            self.seen += len(rows)
            if self.seen < len(self.train):
                self.between()
            if self._is_late(limits):
                break
        loss = self.total.item() / self.seen
        self.seen, self.total = 0, torch.zeros_like(self.total)
        if not math.isfinite(loss):
            raise TrainingError(f"the loss became {loss} in epoch {number}. Try a smaller lr, or clip=1.0.")
        return loss

    def _is_late(self, limits: Limits) -> bool:
        """Is there no time for a step more? What was over under a limit stays so, however quick the last look was."""
        if limits.seconds is None:
            return False
        if limits.reached(self.spare):
            self.enough = limits.seconds
        return limits.seconds <= self.enough

    def _remembered(self) -> Memory | None:
        """Rows to look at beside the model, as the best weights see them."""
        if self.held is None or not self.recipe.memory or not self.remembers:
            return None
        best = copy.deepcopy(self.model)
        best.load_state_dict(self.answer())
        return remember(best, self.train, self.held, targets=self.targets, most=self.recipe.memory, seed=self.seed)

    def _judged_by(self) -> Rows:
        """The held-out rows that there is time for; by chance, where it is not all of them."""
        assert self.held is not None
        if self.judges >= len(self.held):
            return self.held
        order = torch.randperm(len(self.held), generator=chance(self.seed, 0))
        return self.held.take(order[: self.judges].to(self.held.numbers.device))

    def watches_score(self) -> bool:
        """Whether the best weights are those with the highest score, or those with the lowest loss."""
        watch = self.recipe.watch
        return watch == "score" or (watch == "either" and self.held is not None and len(self.held) >= MANY_JUDGES)

    def look(self, epoch: Epoch) -> bool:
        """Judge the held-out rows, keep the weights if they are the best; True where patience is at its end."""
        held, began = self._judged_by(), time.monotonic()
        assert held.wanted is not None and held.weight is not None
        judged = self.targets.judged((found := answers(self.model, held, self.targets)), held.wanted.to(found.device))
        weight = held.weight.to(found.device, torch.double)
        share = weight / weight.sum()
        loss, score = ((each * share).sum().item() for each in judged)
        worth = score if self.watches_score() else -loss
        is_best = worth > self.best
        epoch |= {"held_out_loss": loss, "held_out_score": score, "is_best": is_best}
        self.waited += 1
        if worth > self.mark + self.recipe.gain:
            self.mark, self.waited = worth, 0
        if is_best:
            self.best = worth
            self.kept = {name: weights.clone() for name, weights in self.model.state_dict().items()}
        self.spare = time.monotonic() - began + self.remembering
        return self.waited >= self.recipe.patience
