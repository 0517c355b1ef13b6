"""Prediction and evaluation on table files, chunk by chunk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.base.device import choose_device
from softlook.base.errors import ConfigError, DataError
from softlook.data.files import PathOrPaths, find_files
from softlook.recipes.config.resolve import suggest
from softlook.recipes.config.schema import Files
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.run_dir.layout import SETTINGS_FILE, load_run_config
from softlook.recipes.tabular.data import MAX_NAMES, STRING_TYPES, check_not_nested, read_schema
from softlook.recipes.tabular.target import normalize_booleans
from softlook.tabular.classifier import TableClassifier
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.formatting import join_names, plural
from softlook.tabular.io.arrow import pc
from softlook.tabular.io.chunked import locate_cell_errors
from softlook.tabular.io.files import read_table
from softlook.tabular.serialization import load
from softlook.tabular.training.metrics import compute_metrics
from softlook.weights.manifest import BEST_FILE, ESTIMATOR_FILE

DEFAULT_TARGET_NAME = "prediction"
"""For estimators that were fitted without a target name."""
UNSUPPORTED = {"multilabel": "several labels per row", "quantiles": "quantiles"}
"""Problems of estimators that only Python supports."""


@dataclass(frozen=True)
class TablePredictions:
    """Predictions for some rows."""

    table: pa.Table
    """The rows."""
    values: np.ndarray
    """(N,) classes or numbers; (N, K) for several targets."""
    raw: np.ndarray
    """(N, C): class probabilities, or standardized numbers."""


@dataclass(frozen=True)
class TablePredictor:
    """An estimator with its name and target names."""

    name: str
    estimator: TableEstimator
    target: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """The columns of the training table."""
        return self.estimator.encoder_.names

    @property
    def string_columns(self) -> list[str]:
        """The columns that are read as strings."""
        return [name for name, kind in self.estimator.encoder_.column_types.items() if kind in STRING_TYPES]

    @property
    def classes(self) -> list[Any]:
        """The class labels; empty for regression."""
        return self.estimator.classes_.tolist() if isinstance(self.estimator, TableClassifier) else []

    def read_chunks(self, data: PathOrPaths) -> Iterator[pa.Table]:
        """The rows of files in chunks."""
        files = find_files(data)
        schema = read_schema(files)
        names = schema.names
        self.check_columns(names, files[0])
        check_not_nested(schema, self.features, files[0])
        strings = [name for name in (*self.string_columns, *self.target) if name in names]
        return read_table(files, string_columns=strings)

    def read_kept_columns(self, data: PathOrPaths, keep: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of the same chunks, spelled as in the file."""
        if not keep:
            return repeat(pa.table({}))
        files = find_files(data)
        names = read_schema(files).names
        for name in keep:
            if name not in names:
                raise ConfigError(f"--keep: there is no column {name!r:.80}.{suggest(name, names)}")
            if name in self.target:
                raise ConfigError(f"--keep: {name!r:.80} is the target, which is predicted")
        chunks = read_table(files, string_columns=keep, keep_spelling=True)
        return (chunk.select(list(keep)) for chunk in chunks)

    def check_columns(self, names: Sequence[str], file: Path | None = None) -> None:
        """Raise an error if a column is missing."""
        absent = [name for name in self.features if name not in names]
        if absent:
            others = [name for name in names if name not in self.features and name not in self.target]
            found = f"; found instead: {join_names(others, MAX_NAMES)}." if others else "."
            raise DataError(
                f"{self.name} requires {plural(len(self.features), 'column')}; {len(absent)} of them "
                f"{'is' if len(absent) == 1 else 'are'} missing: {join_names(absent, MAX_NAMES)}",
                file=file,
                help=f"columns match by name{found}{suggest(absent[0], others)} Unknown cells may be empty",
            )

    def predict(self, table: pa.Table) -> TablePredictions:
        """Predictions for rows, in order."""
        rows = table.select(list(self.features))
        if isinstance(self.estimator, TableClassifier):
            raw = self.estimator.predict_proba(rows)
            return TablePredictions(table, self.estimator.classes_[raw.argmax(1)], raw)
        raw = self.estimator._predict_raw(rows)
        target: Any = self.estimator.target_
        return TablePredictions(table, target.inverse_transform(raw), raw)

    def explain(self, table: pa.Table) -> np.ndarray:
        """(N, features): attention to each column."""
        return self.estimator.explain_rows(table.select(list(self.features)))


class TableEvaluation:
    """Metrics of predictions, accumulated over chunks with known targets."""

    def __init__(self, predictor: TablePredictor) -> None:
        self.predictor, self.rows, self.unknown_rows = predictor, 0, 0
        self.raw: list[np.ndarray] = []
        self.targets: list[np.ndarray] = []

    def add(self, predictions: TablePredictions) -> None:
        """Add a chunk; rows without a target are skipped."""
        names = self.predictor.target
        if any(name not in predictions.table.column_names for name in names):
            return
        columns = [predictions.table.column(name) for name in names]
        is_known = np.logical_and.reduce([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in columns])
        targets, is_valid = self._encode([column.filter(pa.array(is_known)) for column in columns])
        self.unknown_rows += int((~is_valid).sum())
        self.rows += int(is_valid.sum())
        self.raw.append(predictions.raw[is_known][is_valid])
        self.targets.append(targets[is_valid])

    def metrics(self) -> dict[str, float]:
        """The metrics; empty if no row has a target."""
        if not self.rows:
            return {}
        return compute_metrics(self.predictor.estimator.target_, np.concatenate(self.raw), np.concatenate(self.targets))

    def _encode(self, columns: list[pa.ChunkedArray]) -> tuple[np.ndarray, np.ndarray]:
        """Encoded targets, and which of them are known classes or finite numbers."""
        if classes := self.predictor.classes:
            codes = {str(label): code for code, label in enumerate(classes)}
            labels = normalize_booleans(columns[0], classes)
            encoded = np.array([codes.get(str(label), -1) for label in labels], dtype=np.int64)
            return encoded, np.greater_equal(encoded, 0)
        try:
            numbers = np.stack([pc.cast(column, pa.float64()).to_numpy() for column in columns], 1)
        except pa.ArrowInvalid as error:
            raise DataError(f"{', '.join(self.predictor.target)}: {str(error):.200}") from None
        target: Any = self.predictor.estimator.target_
        is_valid = np.asarray(np.isfinite(numbers).all(axis=1))
        return target.encode(numbers.reshape(len(numbers), *target.shape)), is_valid


def load_predictor(run: str | Path, *, device: str = "auto") -> TablePredictor:
    """Load an estimator from a run of `softlook train table`, or from a folder written by `save`."""
    folder = Path(run)
    choose_device(device)
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {str(run)!r:.200}. `softlook runs` lists all runs.")
    config = load_run_config(folder) if (folder / SETTINGS_FILE).is_file() else None
    if config is not None and not isinstance(config, TabularConfig):
        command = config.inference_command
        raise ConfigError(f"{folder} is a text model, not a table model. Try: softlook {command} {folder}")
    if config is not None and not (folder / BEST_FILE).is_file():
        raise ConfigError(f"{folder} has no checkpoint yet. Run its command again to resume training.")
    if config is None and not (folder / BEST_FILE).is_file() and not (folder / ESTIMATOR_FILE).is_file():
        raise ConfigError(f"{folder} is neither a run nor an estimator. `softlook runs {folder}` lists the runs in it.")
    estimator: TableEstimator = load(folder).set_params(device=device)
    if not hasattr(estimator, "model_"):
        raise ConfigError(
            f"{folder} is pretrained, but not fitted to labels. Fit and save it first: "
            f"softlook.tabular.load({str(folder)!r}).fit(X, y)"
        )
    if (problem := UNSUPPORTED.get(estimator.target_.problem)) is not None:
        raise ConfigError(
            f"{folder} predicts {problem}. Commands and the server support one class, or numbers, per row. "
            f"In Python: softlook.tabular.load({str(folder)!r}).predict(X)"
        )
    return TablePredictor(str(run), estimator, config.target if config else _default_target(estimator))


def evaluate_table(run: Path, data: Files, *, device: str = "auto") -> dict[str, Any]:
    """The metrics of a model on table files."""
    predictor = load_predictor(run, device=device)
    evaluation = TableEvaluation(predictor)
    with locate_cell_errors(data):
        for chunk in predictor.read_chunks(data):
            evaluation.add(predictor.predict(chunk))
    if evaluation.unknown_rows and not evaluation.rows:
        classes = join_names(predictor.classes, MAX_NAMES)
        raise DataError(f"no row has a known class in {predictor.target[0]}: expected {classes}")
    if not evaluation.rows:
        raise DataError(f"no row has a value in {' and '.join(predictor.target)}: there is nothing to evaluate")
    return {"rows": evaluation.rows, **evaluation.metrics()}


def _default_target(estimator: TableEstimator) -> tuple[str, ...]:
    count = len(getattr(estimator.target_, "shape", ())) and estimator.target_.outputs
    names = tuple(f"{DEFAULT_TARGET_NAME} {number}" for number in range(1, count + 1))
    return names or (DEFAULT_TARGET_NAME,)
