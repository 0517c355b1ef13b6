"""Rows as tensors, and sources of row batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

CPU_ROWS = 256
"""Rows times ensemble members in an inference batch on a CPU: larger batches leave its caches."""
GPU_VALUES = 1 << 25
"""Token values in an inference batch on a GPU: about 2 GB with all intermediate results of a block."""
ROW_MULTIPLE = 16
"""Inference batches are padded to a multiple of this by repeating the last row."""
SAMPLE_BATCH = 4096
"""Batch size while sampling rows."""


@dataclass(frozen=True)
class TableTensors:
    """Rows on a device: numbers (N, J), categories (N, J), and optionally targets and sample weights (N,)."""

    numbers: Tensor
    categories: Tensor
    targets: Tensor | None = None
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Tensor | slice) -> "TableTensors":
        """Some of the rows."""
        return self._map(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> "TableTensors":
        return self._map(lambda tensor: tensor.to(device))

    def clone(self) -> "TableTensors":
        return self._map(Tensor.clone)

    def normalize_weights(self) -> "TableTensors":
        """The rows with sample weights of mean 1."""
        assert self.weight is not None
        return replace(self, weight=self.weight / self.weight.mean())

    def batches(self, size: int, generator: torch.Generator, start: int = 0) -> Iterator["TableTensors"]:
        """All rows once in shuffled batches, skipping the first `start` rows of that order."""
        order = torch.randperm(len(self), generator=generator)[start:].to(self.numbers.device)
        return (self.take(rows) for rows in order.split(size))

    def split(self, size: int) -> Iterator["TableTensors"]:
        """Batches in row order."""
        return (self.take(slice(at, at + size)) for at in range(0, len(self), size))

    def inference_batch_size(self, model: nn.Module) -> int:
        """How many rows a model processes at a time."""
        config: Any = model.config
        rows = CPU_ROWS
        if self.numbers.device.type == "cuda":
            rows = GPU_VALUES // (config.dim * (1 + self.numbers.shape[1] + self.categories.shape[1]))
        return max(1, rows // ROW_MULTIPLE // getattr(config, "ensemble_size", 1)) * ROW_MULTIPLE

    def replace_cells(self, mask: Tensor, others: "TableTensors") -> "TableTensors":
        """The rows with masked cells taken from `others`; `mask` is (N, J) or (J,), numbers before categories."""
        numbers, categories = mask.tensor_split([self.numbers.shape[1]], -1)
        return replace(
            self,
            numbers=torch.where(numbers, others.numbers, self.numbers),
            categories=torch.where(categories, others.categories, self.categories),
        )

    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.numbers, self.categories, self.targets, self.weight

    def _map(self, fn: Any) -> "TableTensors":
        return TableTensors(*(None if tensor is None else fn(tensor) for tensor in self.tensors()))  # pyright: ignore[reportArgumentType]


@runtime_checkable
class RowSource(Protocol):
    """A source of training batches: `TableTensors`, or rows on disk."""

    def __len__(self) -> int: ...
    def normalize_weights(self) -> "RowSource": ...
    def batches(self, size: int, generator: torch.Generator, start: int = 0) -> Iterator[TableTensors]: ...


def concat_rows(parts: Sequence[TableTensors]) -> TableTensors:
    """Parts as one."""
    fields = zip(*map(TableTensors.tensors, parts), strict=True)
    present = ([tensor for tensor in field if tensor is not None] for field in fields)
    return TableTensors(*(torch.cat(tensors) if tensors else None for tensors in present))  # pyright: ignore[reportArgumentType]


def sample_rows(source: RowSource, max_rows: int, generator: torch.Generator) -> TableTensors:
    """A random sample of rows; all of them, shuffled, if there are at most `max_rows`."""
    parts: list[TableTensors] = []
    for rows in source.batches(min(max_rows, len(source), SAMPLE_BATCH), generator):
        parts.append(rows)
        if sum(map(len, parts)) >= max_rows:
            break
    return concat_rows(parts).take(slice(max_rows))
