"""`softlook predict`: predict table rows."""

import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from softlook.base.errors import ConfigError, DataError
from softlook.cli.console import CommandResult, OutputStream, counter
from softlook.cli.options import DataArgs, DeviceOption
from softlook.data.files import compression_suffix
from softlook.data.streams import open_stream

if TYPE_CHECKING:
    import pyarrow as pa

    from softlook.cli.writers import PredictionColumns
    from softlook.recipes.tabular.predict import TableEvaluation, TablePredictions, TablePredictor

log = logging.getLogger("softlook.cli")
STDIN_PATH = "/dev/stdin"
"""The path a hyphen stands for."""


def predict(
    run: Annotated[str, Parameter(help="run directory of `softlook train table`, or a folder that an estimator saved")],
    /,
    *files: DataArgs,
    data: Annotated[
        tuple[Path, ...], Parameter(help="tables: .csv, .tsv, .jsonl, .parquet, also .gz and .zst; default: stdin")
    ] = (),
    out: Annotated[
        Path | None,
        Parameter(name=("--out", "--to"), help="new .csv, .tsv, .jsonl or .parquet file; default: stdout"),
    ] = None,
    keep: Annotated[tuple[str, ...], Parameter(help="columns to copy to the output, such as an id")] = (),
    probabilities: Annotated[bool, Parameter(help="add the probability of each class")] = False,
    explain: Annotated[bool, Parameter(help="add the attention on each column")] = False,
    device: DeviceOption = "auto",
) -> CommandResult | None:
    """Predict the target of table rows."""
    paths = (*files, *data)
    if Path(run).is_file():
        raise ConfigError(f"{run} is a file; the first argument must be a run: softlook predict RUN --data {run}")
    if not paths and (sys.stdin is None or sys.stdin.isatty()):
        raise ConfigError("no data given. Name a table: --data new.csv, or - for stdin")
    from softlook.recipes.tabular.predict import load_predictor  # noqa: PLC0415  (extras, and imports torch)

    predictor = PredictCommand(load_predictor(run, device=device), out, tuple(keep), probabilities, explain)
    with _stdin_as_file(paths or (Path(STDIN_PATH),)) as tables:
        return predictor.run(tables)


@dataclass(frozen=True)
class PredictCommand:
    """Predicts and writes the rows of tables."""

    table: "TablePredictor"
    out: Path | None = None
    keep: tuple[str, ...] = ()
    probabilities: bool = False
    explain: bool = False

    def run(self, files: list[Path]) -> CommandResult | None:
        """Write a row for each row, in order; report scores if the target is in the data."""
        from softlook.cli.writers import prediction_file  # noqa: PLC0415
        from softlook.recipes.tabular.predict import TableEvaluation  # noqa: PLC0415
        from softlook.tabular.io.chunked import locate_cell_errors  # noqa: PLC0415

        if self.probabilities and not self.table.classes:
            raise ConfigError(f"{self.table.name} is a regression model, which has no probabilities")
        output, evaluation = OutputStream(), TableEvaluation(self.table)
        chunks, kept = self.table.read_chunks(files), self.table.read_kept_columns(files, self.keep)
        writer = prediction_file(self.out, is_json=output.json)
        with locate_cell_errors(files), writer as file, counter(output, "rows") as count:
            for chunk, own in zip(chunks, kept, strict=False):  # `kept` is infinite if there is nothing to keep
                predictions = self.table.predict(chunk)
                file.add(self._columns(predictions, own))
                evaluation.add(predictions)
                count.add(chunk.num_rows)
        scores = evaluation.metrics()
        if scores:
            self._log_scores(evaluation, scores)
        return None if self.out is None else CommandResult(self.out, {"rows": count.count, "scores": scores})

    def _columns(self, predictions: "TablePredictions", kept: "pa.Table") -> "PredictionColumns":
        names, values = self.table.target, predictions.values
        columns: PredictionColumns = {name: kept.column(name).to_pylist() for name in self.keep}
        if values.ndim == 1:
            columns[names[0]] = values.tolist()
        else:
            columns |= {name: values[:, index].tolist() for index, name in enumerate(names)}
        if self.probabilities:
            classes = enumerate(map(str, self.table.classes))
            columns["probabilities"] = {label: predictions.raw[:, index].tolist() for index, label in classes}
        if self.explain:
            attention = self.table.explain(predictions.table)
            features = enumerate(self.table.features)
            columns["attention"] = {name: attention[:, index].tolist() for index, name in features}
        return columns

    def _log_scores(self, evaluation: "TableEvaluation", scores: dict[str, Any]) -> None:
        from softlook.recipes.run_dir.report import format_score, format_score_name  # noqa: PLC0415

        text = ", ".join(f"{format_score_name(name)} {format_score(value, name)}" for name, value in scores.items())
        log.info(f"{' and '.join(self.table.target)} is known for {evaluation.rows:,} rows: {text}")
        if evaluation.unknown_rows:
            unknown = f"{evaluation.unknown_rows:,} rows have a class that is not in the training data"
            log.info(f"{unknown}; they are not scored.")


@contextmanager
def _stdin_as_file(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Copy stdin to a file: a table is sniffed before it is read."""
    if Path(STDIN_PATH) not in files:
        yield list(files)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        if not path.stat().st_size:
            raise ConfigError("stdin is empty. Name a table: --data new.csv")
        try:
            path = _add_suffix(path)
            yield [path if one == Path(STDIN_PATH) else one for one in files]
        except DataError as error:
            error.file = "stdin" if error.file and Path(error.file).parent == path.parent else error.file
            raise


def _add_suffix(path: Path) -> Path:
    """Rename a file without a suffix according to its first bytes."""
    with path.open("rb") as file:
        start = file.read(4)
    compression = compression_suffix(start)
    path = path.rename(path.with_name(f"stdin{compression}"))
    head = next(open_stream(path), b"") if compression else start
    suffix = ".parquet" if head.startswith(b"PAR1") else ".jsonl" if head.lstrip().startswith(b"{") else ".csv"
    return path.rename(path.with_name(f"stdin{suffix}{compression}"))
