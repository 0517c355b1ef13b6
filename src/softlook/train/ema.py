"""EMA of the weights; averages of checkpoints."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.train.distributed.fsdp import local_tensor
from softlook.weights.manifest import verify_manifest
from softlook.weights.meta import check_tensors_match, unique_tensors
from softlook.weights.tensor_files import SINGLE_FILE, read_shards


class EMA:
    """Exponential moving average of the trainable weights, with a decay that warms up.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> ema = EMA(model, decay=0.5)
    >>> _ = nn.init.constant_(model.weight, 4.0)
    >>> for step in range(1, 200):
    ...     ema.update(step)
    >>> ema.shadow["weight"]
    tensor([[4.]])
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.weights = decay, trainable_tensors(model)
        self.shadow = {name: tensor.detach().clone() for name, tensor in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int, applied: Tensor | None = None) -> None:
        """Include the current weights; with `applied`, only where this number on their device is true."""
        decay = min(self.decay, (1 + step) / (10 + step))
        old, new = ([local_tensor(tensor) for tensor in tensors.values()] for tensors in (self.shadow, self.weights))
        if applied is None:
            torch._foreach_lerp_(old, new, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]
        else:
            change = torch._foreach_sub(new, old)  # pyright: ignore[reportPrivateImportUsage]
            torch._foreach_mul_(change, applied * (1 - decay))  # pyright: ignore[reportPrivateImportUsage]
            torch._foreach_add_(old, change)  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def reset(self) -> None:
        """Start again from the current weights."""
        for name, tensor in self.weights.items():
            self.shadow[name].copy_(tensor)

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Use the averaged weights inside, and the model's own afterwards."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, tensor in self.weights.items():
            own = tensor.clone()
            tensor.copy_(self.shadow[name])
            self.shadow[name].copy_(own)


def trainable_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The trainable weights, each once, by their names in a checkpoint."""
    return {name: tensor for name, tensor in unique_tensors(model).items() if tensor.requires_grad}


def average_checkpoints(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of the floating-point weights of several checkpoints; other tensors are those of the first.

    >>> average_checkpoints([])
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: expected at least one checkpoint to average, got none
    """
    if not checkpoints:
        raise WeightsError("expected at least one checkpoint to average, got none")
    first = _read_verified(checkpoints[0])
    total = {name: tensor.to(torch.float64, copy=True) for name, tensor in first.items() if tensor.is_floating_point()}
    for path in checkpoints[1:]:
        other = _read_verified(path)
        check_tensors_match(first, other, path)
        for name, tensor in total.items():
            tensor += other[name]
    return {
        name: (total[name] / len(checkpoints)).to(tensor.dtype) if name in total else tensor
        for name, tensor in first.items()
    }


def _read_verified(path: Path) -> dict[str, Tensor]:
    return {name: stored.full() for name, stored in read_shards(path, SINGLE_FILE, verify_manifest(path)).items()}
