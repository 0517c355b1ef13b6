"""Learning from rows without labels, before any label is seen."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, TrainingError
from softlook.tabular.defaults import FEW_ROWS, OPEN, Recipe
from softlook.tabular.encoding.kinds import Said
from softlook.tabular.encoding.reading import Reading
from softlook.tabular.encoding.rows import Rows
from softlook.tabular.learning.fitting import Epoch, Limits, Tell
from softlook.tabular.learning.making import make_model
from softlook.tabular.learning.settling import Sizes, rows_a_step, with_sizes
from softlook.tabular.learning.splitting import held_out
from softlook.tabular.learning.stepping import falling, make_optimizer, set_rate
from softlook.tabular.unlabelled.internals import is_answering
from softlook.tabular.unlabelled.pretext_tasks import PUZZLES, Drawn, Task, draw
from softlook.tabular.unlabelled.probing import Scale
from softlook.train.chance import chance

EPOCHS, LEAST_STEPS, MOST_STEPS = 20, 500, 20_000
"""Times through the rows where it is not told how many; and bounds on the steps that they come to."""
PATIENCE = 5
HELD, MOST_HELD = 0.1, 10_000
"""Share of the rows that are held out, and how many at most."""
SIZES = Sizes(dim=64, depth=2, members=8, bins=96, attention_dropout=0.2, hidden_dropout=0.1)
"""Of a model whose recipe leaves them open: all members look at the same tokens until the last block."""
WARM_UP = 50
LARGE = 1024
"""Rows that are judged together."""
SHAPE = (
    "model",
    "scaling",
    "choices",
    "heads",
    "hidden",
    "number_tokens",
    "sigma",
    "normed",
    "narrowest",
)
"""What, beside what is open, a recipe may not change once there are weights: they would fit no more."""


@dataclass(frozen=True, eq=False)
class Pretrained:
    """What was learned from rows without labels."""

    task: Task
    recipe: Recipe
    said: Said
    """What was told about columns."""
    reading: Reading
    weights: dict[str, Tensor]
    """All but those that answer."""
    scale: Scale
    """Where what few labels are learned from lies."""
    history: list[Epoch]

    def model(self, recipe: Recipe, outputs: int) -> nn.Module:
        """A model that begins with these weights; what turns states into scores is new."""
        model = make_model(recipe, self.reading, None, outputs)
        model.load_state_dict(self.weights, strict=False)
        return model

    def fitting(self, recipe: Recipe) -> Recipe:
        """The recipe in the sizes of these weights, after it was seen that it asks for no others."""
        own = self.recipe
        for name in (*SHAPE, *(name for name in OPEN if getattr(recipe, name))):
            _check_same(name, getattr(own, name), getattr(recipe, name))
        return replace(with_sizes(recipe, own), shared=own.shared, beside=True, memory=None)

    def check_said(self, kinds: Mapping[Any, Any] | None, ordinal: Mapping[Any, Any] | None) -> None:
        """That the same is told about columns: they were read already, and weights hang on how."""
        now = Said.of(self.reading.columns.names, kinds, ordinal)
        _check_same("ordinal", self.said.orders, now.orders)
        _check_same("kinds", self.said.kinds, now.kinds)


def _check_same(name: str, then: Any, now: Any) -> None:
    if then != now:
        raise ConfigError(
            f"{name} was {then!r:.200} in pretrain, and is {now!r:.200} now. "
            "Leave it as it was, or call pretrain again."
        )


def sizes_for(recipe: Recipe) -> Recipe:
    """The recipe with the sizes that it leaves open. Members part late, so that they cost next to nothing."""
    if not recipe.members:
        recipe = replace(recipe, shared=None)
    return replace(with_sizes(recipe, SIZES), beside=True)


@dataclass(frozen=True)
class Wish:
    """How to learn from rows without labels."""

    task: Task
    share: float
    epochs: int | None

    def __post_init__(self) -> None:
        if self.task not in PUZZLES:
            raise ConfigError(f"task is 'rtd', replaced cells, or 'mlm', hidden ones; {self.task!r} came")
        if not (isinstance(self.share, int | float) and 0 < self.share < 1):
            raise ConfigError(f"share is the share of cells that are touched, between 0 and 1; {self.share!r} came")
        if self.epochs is not None and not (isinstance(self.epochs, int) and self.epochs > 0):
            raise ConfigError(f"epochs is a whole number from 1 up; {self.epochs!r} came")


def pretrained(
    rows: Rows, reading: Reading, recipe: Recipe, wish: Wish, *, said: Said, seed: int, limits: Limits, tell: Tell
) -> Pretrained:
    """Learn from rows that lie on the device to learn on."""
    model = make_model(recipe, reading, rows.numbers.cpu(), 1).to(rows.numbers.device)
    if recipe.model == "TabTransformer" and not reading.sizes:
        raise ConfigError(
            "a TabTransformer looks at categories alone, and this table has none: there is nothing that it could learn "
            "without labels. An FTTransformer looks at numbers too."
        )
    solving = Solving(model, rows, wish=wish, recipe=recipe, seed=seed)
    history = solving.learn(limits, tell)
    kept = {
        name: weights.cpu().clone() for name, weights in model.state_dict().items() if not is_answering(model, name)
    }
    scale = Scale.of(model, rows).to(torch.device("cpu"))
    return Pretrained(wish.task, recipe, said, reading, kept, scale, history)


class Solving:
    """A model, rows without labels, and a puzzle that they set anew in every epoch."""

    def __init__(self, model: nn.Module, rows: Rows, *, wish: Wish, recipe: Recipe, seed: int) -> None:
        self.model, self.wish, self.recipe, self.seed = model, wish, recipe, seed
        held = torch.from_numpy(_held(len(rows), seed)).to(rows.numbers.device)
        self.train, self.held = rows.take(~held), rows.take(held)
        self.judged_by = draw(self.held, wish.share, chance(seed, 0)) if len(self.held) else None
        self.puzzle: Any = PUZZLES[wish.task](model, self.train).float().to(rows.numbers.device)
        self.optimizer = make_optimizer(model, recipe)
        self.optimizer.add_param_group({"params": list(self.puzzle.parameters()), "weight_decay": 0.0})
        self.size = rows_a_step(recipe, len(self.train))
        self.steps, self.best, self.waited = 0, math.inf, 0
        self.kept: dict[str, Tensor] = {}

    def learn(self, limits: Limits, tell: Tell) -> list[Epoch]:
        """Epochs until it is enough; the model is left with its best weights."""
        last, history, ends = self._last_epoch(), list[Epoch](), False
        while not ends:
            number = len(history) + 1
            epoch: Epoch = {"epoch": number, "loss": self._epoch(number, last, limits)}
            ends = number == last or limits.reached()
            if self.judged_by is not None:
                ends = self._look(epoch) or ends
            history.append(epoch | {"seconds": time.monotonic() - limits.began})
            tell(history[-1])
        if self.kept:
            self.model.load_state_dict(self.kept)
        self.model.eval()
        return history

    def _last_epoch(self) -> int:
        steps = self._steps_an_epoch()
        return self.wish.epochs or max(min(EPOCHS, MOST_STEPS // steps), -(-LEAST_STEPS // steps), 1)

    def _steps_an_epoch(self) -> int:
        return -(-len(self.train) // self.size)

    def _epoch(self, number: int, last: int, limits: Limits) -> float:
        self.model.train()
        dice = chance(self.seed, number)
        drawn = draw(self.train, self.wish.share, dice)
        order = torch.randperm(len(self.train), generator=dice).to(self.train.numbers.device)
        total, seen = torch.zeros((), device=order.device), 0
        for which in order.split(self.size):
            total += self._step(self.train.take(which), drawn.take(which), self._rate(last, limits)) * len(which)
            seen += len(which)
            if limits.reached():
                break
        loss = total.item() / seen
        if not math.isfinite(loss):
            raise TrainingError(f"the loss became {loss} in epoch {number} of pretrain. Try a smaller lr.")
        return loss

    def _rate(self, last: int, limits: Limits) -> float:
        """It rises for a few steps, and falls to nothing with the steps, or the time, that are left."""
        gone = max(self.steps / (last * self._steps_an_epoch()), limits.share())
        return falling(self.recipe.lr, rise=(self.steps + 1) / WARM_UP, gone=gone)

    def _step(self, rows: Rows, drawn: Drawn, rate: float) -> Tensor:
        set_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.puzzle.loss(self.model, rows, drawn)
        loss.backward()
        learned = (weights for group in self.optimizer.param_groups for weights in group["params"])
        nn.utils.clip_grad_norm_(learned, self.recipe.clip or 1.0)
        self.optimizer.step()
        self.steps += 1
        return loss.detach()

    @torch.no_grad()
    def _look(self, epoch: Epoch) -> bool:
        """Judge the held-out rows, keep the weights if they are the best; True where patience is at its end."""
        assert self.judged_by is not None
        self.model.eval()
        total = 0.0
        for at in range(0, len(self.held), LARGE):
            some = slice(at, at + LARGE)
            rows = self.held.take(some)
            total += self.puzzle.loss(self.model, rows, self.judged_by.take(some)).item() * len(rows)
        loss = total / len(self.held)
        is_best = loss < self.best
        epoch |= {"held_out_loss": loss, "is_best": is_best}
        self.waited = 0 if is_best else self.waited + 1
        if is_best:
            self.best = loss
            self.kept = {name: weights.clone() for name, weights in self.model.state_dict().items()}
        return self.waited >= PATIENCE


def _held(rows: int, seed: int) -> np.ndarray:
    if rows < FEW_ROWS:
        return np.zeros(rows, dtype=bool)
    return held_out(rows, min(HELD, MOST_HELD / rows), seed=seed)
