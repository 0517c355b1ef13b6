"""From a frame to what a model reads: columns, then scaling, then tensors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softlook.tabular.defaults import Recipe
from softlook.tabular.encoding.choices import Choices
from softlook.tabular.encoding.columns import Columns
from softlook.tabular.encoding.rows import Rows
from softlook.tabular.encoding.scaling import Scaling

State = tuple[dict[str, Any], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Reading:
    """What was learned about a table before any model sees it.

    `flags`: where a model has no tokens for missing numbers they count as their column's middle, and whether one is
    missing is a category more for each number that was missing in some row while learning. None: the model has them.
    """

    columns: Columns
    choices: Choices
    scaling: Scaling
    flags: tuple[int, ...] | None

    @staticmethod
    def learned(X: Any, columns: Columns, recipe: Recipe, *, seed: int) -> "Reading":
        encoded = columns.encode(X)
        choices = Choices.found(columns, encoded) if recipe.choices else Choices((), encoded.numbers.shape[1])
        numbers = choices.applied(encoded).numbers
        scaling = Scaling.fit(numbers, kind=recipe.scaling, seed=seed)
        if recipe.model == "TableTransformer":
            return Reading(columns, choices, scaling, None)
        return Reading(columns, choices, scaling, tuple(np.flatnonzero(np.isnan(numbers).any(0)).tolist()))

    @property
    def numbers(self) -> int:
        """How many numbers a row has."""
        return sum(place < self.choices.numbers for place in self._left)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each category has: those of columns, then choices, then flags."""
        own = (self.columns.sizes[place - self.choices.numbers] for place in self._left[self.numbers :])
        return (*own, *self.choices.sizes, *(2 for _ in self.flags or ()))

    @property
    def shares(self) -> np.ndarray:
        """(tokens, columns): which part of a token comes from which column; numbers first, then as in `sizes`."""
        places = {name: place for place, name in enumerate(self.columns.names)}
        slots = [places[slot.column] for slot in self.columns.slots]
        left = [(place,) for place in self._left]
        tokens = (*left, *self.choices.groups, *(left[flag] for flag in self.flags or ()))
        found = np.zeros((len(tokens), len(places)))
        for token, group in enumerate(tokens):
            found[token, [slots[place] for place in group]] = 1 / len(group)
        return found

    @property
    def _left(self) -> list[int]:
        return self.choices.left(len(self.columns.slots))

    def told(self) -> list[str]:
        """A line about every column, and about what they tell together."""
        return [*self.columns.told(), *self.choices.told(self.columns.slots)]

    def read(self, X: Any) -> Rows:
        """The rows of a frame as tensors."""
        encoded = self.choices.applied(self.columns.encode(X))
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
        told = {"columns": facts, "scaling": scaling_facts, "flags": self.flags, "choices": self.choices.groups}
        kept = {f"columns.{name}": array for name, array in arrays.items()}
        return told, kept | {f"scaling.{name}": array for name, array in scaling_arrays.items()}

    @staticmethod
    def from_state(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Reading":
        flags, columns = facts["flags"], Columns.from_state(facts["columns"], _within("columns.", arrays))
        return Reading(
            columns,
            Choices(tuple(map(tuple, facts["choices"])), sum(slot.numeric for slot in columns.slots)),
            Scaling.from_state(facts["scaling"], _within("scaling.", arrays)),
            None if flags is None else tuple(flags),
        )


def _within(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
