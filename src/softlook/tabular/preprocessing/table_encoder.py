"""Encoder of all columns of a table, and its features."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from softlook.base.errors import DataError
from softlook.tabular.formatting import join_names
from softlook.tabular.io.column import infinite_value_error
from softlook.tabular.io.frames import Frame, to_frame
from softlook.tabular.preprocessing.column_types import (
    ENCODERS,
    ColumnEncoder,
    ColumnOverrides,
    ColumnType,
    fit_columns,
)
from softlook.tabular.preprocessing.numeric import MAX_FLOAT32, NumericEncoder
from softlook.tabular.preprocessing.reservoir import Reservoir

Value = TypeVar("Value")


class Feature(NamedTuple):
    """One model input of a row."""

    name: str
    """The column's name, or with the part it stands for: 'signup: weekday'."""
    column: str
    is_numeric: bool


class EncodedTable(NamedTuple):
    """Rows as arrays."""

    numbers: np.ndarray
    """(N, numbers) float32, NaN for missing cells."""
    categories: np.ndarray
    """(N, categories) int64: 0 for missing cells, 1 for rare or unseen values."""


@dataclass(frozen=True)
class TableEncoder:
    """The encoders of a table's columns.

    >>> encoder = TableEncoder.fit([[25, "Paris"], [31, "Rome"], [None, "Paris"]])
    >>> encoder.describe()
    ['x0: number, 33 % missing', 'x1: category, 2 values']
    >>> encoded = encoder.encode([[40, "Rome"], [None, "Oslo"], [2.5, None]])
    >>> encoded.numbers.tolist(), encoded.categories.tolist()
    ([[40.0], [nan], [2.5]], [[3], [1], [0]])
    """

    columns: tuple[ColumnEncoder, ...]
    has_names: bool = False
    """Whether the table has column names."""

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        column_types: Mapping[Any, ColumnType] | None = None,
        ordinal_categories: Mapping[Any, Sequence[Any]] | None = None,
        seed: int = 0,
    ) -> "TableEncoder":
        """Infer the type of each column and fit its encoder.

        `column_types` overrides inferred types and `ordinal_categories` lists the values of ordinal columns, lowest
        first; columns are given by name or index. `describe` reports the result.
        """
        frame = to_frame(X)
        overrides = ColumnOverrides.of(frame.names, column_types, ordinal_categories)
        return cls(fit_columns(frame, overrides, seed=seed), frame.has_names)

    @classmethod
    def fit_chunks(
        cls,
        frames: Iterable[Any],
        *,
        column_types: Mapping[Any, ColumnType] | None = None,
        ordinal_categories: Mapping[Any, Sequence[Any]] | None = None,
        seed: int = 0,
    ) -> "TableEncoder":
        """Fit on the chunks of a table in one pass and bounded memory.

        Up to 100,000 rows the result is that of `fit`. Beyond, encoders are fitted on a uniform sample of that many
        rows; category counts and missing fractions cover all rows.
        """
        reservoir = Reservoir(column_types, ordinal_categories, seed=seed)
        for frame in frames:
            reservoir.add(to_frame(frame))
        return cls(reservoir.fit_columns(), reservoir.has_names)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names; x0, x1, ... if the table has none."""
        return tuple(column.name for column in self.columns)

    @property
    def column_types(self) -> dict[str, ColumnType]:
        """The type of each column."""
        return {column.name: column.column_type for column in self.columns}

    @property
    def features(self) -> tuple[Feature, ...]:
        """The model inputs: numbers first, then categories, each in column order."""
        features = [
            Feature(f"{column.name}: {part}" if part else column.name, column.name, column.cardinality is None)
            for column in self.columns
            for part in column.features
        ]
        return tuple(sorted(features, key=lambda feature: not feature.is_numeric))

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of codes of each categorical feature, including those for missing and rare values."""
        return tuple(column.cardinality for column in self.columns if column.cardinality is not None)

    def describe(self) -> list[str]:
        """One line about each column."""
        return [column.describe() for column in self.columns]

    def encode(self, X: Any) -> EncodedTable:
        """The rows of a table as arrays. Columns match by name if both tables have names, otherwise by position."""
        frame = to_frame(X)
        indices = self._column_indices(frame)
        if frame.matrix is not None and all(
            isinstance(column, NumericEncoder) and column.is_identity for column in self.columns
        ):
            return EncodedTable(_encode_matrix(frame.matrix, self.names), np.zeros((frame.rows, 0), np.int64))
        n_numbers = sum(len(column.features) for column in self.columns if column.cardinality is None)
        numbers = np.empty((frame.rows, n_numbers), np.float32)
        categories = np.empty((frame.rows, len(self.cardinalities)), np.int64)
        number = category = 0
        for column, index in zip(self.columns, indices, strict=True):
            encoded = column.encode(frame.column(index))
            if column.cardinality is None:
                numbers[:, number : number + encoded.shape[1]] = encoded
                number += encoded.shape[1]
            else:
                categories[:, category] = encoded
                category += 1
        return EncodedTable(numbers, categories)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays from which `from_state` restores the encoder."""
        arrays: dict[str, np.ndarray] = {}
        columns: list[dict[str, Any]] = []
        for index, column in enumerate(self.columns):
            fields = vars(column)  # the arguments of its class
            own = {key: value for key, value in fields.items() if isinstance(value, np.ndarray)}
            arrays |= {f"{index}.{key}": value for key, value in own.items()}
            plain = {key: value for key, value in fields.items() if key not in own}
            columns.append({"column_type": column.column_type} | plain)
        return {"has_names": self.has_names, "columns": columns}, arrays

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "TableEncoder":
        """The encoder with this `state`."""
        columns = [_restore_column(index, fields, arrays) for index, fields in enumerate(values["columns"])]
        return cls(tuple(columns), values["has_names"])

    def _column_indices(self, frame: Frame) -> list[int]:
        if not (self.has_names and frame.has_names):
            if len(frame.names) != len(self.columns):
                raise DataError(
                    f"X has {len(frame.names)} features, but {len(self.columns)} features are expected: "
                    "the columns of the training table"
                )
            return list(range(len(self.columns)))
        known = {name: index for index, name in enumerate(frame.names)}
        absent = [name for name in self.names if name not in known]
        if absent:
            raise DataError(f"columns are missing: {join_names(absent)}")
        return [known[name] for name in self.names]


def _encode_matrix(matrix: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """A numeric matrix as float32, all columns at once."""
    with np.errstate(over="ignore"):
        floats = matrix.astype(np.float32)
    if not np.isinf(floats).any():
        return floats
    if np.isinf(matrix).any():
        row, index = (int(position) for position in np.argwhere(np.isinf(matrix))[0])
        raise infinite_value_error(names[index], row, float(matrix[row, index]))
    return np.clip(floats, -MAX_FLOAT32, MAX_FLOAT32)


def _restore_column(index: int, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ColumnEncoder:
    encoder = ENCODERS[fields["column_type"]]
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    if fields["column_type"] not in ("category", "boolean"):
        del values["column_type"]  # fixed by the class
    return encoder(**values, **select_prefix(f"{index}.", arrays))


def select_prefix(prefix: str, named: Mapping[str, Value]) -> dict[str, Value]:
    """The entries whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
