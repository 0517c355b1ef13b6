"""A step of learning: on a CPU as it is written, of large ones part by part; on a GPU as one captured graph.

A table's step is hundreds of kernels of a few microseconds each. One by one the host would be slower than the device.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from softlook.models.ft_transformer import FTTransformer
from softlook.tabular.defaults import Recipe
from softlook.tabular.encoding.rows import Rows
from softlook.tabular.encoding.targets import Targets
from softlook.train.half import half

Step = Callable[[Rows], Tensor]
Scored = Callable[[nn.Module, Rows], Tensor]
TOGETHER = 5 << 20
"""Values of tokens and maps that a CPU works through together while it learns: more would leave its caches, and all
that lies between two products would wait for memory."""
FEWEST = 128
"""Rows that it takes together at least."""
WARM_UP = 3
"""Steps before a capture, in which libraries allocate what they need; they leave no trace."""


def scores_of(model: nn.Module, rows: Rows) -> Tensor:
    """(N, E, K): every member's scores; a model without members is one."""
    scores = model(rows.numbers, rows.categories)
    return scores if scores.ndim == 3 else scores[:, None]


class Stepping:
    """Makes steps, and holds the optimizer that they are made with."""

    def __init__(self, model: nn.Module, targets: Targets, recipe: Recipe) -> None:
        self.model, self.targets, self.recipe = model, targets, recipe
        self.optimizer = make_optimizer(model, recipe)
        self.weights = [weights for group in self.optimizer.param_groups for weights in group["params"]]
        self.device = self.weights[0].device
        self.size, self.graph = 0, None

    def step(self, rows: Rows, rate: float, size: int) -> Tensor:
        """One step at a learning rate; gives the loss. `size` is how many rows a full step has."""
        set_rate(self.optimizer, rate)
        if self.device.type != "cuda" or len(rows) != size:
            return self._plain(rows)
        if self.graph is None or self.size != size:
            self.size, self.graph = size, self._captured(rows)
        return self.graph(rows)

    def _plain(self, rows: Rows, scored: Scored = scores_of) -> Tensor:
        self.optimizer.zero_grad(set_to_none=self.device.type != "cuda")  # a graph knows gradients by where they lie
        size = rows_together(self.model, rows) if self.device.type == "cpu" else len(rows)
        loss = torch.stack([self._learned(part, len(part) / len(rows), scored) for part in rows.split(size)]).sum()
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.weights, self.recipe.clip)
        self.optimizer.step()
        return loss

    def _learned(self, rows: Rows, share: float, scored: Scored) -> Tensor:
        """Gradients by some rows, which are such a share of a step; gives their part of its loss."""
        assert rows.wanted is not None and rows.weight is not None
        with half(self.device) if self.recipe.half else nullcontext():
            scores = scored(self.model, rows)
        each = self.targets.loss(scores.to(self.weights[0]), rows.wanted)
        loss = (each.mean(1) * rows.weight).mean() * share
        loss.backward()
        return loss.detach()

    def _captured(self, rows: Rows) -> Step:
        """Steps of so many rows as one graph. Weights, memory and dice are put back to where they were before."""
        place = Rows(*(None if part is None else part.clone() for part in rows.parts()))  # pyright: ignore[reportArgumentType]
        dice = torch.cuda.get_rng_state(self.device)
        before = {id(tensor): tensor.detach().clone() for tensor in self._changing()}
        scored = torch.compile(scores_of, dynamic=False) if self.recipe.compiled else scores_of
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._plain(place, scored)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self._plain(place, scored)
        with torch.no_grad():
            for tensor in self._changing():  # what was not there before begins at 0
                tensor.copy_(before[id(tensor)]) if id(tensor) in before else tensor.zero_()
        torch.cuda.set_rng_state(dice, self.device)

        def replayed(rows: Rows) -> Tensor:
            for own, part in zip(place.parts(), rows.parts(), strict=True):
                if own is not None and part is not None:
                    own.copy_(part)
            graph.replay()
            return loss

        return replayed

    def _changing(self) -> list[Tensor]:
        """Weights, and what the optimizer remembers of each."""
        kept = (value for state in self.optimizer.state.values() for value in state.values())
        return [*self.weights, *(value for value in kept if isinstance(value, Tensor))]


def rows_together(model: nn.Module, rows: Rows) -> int:
    """How many rows of a step a CPU works through together. A TableTransformer takes all of them: it was seen to be
    slower in parts."""
    if not isinstance(model, FTTransformer):
        return len(rows)
    tokens = 1 + rows.numbers.shape[1] + rows.categories.shape[1]
    return max(FEWEST, TOGETHER // (tokens * (model.config.dim + model.config.heads * tokens)))


def falling(peak: float, *, rise: float, gone: float) -> float:
    """A learning rate that rises to its peak, then falls along half a cosine; both are shares, and stop at 1.

    >>> [round(falling(1.0, rise=rise, gone=gone), 2) for rise, gone in ((0.5, 0), (1.0, 0), (2.0, 0.5), (9.0, 1))]
    [0.5, 1.0, 0.5, 0.0]
    """
    return peak * min(1.0, rise) * (1 + math.cos(math.pi * min(1.0, gone))) / 2


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of all weights. Where it lies on the device, it stays in its place: a graph looks there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


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
    device = learned[0].device
    if device.type == "cuda":  # in a graph the rate has to lie on the device
        rate = torch.tensor(recipe.lr, device=device)
        return torch.optim.AdamW(groups, lr=rate, fused=True, capturable=True)
    return torch.optim.AdamW(groups, lr=recipe.lr, fused=device.type == "cpu")


def _is_token(part: nn.Module) -> bool:
    return type(part).__module__.startswith("softlook.embed.")
