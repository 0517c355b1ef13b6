"""Preprocessor: from a frame to model input tensors. One-hot columns are collapsed into one categorical feature."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from softlook.tabular.formatting import describe_column
from softlook.tabular.preprocessing.categorical import FIRST_CODE, MISSING, RARE
from softlook.tabular.preprocessing.numeric import NumericScaler
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.table_encoder import EncodedTable, Feature, TableEncoder, select_prefix
from softlook.tabular.presets import Hyperparameters

State = tuple[dict[str, Any], dict[str, np.ndarray]]


@dataclass(frozen=True)
class OneHotGroups:
    """Groups of one-hot features. Each becomes one categorical feature after all others."""

    groups: tuple[tuple[int, ...], ...]
    """Feature indices, numbers before categories."""
    n_numbers: int
    """How many features are numeric."""

    @staticmethod
    def find(encoder: TableEncoder, encoded: EncodedTable) -> "OneHotGroups":
        """Consecutive features of zeros and ones of which every row has exactly one 1."""
        n_numbers = encoded.numbers.shape[1]
        is_set = {index: _is_set(encoder, encoded, index) for index in range(len(encoder.features))}
        candidates = [index for index, cells in is_set.items() if cells is not None and cells.any() and not cells.all()]
        groups = list[tuple[int, ...]]()
        while candidates:
            size = _group_size([is_set[index] for index in candidates])  # pyright: ignore[reportArgumentType]
            if size:
                groups.append(tuple(candidates[:size]))
            candidates = candidates[size or 1 :]
        return OneHotGroups(tuple(groups), n_numbers)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of codes of each group."""
        return tuple(FIRST_CODE + len(group) for group in self.groups)

    def remaining(self, n_features: int) -> list[int]:
        """The features outside all groups."""
        grouped = {index for group in self.groups for index in group}
        return [index for index in range(n_features) if index not in grouped]

    def collapse(self, encoded: EncodedTable) -> EncodedTable:
        """The rows with each group as one categorical feature."""
        if not self.groups:
            return encoded
        remaining = self.remaining(self.n_numbers + encoded.categories.shape[1])
        numbers = encoded.numbers[:, [index for index in remaining if index < self.n_numbers]]
        categories = encoded.categories[:, [index - self.n_numbers for index in remaining if index >= self.n_numbers]]
        codes = [self._codes(encoded, group) for group in self.groups]
        return EncodedTable(numbers, np.column_stack([categories, *codes]))

    def _codes(self, encoded: EncodedTable, group: tuple[int, ...]) -> np.ndarray:
        """Codes as in all categories: missing if a cell is missing, rare unless exactly one cell is 1."""
        cells = np.stack([_cells(encoded, index, self.n_numbers) for index in group], 1)
        is_one = cells == 1
        is_valid = (is_one | (cells == 0)).all(1) & (is_one.sum(1) == 1)
        codes = np.where(is_valid, FIRST_CODE + is_one.argmax(1), RARE)
        return np.where(np.isnan(cells).any(1), MISSING, codes).astype(np.int64)

    def describe(self, features: Sequence[Feature]) -> list[str]:
        """One line about each group."""
        names = [[features[index].column for index in group] for group in self.groups]
        return [describe_column(f"{own[0]} … {own[-1]}", f"one-hot category in {len(own)} columns") for own in names]


@dataclass(frozen=True)
class TablePreprocessor:
    """Column encoders, one-hot groups and scaler, fitted on a table.

    `missing_indicators`: for models without embeddings of missing numbers, missing numbers become 0 and each listed
    numeric feature, which had missing values in training, gets a binary category. None: the model embeds them itself.
    """

    encoder: TableEncoder
    one_hot: OneHotGroups
    scaler: NumericScaler
    missing_indicators: tuple[int, ...] | None

    @staticmethod
    def fit(
        encoded: EncodedTable, encoder: TableEncoder, hparams: Hyperparameters, *, seed: int
    ) -> "TablePreprocessor":
        """Fit on an encoded table."""
        n_numbers = encoded.numbers.shape[1]
        one_hot = OneHotGroups.find(encoder, encoded) if hparams.collapse_one_hot else OneHotGroups((), n_numbers)
        numbers = one_hot.collapse(encoded).numbers
        scaler = NumericScaler.fit(numbers, method=hparams.scaling, seed=seed)
        if hparams.model == "TableTransformer":
            return TablePreprocessor(encoder, one_hot, scaler, None)
        has_missing = tuple(np.flatnonzero(np.isnan(numbers).any(0)).tolist())
        return TablePreprocessor(encoder, one_hot, scaler, has_missing)

    @property
    def n_numbers(self) -> int:
        """Number of numeric features."""
        return sum(index < self.one_hot.n_numbers for index in self._remaining)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of codes of each category: those of columns, then one-hot groups, then missing indicators."""
        own = (
            self.encoder.cardinalities[index - self.one_hot.n_numbers] for index in self._remaining[self.n_numbers :]
        )
        return (*own, *self.one_hot.cardinalities, *(2 for _ in self.missing_indicators or ()))

    @property
    def token_columns(self) -> np.ndarray:
        """(tokens, columns): the fraction of a token that comes from each column; numbers, then as `cardinalities`."""
        column_indices = {name: index for index, name in enumerate(self.encoder.names)}
        feature_columns = [column_indices[feature.column] for feature in self.encoder.features]
        remaining = [(index,) for index in self._remaining]
        indicators = (remaining[index] for index in self.missing_indicators or ())
        tokens = (*remaining, *self.one_hot.groups, *indicators)
        weights = np.zeros((len(tokens), len(column_indices)))
        for token, group in enumerate(tokens):
            weights[token, [feature_columns[index] for index in group]] = 1 / len(group)
        return weights

    @property
    def _remaining(self) -> list[int]:
        return self.one_hot.remaining(len(self.encoder.features))

    def describe(self) -> list[str]:
        """One line about every column and every one-hot group."""
        return [*self.encoder.describe(), *self.one_hot.describe(self.encoder.features)]

    def transform(self, X: Any) -> TableTensors:
        """The rows of a frame as tensors."""
        return self.transform_encoded(self.encoder.encode(X))

    def transform_encoded(self, encoded: EncodedTable) -> TableTensors:
        """Encoded rows as tensors."""
        encoded = self.one_hot.collapse(encoded)
        numbers = torch.from_numpy(np.ascontiguousarray(self.scaler.transform(encoded.numbers), dtype=np.float32))
        categories = torch.from_numpy(np.ascontiguousarray(encoded.categories, dtype=np.int64))
        if self.missing_indicators is None:
            return TableTensors(numbers, categories)
        missing = numbers.isnan()
        indicators = missing[:, list(self.missing_indicators)].long()
        return TableTensors(numbers.masked_fill(missing, 0.0), torch.cat([categories, indicators], 1))

    def state(self) -> State:
        """JSON values and arrays from which `from_state` restores the preprocessor."""
        encoder_values, encoder_arrays = self.encoder.state()
        scaler_values, scaler_arrays = self.scaler.state()
        values = {
            "encoder": encoder_values,
            "scaler": scaler_values,
            "missing_indicators": self.missing_indicators,
            "one_hot": self.one_hot.groups,
        }
        arrays = {f"encoder.{name}": array for name, array in encoder_arrays.items()}
        return values, arrays | {f"scaler.{name}": array for name, array in scaler_arrays.items()}

    @staticmethod
    def from_state(values: dict[str, Any], arrays: dict[str, np.ndarray]) -> "TablePreprocessor":
        """The preprocessor with this `state`."""
        indicators = values["missing_indicators"]
        encoder = TableEncoder.from_state(values["encoder"], select_prefix("encoder.", arrays))
        n_numbers = sum(feature.is_numeric for feature in encoder.features)
        return TablePreprocessor(
            encoder,
            OneHotGroups(tuple(map(tuple, values["one_hot"])), n_numbers),
            NumericScaler.from_state(values["scaler"], select_prefix("scaler.", arrays)),
            None if indicators is None else tuple(indicators),
        )


def _is_set(encoder: TableEncoder, encoded: EncodedTable, index: int) -> np.ndarray | None:
    """Where a feature of zeros and ones is 1; None if it has other values."""
    n_numbers, feature = encoded.numbers.shape[1], encoder.features[index]
    if encoder.column_types[feature.column] != ("number" if index < n_numbers else "boolean"):
        return None
    cells = _cells(encoded, index, n_numbers)
    is_one = cells == 1
    return is_one if (is_one | (cells == 0)).all() else None


def _cells(encoded: EncodedTable, index: int, n_numbers: int) -> np.ndarray:
    """A feature as numbers; NaN for missing cells, and the values of a boolean are 0 and 1."""
    if index < n_numbers:
        return encoded.numbers[:, index]
    codes = encoded.categories[:, index - n_numbers]
    return np.where(codes == MISSING, np.nan, codes - FIRST_CODE)


def _group_size(columns: Sequence[np.ndarray]) -> int:
    """How many columns, from the first on, have exactly one 1 in each row; 0 if none do."""
    covered = np.zeros_like(columns[0])
    for size, column in enumerate(columns, 1):
        if (covered & column).any():
            return 0
        covered |= column
        if covered.all():
            return size
    return 0
