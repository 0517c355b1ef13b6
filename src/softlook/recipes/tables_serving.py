"""A table's model behind a server's page: cells as JSON has them become what an estimator reads."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from softlook.recipes.tables_asking import OpenedTable, opened_table
from softlook.recipes.tables_cells import Array, Taking
from softlook.serve.tables import Cells, Label, ServedTable
from softlook.tabular.encoding.rows import LEAST, Rows
from softlook.tabular.sources.frames import Frame
from softlook.train.device import choose_device

SAME = {"cpu": LEAST, "cuda": 256}
"""Rows that a model looks at together: never more, and never fewer, for the last bits may depend on how many they are.

On a CPU more at a time would not be faster.
"""
DIGITS = 8
"""Of the answers of a TabTransformer, whose widths are odd: beyond, they depend on a row's place among the others."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows: an array for each column, all of one type whatever cells came."""

    columns: tuple[Array, ...]
    count: int

    def __len__(self) -> int:
        return self.count


class AskedTable:
    """An estimator as a server wants it. What is said of a row does not depend on those that are asked beside it."""

    def __init__(self, opened: OpenedTable) -> None:
        self.estimator, self.target = opened.estimator, opened.target
        self.columns: dict[str, str] = dict(self.estimator.columns_.kinds)
        self.classes: list[Label] = opened.classes
        self.taking = tuple(map(Taking, self.estimator.columns_.learned))
        self.device = choose_device(self.estimator.device)
        self.estimator.model_.to(self.device)
        self.exact = None if self.device.type == "mps" else copy.deepcopy(self.estimator.model_).double()
        """The model in double precision, in which few rows are answered: copied once, not for every block of them."""

    @property
    def kind(self) -> str:
        return type(self.estimator.model_).__name__

    @property
    def explains(self) -> bool:
        return len(self.estimator.model_.blocks) > 0  # pyright: ignore[reportArgumentType]

    def read(self, cells: Cells, most: int) -> list[Part]:
        """Arrays of the cells, in parts; what the model makes of them is worked out for many requests at once."""
        columns = [taking.array(cells[taking.column.name]) for taking in self.taking]
        count = len(columns[0])
        places = [slice(at, min(at + most, count)) for at in range(0, count, most)]
        return [Part(tuple(column[some] for column in columns), some.stop - some.start) for some in places]

    def answer(self, parts: Sequence[Part]) -> Tensor:
        """(N, C) in double precision: probabilities, or numbers in units of learning."""
        found = self._by_blocks(partial(self.estimator._answers_to, exact=self.exact), parts)
        return found.round(decimals=DIGITS) if self.estimator.family == "tab" else found

    def looks(self, parts: Sequence[Part]) -> Tensor:
        """(N, columns)."""
        return self._by_blocks(self.estimator._explained, parts)

    def told(self, answers: Tensor) -> list[Any]:
        """Classes, or numbers in their own units."""
        targets: Any = self.estimator.targets_
        found = answers.numpy()
        return (targets.values[found.argmax(1)] if self.classes else targets.read(found)).tolist()

    def _by_blocks(self, ask: Callable[[Rows], np.ndarray], parts: Sequence[Part]) -> Tensor:
        rows, size = self._rows(parts), SAME.get(self.device.type, LEAST)
        found: list[np.ndarray] = []
        for at in range(0, len(rows), size):
            count = min(size, len(rows) - at)
            block = rows.take(torch.arange(at, at + size, device=self.device).clamp(max=len(rows) - 1))
            found.append(ask(block)[:count])
        return torch.from_numpy(np.concatenate(found))

    def _rows(self, parts: Sequence[Part]) -> Rows:
        columns = [_joined(arrays) for arrays in zip(*(part.columns for part in parts), strict=True)]
        names, has_names = tuple(self.columns), self.estimator.columns_.has_names
        frame = Frame(names, sum(map(len, parts)), lambda place: columns[place], has_names)
        return self.estimator.reading_.read(frame).to(self.device)


def served_table(run: str | Path, name: str, *, device: str = "auto") -> ServedTable:
    """The table of a run, or of an estimator's folder, ready to be served."""
    table = AskedTable(opened_table(run, device=device))
    return ServedTable(name, table, created=int(Path(run).stat().st_mtime))


def _joined(arrays: Sequence[Array]) -> Array:
    if isinstance(arrays[0], np.ndarray):
        return np.concatenate(arrays)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return pa.concat_arrays(arrays)  # pyright: ignore[reportArgumentType]
