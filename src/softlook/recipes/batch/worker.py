"""Worker of a batch job: a model that computes parts, one after the other."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import pyarrow as pa
import pyarrow.parquet as pq

from softlook.base.errors import DataError
from softlook.data.arrow import damaged_error, parquet_batches, parquet_schema
from softlook.recipes.batch.parts import InputPart, ParquetInput
from softlook.recipes.batch.row_predictor import BatchParams, RowPredictor
from softlook.recipes.batch.text import create_text_predictor
from softlook.recipes.inference.pipeline import load_pipeline
from softlook.recipes.run_dir.layout import task_of_run
from softlook.weights.atomic_folder import disk_errors, fsync
from softlook.weights.manifest import ESTIMATOR_FILE

ERROR_COLUMN = "error"
ERRORS_KEY = "softlook.errors"
"""Metadata of an output file: the number of rows without a prediction."""
NO_INPUT = "there is no text"
CHUNK_ROWS = 4096
"""Rows in memory at a time."""


@dataclass(frozen=True)
class BatchJob:
    """What is computed, and where."""

    run: str
    input: Path
    output: Path
    params: BatchParams
    device: str


@dataclass(frozen=True)
class PartResult:
    """The outcome of a part."""

    rows: int
    errors: int
    """Rows without a prediction."""
    failure: str = ""
    """Why the part could not be computed."""


def load_row_predictor(job: BatchJob, first: ParquetInput) -> RowPredictor:
    """Load the model of a job; `first` is the first file of the input."""
    folder = Path(job.run)
    if task_of_run(folder) == "table" or (folder / ESTIMATOR_FILE).is_file():
        from softlook.recipes.batch.table import TableRowPredictor  # noqa: PLC0415  (an extra)
        from softlook.recipes.tabular.predict import load_predictor  # noqa: PLC0415

        return TableRowPredictor(load_predictor(job.run, device=job.device), job.params)
    return create_text_predictor(load_pipeline(job.run, device=job.device), job.params, first)


class PartWorker:
    """Computes parts of a job."""

    def __init__(self, job: BatchJob, predictor: RowPredictor) -> None:
        self.job, self.predictor = job, predictor

    def compute(self, part: InputPart) -> PartResult:
        """Write the output file of a part, unless its input cannot be read."""
        try:
            return self._compute(part)
        except DataError as error:
            return PartResult(0, 0, str(error))

    def _compute(self, part: InputPart) -> PartResult:
        source, target = self.job.input / part.file, self.job.output / part.output
        kept = [field for field in parquet_schema(source) if field.name in self.job.params.keep]
        schema = pa.schema([*kept, *self.predictor.schema, (ERROR_COLUMN, pa.string())])
        columns = list(dict.fromkeys([*self.predictor.columns, *schema.names[: len(kept)]]))
        rows = errors = 0
        with _atomic_parquet(target, schema) as writer:
            for table in _read_row_groups(source, part.row_groups, columns):
                predicted, messages = predict_valid(self.predictor, table, part.first_row + rows)
                own = [table.column(field.name).cast(field.type) for field in kept]
                written = pa.table([*own, *predicted.columns, pa.array(messages, pa.string())], schema=schema)
                writer.write_table(written)
                rows, errors = rows + table.num_rows, errors + table.num_rows - messages.count(None)
            writer.add_key_value_metadata({ERRORS_KEY: str(errors)})
        return PartResult(rows, errors)


def _read_row_groups(path: Path, row_groups: range, columns: list[str]) -> Iterator[pa.Table]:
    try:
        for batch in parquet_batches(path, CHUNK_ROWS, columns=columns, row_groups=row_groups):
            yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise damaged_error(path, error) from None


def predict_valid(predictor: RowPredictor, rows: pa.Table, first_row: int) -> tuple[pa.Table, list[str | None]]:
    """Predictions for the valid rows of a table, nulls for the others, and the error of each row."""
    messages: list[str | None] = [None if valid else NO_INPUT for valid in predictor.has_input(rows).to_pylist()]

    def predict(numbers: Sequence[int]) -> pa.Table:
        if not numbers:
            return predictor.schema.empty_table()
        return predictor.predict(rows.take(list(numbers)), [first_row + number for number in numbers])

    valid = [number for number, message in enumerate(messages) if message is None]
    try:
        predicted = predict(valid)
    except DataError:
        for number, message in _find_errors(predict, valid):
            messages[number] = message
        valid = [number for number in valid if messages[number] is None]
        predicted = predict(valid)
    positions = {number: position for position, number in enumerate(valid)}
    return predicted.take(pa.array([positions.get(number) for number in range(rows.num_rows)], pa.int64())), messages


def _find_errors(predict: Callable[[Sequence[int]], object], numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The rows that cannot be predicted, and why, by halving: few of many rows are invalid."""
    try:
        predict(numbers)
    except DataError as error:
        if len(numbers) == 1:
            yield numbers[0], error.what
            return
        half = len(numbers) // 2
        yield from _find_errors(predict, numbers[:half])
        yield from _find_errors(predict, numbers[half:])


@contextmanager
def _atomic_parquet(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """A Parquet file that exists once it is complete."""
    partial = path.with_name(f".{path.name}.{token_hex(4)}.partial")
    with disk_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with pq.ParquetWriter(partial, schema) as writer:
                yield writer
            fsync(partial)
            partial.replace(path)
            fsync(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
