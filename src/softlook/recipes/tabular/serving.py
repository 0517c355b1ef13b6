"""Table models for the server: JSON cells to predictions."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count as count_from
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from softlook.base.device import choose_device
from softlook.base.errors import DataError
from softlook.recipes.tabular.predict import TablePredictor, load_predictor
from softlook.serve.loaded_model import Cell, Columns, Label, LoadedTable
from softlook.tabular.formatting import join_names
from softlook.tabular.io.arrow import NUMBER, format_number
from softlook.tabular.io.column import Column
from softlook.tabular.io.frames import Frame
from softlook.tabular.preprocessing.categorical import BOOLEANS
from softlook.tabular.preprocessing.column_types import ColumnEncoder
from softlook.tabular.preprocessing.rows import ROW_MULTIPLE, TableTensors

Array = np.ndarray | pa.Array
BATCH_ROWS = {"cpu": ROW_MULTIPLE, "cuda": 256}
"""Rows of a batch, always the same, because the last bits may depend on it. Larger ones are not faster on a CPU."""
DECIMALS = 8
"""Of the predictions of a TabTransformer: further digits depend on a row's position in the batch."""
NUMBERS, STRINGS = "numbers", "strings"
BOOLEAN_SPELLINGS = (*BOOLEANS, "0", "1")
MISSING_SPELLINGS = ("", "-", "?", "na", "n/a", "nan", "null", "none")
"""Common spellings of a missing cell."""


class JsonColumn:
    """Converts the JSON cells of a column to an array, whose type depends on the column alone.

    >>> from softlook.tabular.preprocessing.numeric import NumericEncoder
    >>> JsonColumn(NumericEncoder("age")).to_array([39, None, 4.5])
    array([39. ,  nan,  4.5])
    >>> JsonColumn(NumericEncoder("age")).to_array([39, "old"])
    Traceback (most recent call last):
    softlook.base.errors.DataError: row 1: 'age': expected numbers, got the string 'old'
    """

    def __init__(self, encoder: ColumnEncoder) -> None:
        self.encoder = encoder

    def to_array(self, cells: Sequence[Cell]) -> Array:
        """The cells as one array; raises an error for a cell of another type."""
        for row, cell in enumerate(cells):
            if cell is not None and (expected := self._expected(cell)):
                raise self._error(row, expected, cell)
        if self.encoder.column_type == "number":
            cells = [None] * len(cells) if self.is_empty else cells
            return np.array([np.nan if cell is None else float(cell) for cell in cells], np.float64)
        array = pa.array([None if cell is None else _to_string(cell) for cell in cells], pa.large_string())
        if self.encoder.column_type == "date":
            self._check_dates(array)
        return array

    def _expected(self, cell: Any) -> str:
        """What the column expects instead of this cell; empty if the cell is valid."""
        column_type, is_string = self.encoder.column_type, isinstance(cell, str)
        if column_type == "number":
            return NUMBERS if isinstance(cell, str | bool) and not self.is_empty else ""
        if self.is_empty or (is_string and column_type in ("date", "text")):
            return ""
        if column_type in ("date", "text"):
            return "dates as 2024-02-29T12:30" if column_type == "date" else STRINGS
        if column_type == "ordinal":
            return "" if _to_string(cell) in self.values else join_names(self.values)
        if column_type == "boolean":
            is_known = self.values != BOOLEANS or _to_string(cell).lower() in BOOLEAN_SPELLINGS
            return "" if is_known else "true or false"
        # an unseen category is valid, but not one of an unseen type
        is_seen = is_string or (self.has_booleans if isinstance(cell, bool) else self.has_numbers)
        return "" if is_seen or not self.values else STRINGS

    @property
    def is_empty(self) -> bool:
        """Whether the column was empty in training: then any cell is valid."""
        return self.encoder.missing == 1.0

    @cached_property
    def values(self) -> tuple[str, ...]:
        return getattr(self.encoder, "values", ())

    @cached_property
    def has_booleans(self) -> bool:
        return any(value.lower() in BOOLEANS for value in self.values)

    @cached_property
    def has_numbers(self) -> bool:
        return self.has_booleans or any(NUMBER.fullmatch(value) for value in self.values)

    def _check_dates(self, array: pa.Array) -> None:
        """All at once; if that fails, one by one: some may have a time zone, and others none."""
        if self._is_readable(array):
            return
        row = next(row for row in count_from() if not self._is_readable(array[row : row + 1]))
        timezone: str | None = getattr(self.encoder, "timezone", None)
        example = "2024-02-29T12:30" if timezone is None else "2024-02-29T12:30Z, with a time zone"
        raise self._error(row, f"dates as {example}", array[row].as_py())

    def _is_readable(self, array: pa.Array) -> bool:
        try:
            self.encoder.encode(Column(self.encoder.name, array))
        except (DataError, StopIteration):
            return False
        return True

    def _error(self, row: int, expected: str, cell: Cell) -> DataError:
        kind = "string" if isinstance(cell, str) else "boolean" if isinstance(cell, bool) else "number"
        shown = repr(cell) if isinstance(cell, str) else _to_string(cell)
        message = f"row {row}: {self.encoder.name!r:.80}: expected {expected}, got the {kind} {shown:.60}"
        return DataError(f"{message}{_hint(cell, expected)}")


def _hint(cell: Cell, expected: str) -> str:
    if not isinstance(cell, str):
        return f'. As a string it is "{_to_string(cell)}"' if expected == STRINGS else ""
    if cell.strip().lower() in MISSING_SPELLINGS:
        return ". A missing cell is null"
    return ". Remove the quotes" if expected == NUMBERS and NUMBER.fullmatch(cell) else ""


def _to_string(cell: Cell) -> str:
    """As in the training data: 3 and 3.0 are both '3', True is 'true'."""
    if isinstance(cell, bool):
        return str(cell).lower()
    return format_number(cell) if isinstance(cell, float) else str(cell)


@dataclass(frozen=True, eq=False)
class ArrayChunk:
    """Some rows: an array for each column, of a type that depends on the column alone."""

    columns: tuple[Array, ...]
    count: int

    def __len__(self) -> int:
        return self.count


class ServedTableModel:
    """An estimator as the server uses it. The prediction for a row does not depend on other rows."""

    def __init__(self, predictor: TablePredictor) -> None:
        self.estimator, self.target = predictor.estimator, predictor.target
        self.columns: dict[str, str] = dict(self.estimator.encoder_.column_types)
        self.classes: list[Label] = predictor.classes
        self.json_columns = tuple(map(JsonColumn, self.estimator.encoder_.columns))
        self.device = choose_device(self.estimator.device)
        self.estimator.model_.to(self.device)
        self.float64_model = None if self.device.type == "mps" else copy.deepcopy(self.estimator.model_).double()
        """Small batches are predicted in double precision: copied once, not for every batch."""
        if self.estimator.ensemble_ is not None and self.device.type != "mps":
            self.estimator.ensemble_ = self.estimator.ensemble_.double()

    @property
    def model_name(self) -> str:
        return type(self.estimator.model_).__name__

    @property
    def can_explain(self) -> bool:
        return len(self.estimator.model_.blocks) > 0  # pyright: ignore[reportArgumentType]

    def encode(self, columns: Columns, chunk_rows: int) -> list[ArrayChunk]:
        """Arrays of the cells, in chunks; they are transformed for many requests at once."""
        arrays = [column.to_array(columns[column.encoder.name]) for column in self.json_columns]
        count = len(arrays[0])
        slices = [slice(at, min(at + chunk_rows, count)) for at in range(0, count, chunk_rows)]
        return [ArrayChunk(tuple(array[one] for array in arrays), one.stop - one.start) for one in slices]

    def predict(self, chunks: Sequence[ArrayChunk]) -> Tensor:
        """(N, C) in double precision: probabilities, or standardized numbers."""
        predict = partial(self.estimator._predict_rows, float64_model=self.float64_model)
        predictions = self._in_batches(predict, chunks)
        return predictions.round(decimals=DECIMALS) if self.estimator.family == "tab" else predictions

    def explain(self, chunks: Sequence[ArrayChunk]) -> Tensor:
        """(N, columns)."""
        return self._in_batches(self.estimator._explain, chunks)

    def decode(self, outputs: Tensor) -> list[Any]:
        """Classes, or numbers in the units of the target."""
        target: Any = self.estimator.target_
        arrays = outputs.numpy()
        return (target.values[arrays.argmax(1)] if self.classes else target.inverse_transform(arrays)).tolist()

    def _in_batches(self, compute: Callable[[TableTensors], np.ndarray], chunks: Sequence[ArrayChunk]) -> Tensor:
        rows, size = self._to_rows(chunks), BATCH_ROWS.get(self.device.type, ROW_MULTIPLE)
        results: list[np.ndarray] = []
        for at in range(0, len(rows), size):
            count = min(size, len(rows) - at)
            batch = rows.take(torch.arange(at, at + size, device=self.device).clamp(max=len(rows) - 1))
            results.append(compute(batch)[:count])
        return torch.from_numpy(np.concatenate(results))

    def _to_rows(self, chunks: Sequence[ArrayChunk]) -> TableTensors:
        columns = [_concat(arrays) for arrays in zip(*(chunk.columns for chunk in chunks), strict=True)]
        names, has_names = tuple(self.columns), self.estimator.encoder_.has_names
        frame = Frame(names, sum(map(len, chunks)), lambda index: columns[index], has_names)
        return self.estimator.preprocessor_.transform(frame).to(self.device)


def load_table_for_serving(run: str | Path, name: str, *, device: str = "auto") -> LoadedTable:
    """Load the table model of a run, or of an estimator's folder, for the server."""
    table = ServedTableModel(load_predictor(run, device=device))
    return LoadedTable(name, table, created=int(Path(run).stat().st_mtime))


def _concat(arrays: Sequence[Array]) -> Array:
    if isinstance(arrays[0], np.ndarray):
        return np.concatenate(arrays)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return pa.concat_arrays(arrays)  # pyright: ignore[reportArgumentType]
