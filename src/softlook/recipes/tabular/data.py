"""Table data of a run: training, validation and test splits."""

import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from softlook.base.activity import report_activity
from softlook.base.errors import ConfigError, DataError
from softlook.data.files import find_files
from softlook.data.split import data_digest
from softlook.recipes.config.resolve import suggest
from softlook.recipes.config.schema import Files
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.tabular.target import TargetColumnStats, TargetSpec, infer_target
from softlook.tabular.formatting import join_names
from softlook.tabular.io.chunked import locate_cell_errors
from softlook.tabular.io.files import read_table
from softlook.tabular.preprocessing.column_types import COLUMN_TYPES
from softlook.tabular.training.row_store import MemoryBudget

STRING_TYPES = ("category", "boolean", "ordinal", "text")
"""Types of columns that are read as strings."""
MAX_NAMES, MAX_LISTED_NAMES = 12, 40
"""Column names in an error message; and in a list to choose from."""


class TableSplit(NamedTuple):
    """Features and targets; for a table that does not fit in memory, its chunks and the target's column name."""

    X: Any
    y: Any


@dataclass(frozen=True)
class TableData:
    """The data of a run."""

    target: TargetSpec
    train: TableSplit
    shape: tuple[int, int]
    """Training rows, and columns."""
    valid: TableSplit | None
    test: TableSplit | None
    digest: str
    """Of training and validation files."""
    description: list[str]


def load_table(config: TabularConfig) -> TableData:
    """Read all files of a config."""
    with locate_data_errors(config):
        return scan_table(config).data()


def scan_table(config: TabularConfig) -> "TableScan":
    """Check the column names of the training files, and read them once."""
    report_activity("reading the table")
    files = find_files(config.data)
    schema = read_schema(files)
    check_column_names(config, schema.names)
    check_not_nested(schema, set(schema.names) - set(config.ignore), files[0])
    return TableScan(files, schema.names, config)


class TableScan:
    """Training files that were read once: statistics of the target, and the table if it fits in memory."""

    def __init__(self, files: list[Path], names: list[str], config: TabularConfig) -> None:
        self.files, self.names, self.config, self.unlabelled = files, names, config, 0
        types = parse_column_types(config)
        strings = (name for name in types if types[name] in STRING_TYPES)
        self.string_columns = {*config.target, *parse_ordinal_categories(config), *strings}
        self.target_stats = [TargetColumnStats(name) for name in config.target]
        self.in_memory: list[pa.Table] | None = []
        max_bytes, size = MemoryBudget.of(memory_limit_bytes(config)).table, 0
        for chunk in self._labelled_chunks(files):
            for stats in self.target_stats:
                stats.update(chunk.column(stats.name))
            size += chunk.nbytes
            self.in_memory = None if self.in_memory is None or size > max_bytes else [*self.in_memory, chunk]
        if not self.target_stats[0].rows:
            raise DataError(f"no row has a value in {', '.join(map(repr, config.target))}", file=files[0])

    def data(self) -> TableData:
        """Infer the target, and read validation and test files."""
        config = self.config
        target = infer_target(self.target_stats, config.problem)
        valid, test = (self._read_split(files, target) for files in (config.valid, config.test))
        digest = data_digest([*self.files, *(find_files(config.valid) if config.valid else [])])
        shape = self.target_stats[0].rows, len(self.features)
        description = [target.description, *self._describe()]
        return TableData(target, self._train_split(target), shape, valid, test, digest, description)

    @property
    def features(self) -> list[str]:
        """The feature columns."""
        return [name for name in self.names if name not in {*self.config.target, *self.config.ignore}]

    def _train_split(self, target: TargetSpec) -> TableSplit:
        if self.in_memory is not None:
            return self._split(pa.concat_tables(self.in_memory), target)
        names = list(target.names)
        return TableSplit(lambda: self._chunks_with_targets(target), names[0] if len(names) == 1 else names)

    def _read_split(self, given: Files, target: TargetSpec) -> TableSplit | None:
        """Validation or test rows, with the columns of the training data."""
        if not given:
            return None
        files = find_files(given)
        names = read_schema(files).names
        for required, what in ((target.names, "the target"), (self.features, "a column of the training data")):
            absent = [name for name in required if name not in names]
            if absent:
                raise DataError(f"there is no column {absent[0]!r:.80}, which is {what}", file=files[0])
        return self._split(pa.concat_tables(self._labelled_chunks(files)), target)

    def _describe(self) -> list[str]:
        names = " and ".join(self.config.target)
        dropped = [f"{self.unlabelled:,} rows without {names} were dropped."] if self.unlabelled else []
        return dropped if self.in_memory is not None else [*dropped, "The table is large: rows are read from disk."]

    def _labelled_chunks(self, files: list[Path]) -> Iterator[pa.Table]:
        """Chunks of the rows with a target."""
        unlabelled = 0
        for chunk in read_table(files, string_columns=self.string_columns):
            labelled = chunk
            for name in self.config.target:
                labelled = labelled.filter(labelled.column(name).is_valid())
            unlabelled += chunk.num_rows - labelled.num_rows
            yield labelled
        self.unlabelled = unlabelled if files is self.files else self.unlabelled

    def _split(self, table: pa.Table, target: TargetSpec) -> TableSplit:
        return TableSplit(table.select(self.features), target.values(table))

    def _chunks_with_targets(self, target: TargetSpec) -> Iterator[pa.Table]:
        for chunk in self._labelled_chunks(self.files):
            X, y = self._split(chunk, target)
            columns = [y] if y.ndim == 1 else [y[:, index] for index in range(y.shape[1])]
            for name, column in zip(target.names, columns, strict=True):
                X = X.append_column(name, pa.array(column))
            yield X


def locate_data_errors(config: TabularConfig) -> AbstractContextManager[None]:
    """Add file and line to errors about cells of a run's files."""
    return locate_cell_errors((*config.data, *config.valid, *config.test))


def read_schema(files: list[Path]) -> pa.Schema:
    """The columns and types of a table."""
    first = next(iter(read_table(files)), None)
    if first is None:
        raise DataError("the table has no rows", file=files[0])
    return first.schema


def check_not_nested(schema: pa.Schema, names: Collection[str], file: Path) -> None:
    """Raise an error if a column holds lists or structs."""
    for field in schema:
        if field.name in names and pa.types.is_nested(field.type):
            raise DataError(
                f"column {field.name!r:.80}: expected numbers, strings or dates, got {str(field.type):.80}",
                file=file,
                help=f"split it into columns, or leave it out in training: --ignore {shlex.quote(field.name)}",
            )


def memory_limit_bytes(config: TabularConfig) -> float | None:
    """The memory limit of the table in bytes."""
    return None if config.training.memory_limit is None else config.training.memory_limit * 1e9


def check_column_names(config: TabularConfig, names: Collection[str]) -> None:
    """Raise an error if the config names a column that does not exist."""
    if not config.target:
        raise ConfigError(f"no target column is given. Set --target to one of {_list_names(names)}")
    given = {
        "target": config.target,
        "ignore": config.ignore,
        "column-types": tuple(parse_column_types(config)),
        "ordinal-categories": tuple(parse_ordinal_categories(config)),
    }
    for option, columns in given.items():
        for name in columns:
            if name not in names:
                raise ConfigError(
                    f"--{option}: there is no column {name!r:.80}.{suggest(name, names)} Columns: {_list_names(names)}"
                )
    if set(config.target) & set(config.ignore):
        raise ConfigError(f"{config.target[0]!r} is both in --target and in --ignore")
    if len(set(names) - set(config.target) - set(config.ignore)) == 0:
        raise ConfigError("there is no feature column left to predict from")


def parse_column_types(config: TabularConfig) -> dict[str, str]:
    """The column types of a config.

    >>> parse_column_types(TabularConfig(column_types=("zip=category",)))
    {'zip': 'category'}
    """
    types = _parse_pairs(config.column_types, "column-types", "zip=category")
    for name, column_type in types.items():
        if column_type not in COLUMN_TYPES:
            raise ConfigError(
                f"--column-types: expected one of {', '.join(COLUMN_TYPES)} for {name!r:.80}; got {column_type!r:.80}"
            )
    return types


def parse_ordinal_categories(config: TabularConfig) -> dict[str, list[str]]:
    """The ordered values of ordinal columns.

    >>> parse_ordinal_categories(TabularConfig(ordinal_categories=("size=S,M,L",)))
    {'size': ['S', 'M', 'L']}
    """
    pairs = _parse_pairs(config.ordinal_categories, "ordinal-categories", "size=S,M,L")
    return {name: values.split(",") for name, values in pairs.items()}


def parse_class_weights(config: TabularConfig, target: TargetSpec) -> dict[Any, float] | str | None:
    """The weight of each class, by its label."""
    if not config.class_weights:
        return None
    if target.problem == "regression":
        raise ConfigError("--class-weights requires a classification problem; this is a regression problem")
    if config.class_weights == ("balanced",):
        return "balanced"
    labels = {str(label): label for label in target.labels}
    weights: dict[Any, float] = {}
    for name, weight in _parse_pairs(config.class_weights, "class-weights", "yes=3").items():
        if name not in labels:
            hint = f"{suggest(name, labels)} Classes: {join_names(list(labels), MAX_NAMES)}."
            raise ConfigError(f"--class-weights: there is no class {name!r:.80}.{hint}")
        try:
            weights[labels[name]] = float(weight)
        except ValueError:
            raise ConfigError(f"--class-weights: expected a number for {name!r:.80}; got {weight!r:.80}") from None
    return weights


def _parse_pairs(given: Iterable[str], option: str, example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for one in given:
        name, sign, value = one.rpartition("=") if option != "ordinal-categories" else one.partition("=")
        if not sign or not name or not value:
            raise ConfigError(f"--{option}: expected the form {example}; got {one!r:.80}")
        pairs[name] = value
    return pairs


def _list_names(names: Collection[str]) -> str:
    listed = ", ".join(list(names)[:MAX_LISTED_NAMES])
    return listed if len(names) <= MAX_LISTED_NAMES else f"{listed} and {len(names) - MAX_LISTED_NAMES} more"
