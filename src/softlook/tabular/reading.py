"""From a frame to what a model reads: columns, then scaling, then tensors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softlook.tabular.columns import Columns
from softlook.tabular.defaults import Recipe
from softlook.tabular.rows import Rows
from softlook.tabular.scaling import Scaling

State = tuple[dict[str, Any], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Reading:
    """What was learned about a table before any model sees it.

    `flags`: where a model has no tokens for missing numbers they count as their column's middle, and whether one is
    missing is a category more for each number that was missing in some row while learning. None: the model has them.
    """

    columns: Columns
    scaling: Scaling
    flags: tuple[int, ...] | None

    @staticmethod
    def learned(X: Any, columns: Columns, recipe: Recipe, *, seed: int) -> "Reading":
        numbers = columns.encode(X).numbers
        scaling = Scaling.fit(numbers, kind=recipe.scaling, seed=seed)
        if recipe.model == "TableTransformer":
            return Reading(columns, scaling, None)
        return Reading(columns, scaling, tuple(np.flatnonzero(np.isnan(numbers).any(0)).tolist()))

    @property
    def numbers(self) -> int:
        """How many numbers a row has."""
        return sum(slot.numeric for slot in self.columns.slots)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each category has, flags last."""
        return (*self.columns.sizes, *(2 for _ in self.flags or ()))

    @property
    def owners(self) -> np.ndarray:
        """Of each token, numbers before categories before flags, the place of the column it comes from."""
        places = {name: place for place, name in enumerate(self.columns.names)}
        slots = [places[slot.column] for slot in self.columns.slots]
        return np.array([*slots, *(slots[flag] for flag in self.flags or ())], dtype=np.int64)

    def read(self, X: Any) -> Rows:
        """The rows of a frame as tensors."""
        encoded = self.columns.encode(X)
        numbers = torch.from_numpy(np.ascontiguousarray(self.scaling.apply(encoded.numbers), dtype=np.float32))
        categories = torch.from_numpy(np.ascontiguousarray(encoded.categories, dtype=np.int64))
        return Rows(numbers, categories) if self.flags is None else Rows(*self._flagged(numbers, categories))

    def _flagged(self, numbers: Tensor, categories: Tensor) -> tuple[Tensor, Tensor]:
        missing = numbers.isnan()
        flags = missing[:, list(self.flags or ())].long()
        return numbers.masked_fill(missing, 0.0), torch.cat([categories, flags], 1)

    def state(self) -> State:
        """All of it, as JSON and arrays."""
        facts, arrays = self.columns.state()
        scaling_facts, scaling_arrays = self.scaling.state()
        told = {"columns": facts, "scaling": scaling_facts, "flags": self.flags}
        kept = {f"columns.{name}": array for name, array in arrays.items()}
        return told, kept | {f"scaling.{name}": array for name, array in scaling_arrays.items()}

    @staticmethod
    def from_state(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Reading":
        flags = facts["flags"]
        return Reading(
            Columns.from_state(facts["columns"], _within("columns.", arrays)),
            Scaling.from_state(facts["scaling"], _within("scaling.", arrays)),
            None if flags is None else tuple(flags),
        )


def _within(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
