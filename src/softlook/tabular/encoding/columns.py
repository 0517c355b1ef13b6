"""What was learned about the columns of a table, and the arrays a model sees of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softlook.base.errors import DataError
from softlook.tabular.encoding.kinds import FORMS, Kind, Learned, Said, learn_frame
from softlook.tabular.encoding.numbers import LARGEST, NumberColumn
from softlook.tabular.encoding.reservoir import Reservoir
from softlook.tabular.sources.cells import infinite
from softlook.tabular.sources.frames import Frame, read_frame
from softlook.tabular.wording import named


class Slot(NamedTuple):
    """One place of what the model sees of a row."""

    name: str
    """The column's own, or with the part it stands for: 'signup: weekday'."""
    column: str
    numeric: bool


class Encoded(NamedTuple):
    """Rows as the model sees them."""

    numbers: np.ndarray
    """(N, numbers) float32, NaN where missing."""
    categories: np.ndarray
    """(N, categories) int64: 0 where missing, 1 for a value that is rare or new."""


@dataclass(frozen=True)
class Columns:
    """What was learned about the columns of a table.

    >>> columns = Columns.fit([[25, "Paris"], [31, "Rome"], [None, "Paris"]])
    >>> columns.told()
    ['x0: number, 33 % missing', 'x1: category, 2 values']
    >>> encoded = columns.encode([[40, "Rome"], [None, "Oslo"], [2.5, None]])
    >>> encoded.numbers.tolist(), encoded.categories.tolist()
    ([[40.0], [nan], [2.5]], [[3], [1], [0]])
    """

    learned: tuple[Learned, ...]
    has_names: bool = False
    """Whether the table named its columns."""

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        kinds: Mapping[Any, Kind] | None = None,
        ordinal: Mapping[Any, Sequence[Any]] | None = None,
        seed: int = 0,
    ) -> "Columns":
        """Learn what each column is, and what it holds.

        `kinds` says of some columns what they are, and `ordinal` lists the values of some in their order, lowest first;
        columns go by their names, or by their places. What is not said is recognised: see `told`.
        """
        frame = read_frame(X)
        return cls(learn_frame(frame, Said.of(frame.names, kinds, ordinal), seed=seed), frame.has_names)

    @classmethod
    def fit_many(
        cls,
        frames: Iterable[Any],
        *,
        kinds: Mapping[Any, Kind] | None = None,
        ordinal: Mapping[Any, Sequence[Any]] | None = None,
        seed: int = 0,
    ) -> "Columns":
        """Learn from a table that comes in pieces, once, in bounded memory.

        Up to 100,000 rows this is what `fit` learns of them all. Beyond, that many are drawn, each row as likely as any
        other; how often a category occurs and how much is missing is counted over all rows.
        """
        reservoir = Reservoir(kinds, ordinal, seed=seed)
        for frame in frames:
            reservoir.add(read_frame(frame))
        return cls(reservoir.learned(), reservoir.has_names)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns; x0, x1, ... where the table named none."""
        return tuple(column.name for column in self.learned)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column is."""
        return {column.name: column.kind for column in self.learned}

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What the model sees: first the numbers, then the categories, each in the order of the columns."""
        found = [
            Slot(f"{column.name}: {part}" if part else column.name, column.name, column.size is None)
            for column in self.learned
            for part in column.slots
        ]
        return tuple(sorted(found, key=lambda slot: not slot.numeric))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each category slot has, those of missing and of rare values included."""
        return tuple(column.size for column in self.learned if column.size is not None)

    def told(self) -> list[str]:
        """A line about each column, for people."""
        return [column.told() for column in self.learned]

    def encode(self, X: Any) -> Encoded:
        """The rows of a table as arrays. Columns go by their names where both tables have some, else by place."""
        frame = read_frame(X)
        places = self._places(frame)
        if frame.matrix is not None and all(
            isinstance(column, NumberColumn) and column.is_plain for column in self.learned
        ):
            return Encoded(_whole(frame.matrix, self.names), np.zeros((frame.rows, 0), np.int64))
        numbers = np.empty(
            (frame.rows, sum(len(column.slots) for column in self.learned if column.size is None)), np.float32
        )
        categories = np.empty((frame.rows, len(self.sizes)), np.int64)
        number = category = 0
        for column, place in zip(self.learned, places, strict=True):
            found = column.encode(frame.cells(place))
            if column.size is None:
                numbers[:, number : number + found.shape[1]] = found
                number += found.shape[1]
            else:
                categories[:, category] = found
                category += 1
        return Encoded(numbers, categories)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All of it, as what JSON can hold and as arrays."""
        arrays: dict[str, np.ndarray] = {}
        columns: list[dict[str, Any]] = []
        for place, column in enumerate(self.learned):
            facts = column.facts()
            found = {key: value for key, value in facts.items() if isinstance(value, np.ndarray)}
            arrays |= {f"{place}.{key}": value for key, value in found.items()}
            columns.append({"kind": column.kind} | {key: value for key, value in facts.items() if key not in found})
        return {"has_names": self.has_names, "columns": columns}, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Columns":
        """The columns whose `state` this is."""
        learned = [_revived(place, column, arrays) for place, column in enumerate(facts["columns"])]
        return cls(tuple(learned), facts["has_names"])

    def _places(self, frame: Frame) -> list[int]:
        if not (self.has_names and frame.has_names):
            if len(frame.names) != len(self.learned):
                raise DataError(
                    f"X has {len(frame.names)} features, but {len(self.learned)} features are expected: "
                    "the columns of the table that was learned from"
                )
            return list(range(len(self.learned)))
        known = {name: place for place, name in enumerate(frame.names)}
        absent = [name for name in self.names if name not in known]
        if absent:
            raise DataError(f"columns are missing: {named(absent)}")
        return [known[name] for name in self.names]


def _whole(matrix: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Numbers that float32 holds as they are, all at once."""
    with np.errstate(over="ignore"):
        found = matrix.astype(np.float32)
    if not np.isinf(found).any():
        return found
    if np.isinf(matrix).any():
        row, place = (int(index) for index in np.argwhere(np.isinf(matrix))[0])
        raise infinite(names[place], row, float(matrix[row, place]))
    return np.clip(found, -LARGEST, LARGEST)


def _revived(place: int, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Learned:
    form = FORMS[facts["kind"]]
    held = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
    if facts["kind"] not in ("category", "boolean"):
        del held["kind"]  # the form itself says it
    start = f"{place}."
    return form(**held, **{key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)})
