"""Averages of weights: over time while a model learns, and over checkpoints afterwards. They answer better than one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.train.sharding import own
from softlook.weights.files import SINGLE
from softlook.weights.hollow import compare, own_tensors
from softlook.weights.manifest import verify
from softlook.weights.parts import read_parts


class Average:
    """The weights, averaged with a memory that fades: `decay` of the old, the rest new. It warms up: early weights go.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = Average(model, decay=0.5)
    >>> _ = nn.init.constant_(model.weight, 4.0)
    >>> for step in range(1, 200):
    ...     average.update(step)
    >>> average.tensors["weight"]
    tensor([[4.]])
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.own = decay, learned(model)
        self.tensors = {name: tensor.detach().clone() for name, tensor in self.own.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take one step's weights in."""
        decay = min(self.decay, (1 + step) / (10 + step))
        old, new = ([own(tensor) for tensor in tensors.values()] for tensors in (self.tensors, self.own))
        torch._foreach_lerp_(old, new, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model answers with averaged weights inside, and learns on with its own afterwards."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, tensor in self.own.items():
            kept = tensor.clone()
            tensor.copy_(self.tensors[name])
            self.tensors[name].copy_(kept)


def learned(model: nn.Module) -> dict[str, Tensor]:
    """The weights that change while a model learns, each once, by the names a checkpoint gives them."""
    return {name: tensor for name, tensor in own_tensors(model).items() if tensor.requires_grad}


def mean_of(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The weights of several checkpoints, averaged; what is no such number is the first one's.

    >>> mean_of([])
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: an average wants at least one checkpoint; none came
    """
    if not checkpoints:
        raise WeightsError("an average wants at least one checkpoint; none came")
    first = _checked(checkpoints[0])
    total = {name: tensor.to(torch.float64, copy=True) for name, tensor in first.items() if tensor.is_floating_point()}
    for path in checkpoints[1:]:
        other = _checked(path)
        compare(first, other, path)
        for name, tensor in total.items():
            tensor += other[name]
    return {
        name: (total[name] / len(checkpoints)).to(tensor.dtype) if name in total else tensor
        for name, tensor in first.items()
    }


def _checked(path: Path) -> dict[str, Tensor]:
    return {name: stored.whole() for name, stored in read_parts(path, SINGLE, verify(path)).items()}
