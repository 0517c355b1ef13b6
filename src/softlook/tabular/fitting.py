"""The loop that a table's model learns in: rows lie on the device, and nothing waits for it but the end of an epoch.

It is not `softlook.train.fit`: a step on a table takes a few milliseconds, and threads, signals, checkpoints and a word
from the device at every step would cost as much again, and have no place inside a grid search.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import TrainingError
from softlook.tabular.defaults import Recipe, rows_a_step
from softlook.tabular.targets import Targets
from softlook.train.chance import chance

Epoch = dict[str, Any]
"""What is known after an epoch: its number, losses, seconds, and whether it was the best so far."""
Tell = Callable[[Epoch], None]
DICE = RLock()
"""torch has one set of dice for a whole process: who learns, holds them, so that threads do not mix up their chance."""
TOGETHER = 4096
"""Rows, times members, that are looked at together where nothing is learned."""
LEAST = 16
"""Rows are looked at in multiples of this; what is short is filled up with the last one."""


@dataclass(frozen=True)
class Rows:
    """A table on a device: numbers (N, J), categories (N, J), and where known what is wanted and weights (N,)."""

    numbers: Tensor
    categories: Tensor
    wanted: Tensor | None = None
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, which: Tensor | slice) -> "Rows":
        """Some of the rows."""
        return Rows(*(None if part is None else part[which] for part in self._parts()))  # pyright: ignore[reportArgumentType]

    def to(self, device: torch.device) -> "Rows":
        return Rows(*(None if part is None else part.to(device) for part in self._parts()))  # pyright: ignore[reportArgumentType]

    def _parts(self) -> tuple[Tensor | None, ...]:
        return self.numbers, self.categories, self.wanted, self.weight


@dataclass(frozen=True)
class Limits:
    """When to stop at the latest."""

    seconds: float | None = None
    began: float = 0.0

    def reached(self) -> bool:
        return self.seconds is not None and time.monotonic() - self.began >= self.seconds


def scores_of(model: nn.Module, rows: Rows) -> Tensor:
    """(N, E, K): every member's scores; a model without members is one."""
    scores = model(rows.numbers, rows.categories)
    return scores if scores.ndim == 3 else scores[:, None]


@torch.inference_mode()
def answers(model: nn.Module, rows: Rows, targets: Targets) -> Tensor:
    """(N, C) in double precision: what the members say together, a part of the rows at a time."""
    model.eval()
    few = max(1, TOGETHER // LEAST // getattr(model.config, "members", 1)) * LEAST
    parts = (_scores_of_some(model, rows.take(slice(at, at + few))) for at in range(0, len(rows), few))
    return torch.cat([targets.answer(part.cpu() if part.device.type == "mps" else part) for part in parts])


def _scores_of_some(model: nn.Module, rows: Rows) -> Tensor:
    """Scores that do not depend on how many rows are asked for: the last few would go through other kernels."""
    count = -(-len(rows) // LEAST) * LEAST
    if count == len(rows):
        return scores_of(model, rows)
    again = torch.arange(count, device=rows.numbers.device).clamp(max=len(rows) - 1)
    return scores_of(model, rows.take(again))[: len(rows)]


@contextmanager
def dice(seed: int, device: torch.device) -> Iterator[None]:
    """All of torch's chance by `seed` in here; outside, everything is as it was."""
    devices = [device] if device.type == "cuda" else []
    with DICE, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW that pulls at matrices only: not at tokens, norms, biases, single vectors, and what tells members apart."""
    tokens = (part for part in model.modules() if isinstance(part, nn.Embedding) or _is_token(part))
    free = {id(weights) for part in tokens for weights in part.parameters()}
    named = model.named_parameters()
    free |= {id(weights) for name, weights in named if weights.ndim < 2 or name in ("members", "bias")}
    learned = [weights for weights in model.parameters() if weights.requires_grad and weights.numel()]
    pulled = [weights for weights in learned if id(weights) not in free]
    others = [weights for weights in learned if id(weights) in free]
    groups = [{"params": pulled, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.lr, fused=learned[0].device.type in ("cuda", "cpu"))


def _is_token(part: nn.Module) -> bool:
    return type(part).__module__.startswith("softlook.embed.")


class Learner:
    """A model, what it learns from, and the best weights so far."""

    def __init__(
        self, model: nn.Module, train: Rows, held: Rows | None, *, targets: Targets, recipe: Recipe, seed: int
    ) -> None:
        self.model, self.held, self.targets, self.recipe, self.seed = model, held, targets, recipe, seed
        assert train.weight is not None
        self.train = replace(train, weight=train.weight / train.weight.mean())
        self.optimizer = make_optimizer(model, recipe)
        self.weights = [weights for group in self.optimizer.param_groups for weights in group["params"]]
        self.size = rows_a_step(recipe, len(train))
        self.steps, self.history = 0, list[Epoch]()
        self.best, self.mark, self.waited, self.kept = -math.inf, -math.inf, 0, dict[str, Tensor]()

    def learn(self, limits: Limits, tell: Tell) -> list[Epoch]:
        """Epochs until it is enough; the model is left with its best weights."""
        last = self._last_epoch()
        looked, number, ends = 0, 0, False
        while not ends:
            number += 1
            epoch: Epoch = {"epoch": number, "loss": self._epoch(number, limits)}
            ends = number == last or limits.reached()
            if self.held is not None and (ends or self.steps - looked >= self.recipe.look_every):
                looked = self.steps
                ends = self._look(epoch) or ends
            self.history.append(epoch | {"seconds": time.monotonic() - limits.began})
            tell(self.history[-1])
        if self.kept:
            self.model.load_state_dict(self.kept)
        self.model.eval()
        return self.history

    def _last_epoch(self) -> int | None:
        if self.recipe.epochs is not None or self.held is not None:
            return self.recipe.epochs
        return -(-self.recipe.blind // -(-len(self.train) // self.size))

    def _epoch(self, number: int, limits: Limits) -> float:
        """Once through the rows; gives the mean loss."""
        self.model.train()
        order = torch.randperm(len(self.train), generator=chance(self.seed, number)).to(self.train.numbers.device)
        total, seen = torch.zeros((), device=order.device), 0
        for which in order.split(self.size):
            total += self._step(self.train.take(which)) * len(which)
            seen += len(which)
            if limits.reached():
                break
        loss = total.item() / seen
        if not math.isfinite(loss):
            raise TrainingError(f"the loss became {loss} in epoch {number}. Try a smaller lr, or clip=1.0.")
        return loss

    def _step(self, rows: Rows) -> Tensor:
        assert rows.wanted is not None and rows.weight is not None
        self.optimizer.zero_grad(set_to_none=True)
        each = self.targets.loss(scores_of(self.model, rows), rows.wanted)
        loss = (each.mean(1) * rows.weight).mean()
        loss.backward()
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.weights, self.recipe.clip)
        self.optimizer.step()
        self.steps += 1
        return loss.detach()

    def _look(self, epoch: Epoch) -> bool:
        """Judge the held-out rows, keep the weights if they are the best; True where patience is at its end."""
        held = self.held
        assert held is not None and held.wanted is not None and held.weight is not None
        judged = self.targets.judged((found := answers(self.model, held, self.targets)), held.wanted.to(found.device))
        weight = held.weight.to(found.device, torch.double)
        share = weight / weight.sum()
        loss, score = ((each * share).sum().item() for each in judged)
        worth = -loss if self.recipe.watch == "loss" else score
        is_best = worth > self.best
        epoch |= {"held_out_loss": loss, "held_out_score": score, "is_best": is_best}
        self.waited += 1
        if worth > self.mark + self.recipe.gain:
            self.mark, self.waited = worth, 0
        if is_best:
            self.best = worth
            self.kept = {name: weights.clone() for name, weights in self.model.state_dict().items()}
        return self.waited >= self.recipe.patience
