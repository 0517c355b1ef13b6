"""A memory of rows: beside what a model says, a soft look at rows that it has learned from.

Each remembered row is a key, the state that the model answers from, and a value, what was wanted of it. A new row's
state is the query: values are averaged by a softmax of how near their keys are, which is the kernel regression of
Nadaraya and Watson that attention began with. How wide to look, and how much to make of it, held-out rows decide.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from softlook.tabular.encoding.rows import Rows, Supply, some_rows
from softlook.tabular.encoding.targets import Targets
from softlook.tabular.learning.timing import quickest
from softlook.train.chance import chance

NEAREST = 128
"""Rows that are looked at: those further away would weigh nothing."""
FEW_JUDGES, MOST_JUDGES = 2_000, 20_000
"""With fewer held-out rows nothing is remembered: they could not tell how much to make of it. More are not needed."""
WIDTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Of the look, as shares of how far apart neighbours are."""
SHARES = tuple(number / 10 for number in range(11))
"""Of the answer that the look may make up."""
WORTH = 0.01
"""Share of the loss that remembering has to save: rows kept with a model, and looked at for every answer, cost too."""
TOGETHER = 512
"""Rows whose distances are in memory at a time."""


@dataclass(frozen=True, eq=False)
class Memory:
    """Rows as a model sees them, and what was wanted of them. Keys are rounded to half precision, here and on disk."""

    keys: Tensor
    """(M, C) states."""
    values: Tensor
    """(M, K) what was wanted, as an answer would say it."""
    weight: Tensor
    """(M,) what each row weighs."""
    width: float
    """Squared distance that takes a row's weight down to 1/e."""
    share: float
    """Of the answer that comes from here; the rest is the model's."""

    def joined(self, said: Tensor, states: Tensor) -> Tensor:
        """(N, K): the model's answers, and what the rows of memory say to it."""
        found = self.near(states).mean(self.width)
        return said + self.share * (found.to(said) - said)

    def near(self, states: Tensor) -> "Near":
        """The nearest rows of memory to each state."""
        keys = self.keys.to(states)
        middle = keys.mean(0)  # from here numbers are small, and their differences exact
        keys, length = keys - middle, (keys - middle).square().sum(1)
        found = [_nearest(part - middle, keys, length) for part in states.split(TOGETHER)]
        distance, place = (torch.cat(parts) for parts in zip(*found, strict=True))
        weight, values = self.weight.to(states)[place], self.values.to(states.device)[place]
        return Near(distance, weight, values.double())

    def to(self, device: torch.device) -> "Memory":
        return Memory(self.keys.to(device), self.values.to(device), self.weight.to(device), self.width, self.share)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """All of it, as JSON and tensors."""
        tensors = {"keys": self.keys.cpu(), "values": self.values.cpu(), "weight": self.weight.cpu()}
        return {"width": self.width, "share": self.share}, tensors


@dataclass(frozen=True, eq=False)
class Near:
    """For each of N rows the nearest of a memory: squared distances (N, M), weights (N, M) and values (N, M, K)."""

    distance: Tensor
    weight: Tensor
    values: Tensor

    def mean(self, width: float) -> Tensor:
        """(N, K): their values' mean, the nearer the more."""
        look = (self.weight.double().log() - self.distance.double() / width).softmax(1)
        return (look[:, None] @ self.values)[:, 0]


@torch.no_grad()
def remember(model: nn.Module, train: Supply, held: Rows, *, targets: Targets, most: int, seed: int) -> Memory | None:
    """At most so many of the rows that were learned from, if held-out rows are answered well enough with them."""
    if len(held) < FEW_JUDGES:
        return None
    rows, held = some_rows(train, most, chance(seed, 0)), held.take(slice(MOST_JUDGES))
    assert rows.wanted is not None and rows.weight is not None
    keys = states_of(model, rows).half()
    memory = Memory(keys, targets.as_answer(rows.wanted), rows.weight, width=1.0, share=0.0)
    return _tried(model, memory, held, targets)


@torch.no_grad()
def seconds_to_remember(model: nn.Module, train: int, held: Rows, targets: Targets, most: int) -> float:
    """How long `remember` would take, by a few of the rows that judge. Of them as many keys are made as it has."""
    if len(held) < FEW_JUDGES or not most:
        return 0.0
    some, keys = held.take(slice(TOGETHER)), min(train, most)
    assert some.wanted is not None and some.weight is not None
    again = torch.arange(keys, device=some.numbers.device) % len(some)
    values = targets.as_answer(some.wanted)[again]
    memory = Memory(states_of(model, some).half()[again], values, some.weight[again], width=1.0, share=0.0)
    look = quickest(lambda: states_of(model, some).sum().item())
    judge = quickest(lambda: _tried(model, memory, some, targets), tries=1)  # it is long enough to be warm
    return (look * keys + judge * min(len(held), MOST_JUDGES)) / len(some)


def _tried(model: Any, memory: Memory, held: Rows, targets: Targets) -> Memory | None:
    states = states_of(model, held)
    said = torch.cat([targets.answer(model.read(part)) for part in _members(model, held)])
    return _judged(memory, said, states, held, targets)


def _judged(memory: Memory, said: Tensor, states: Tensor, held: Rows, targets: Targets) -> Memory | None:
    """The width and the share that held-out rows like best; None where none is worth it."""
    assert held.wanted is not None and held.weight is not None
    wanted, weight = held.wanted, held.weight.double() / held.weight.double().sum()

    def loss(answer: Tensor) -> float:
        return (targets.judged(answer, wanted)[0] * weight).sum().item()

    near = memory.near(states)
    typical = near.distance[:, : min(10, near.distance.shape[1])].sqrt().mean().square().item()
    best = (loss(said) * (1 - WORTH), 1.0, 0.0)
    for width in WIDTHS:
        found = near.mean(max(width * typical, 1e-12))
        best = min(best, *((loss(said + share * (found - said)), width * typical, share) for share in SHARES[1:]))
    if not best[2]:
        return None
    return Memory(memory.keys, memory.values, memory.weight, max(best[1], 1e-12), best[2])


@torch.no_grad()
def states_of(model: nn.Module, rows: Rows) -> Tensor:
    """(N, C): the mean of what members answer from."""
    return torch.cat([part.mean(1) for part in _members(model, rows)])


@torch.no_grad()
def _members(model: Any, rows: Rows) -> list[Tensor]:
    model.eval()
    parts = rows.split(rows.at_once(model))
    return [model.states(part.numbers, part.categories) for part in parts]


def _nearest(states: Tensor, keys: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances to the nearest keys, and which those are."""
    distance = torch.addmm(length, states, keys.T, alpha=-2) + states.square().sum(1, keepdim=True)
    nearest = distance.clamp(min=0).topk(min(NEAREST, len(keys)), largest=False)
    return nearest.values, nearest.indices
