"""Answers about the rows of tables, from a run or from an estimator's folder, a piece of a table at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.base.errors import ConfigError, DataError
from softlook.data.files import Given, find
from softlook.recipes.evaluation import settings_of
from softlook.recipes.remembering import SETTINGS
from softlook.recipes.settings import Files, Table
from softlook.recipes.tables_data import SHOWN, WORDS, refuse_nested, schema_in
from softlook.recipes.tables_target import spelled
from softlook.recipes.told import meant
from softlook.tabular.classifier import TableClassifier
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.learning.metrics import judged
from softlook.tabular.saving import load
from softlook.tabular.sources.arrow import pc
from softlook.tabular.sources.bad_cells import told_where
from softlook.tabular.sources.files import read_table
from softlook.tabular.wording import many, named
from softlook.train.device import choose_device
from softlook.weights.runs import BEST, ESTIMATOR

ASK = {"translate": "translate", "lm": "generate", "classify": "classify", "fill": "embed", "vectors": "embed"}
"""How runs that are about text are asked."""
UNNAMED = "prediction"
"""What is predicted, where an estimator was never told its name."""


@dataclass(frozen=True)
class Answered:
    """What is said of some rows."""

    table: pa.Table
    """The rows themselves."""
    values: np.ndarray
    """(N,) classes or numbers; (N, K) of several numbers."""
    raw: np.ndarray
    """(N, C): probabilities in the order of the classes, or numbers in units of learning."""


@dataclass(frozen=True)
class OpenedTable:
    """An estimator with the names around it."""

    name: str
    estimator: TableEstimator
    target: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.estimator.columns_.names

    @property
    def words(self) -> list[str]:
        """Those whose cells are taken as they are spelled."""
        return [name for name, kind in self.estimator.columns_.kinds.items() if kind in WORDS]

    @property
    def classes(self) -> list[Any]:
        """What it may answer; nothing where it answers in numbers."""
        return self.estimator.classes_.tolist() if isinstance(self.estimator, TableClassifier) else []

    def pieces(self, data: Given) -> Iterator[pa.Table]:
        """The rows of files, a part at a time."""
        files = find(data)
        schema = schema_in(files)
        names = schema.names
        self.check(names, files[0])
        refuse_nested(schema, self.features, files[0])
        words = [name for name in (*self.words, *self.target) if name in names]
        return read_table(files, words=words)

    def kept(self, data: Given, keep: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of the same parts, every cell as it is spelled in its file, for whoever hands them on."""
        if not keep:
            return repeat(pa.table({}))
        files = find(data)
        self._check_kept(keep, schema_in(files).names)
        parts = read_table(files, words=keep, as_spelled=True)
        return (part.select(list(keep)) for part in parts)

    def check(self, names: Sequence[str], file: Path | None = None) -> None:
        """Is every column there?"""
        absent = [name for name in self.features if name not in names]
        if absent:
            others = [name for name in names if name not in self.features and name not in self.target]
            there = f"; others are there: {named(others, SHOWN)}." if others else "."
            raise DataError(
                f"{self.name} reads {many(len(self.features), 'column')}, and {len(absent)} of them "
                f"{'is' if len(absent) == 1 else 'are'} not there: {named(absent, SHOWN)}",
                file=file,
                help=f"columns go by name{there}{meant(absent[0], others)} Cells that nobody knows may be empty",
            )

    def _check_kept(self, keep: Sequence[str], names: Sequence[str]) -> None:
        for name in keep:
            if name not in names:
                raise ConfigError(f"--keep names {name!r:.80}, and there is no such column.{meant(name, names)}")
            if name in self.target:
                raise ConfigError(f"--keep names {name!r:.80}, which is what is predicted: there would be two of it")

    def answer(self, table: pa.Table) -> Answered:
        """What is said of these rows, in their order."""
        rows = table.select(list(self.features))
        if isinstance(self.estimator, TableClassifier):
            raw = self.estimator.predict_proba(rows)
            return Answered(table, self.estimator.classes_[raw.argmax(1)], raw)
        raw = self.estimator._answers(rows)
        return Answered(table, self.estimator.targets_.read(raw), raw)  # pyright: ignore[reportAttributeAccessIssue]

    def explain(self, table: pa.Table) -> np.ndarray:
        """(N, features): how much is looked at each column."""
        return self.estimator.explain_rows(table.select(list(self.features)))


class Tally:
    """What answers are worth, where the right ones are known."""

    def __init__(self, run: OpenedTable) -> None:
        self.run, self.rows, self.strange = run, 0, 0
        self.raw: list[np.ndarray] = []
        self.wanted: list[np.ndarray] = []

    def add(self, answered: Answered) -> None:
        """Some rows more; those whose target is not known do not count."""
        names = self.run.target
        if any(name not in answered.table.column_names for name in names):
            return
        columns = [answered.table.column(name) for name in names]
        known = np.logical_and.reduce([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in columns])
        words = [column.filter(pa.array(known)) for column in columns]
        wanted, sound = self._codes(words)
        self.strange += int((~sound).sum())
        self.rows += int(sound.sum())
        self.raw.append(answered.raw[known][sound])
        self.wanted.append(wanted[sound])

    def scores(self) -> dict[str, float]:
        """Nothing where no row knew what was wanted."""
        if not self.rows:
            return {}
        return judged(self.run.estimator.targets_, np.concatenate(self.raw), np.concatenate(self.wanted))

    def _codes(self, words: list[pa.ChunkedArray]) -> tuple[np.ndarray, np.ndarray]:
        """What was wanted as the estimator has it, and where that is something it knows."""
        if classes := self.run.classes:
            codes = {str(label): code for code, label in enumerate(classes)}
            found = np.array([codes.get(str(word), -1) for word in spelled(words[0], classes)], dtype=np.int64)
            return found, np.greater_equal(found, 0)
        try:
            numbers = np.stack([pc.cast(column, pa.float64()).to_numpy() for column in words], 1)
        except pa.ArrowInvalid as fault:
            raise DataError(f"{', '.join(self.run.target)}: {str(fault):.200}") from None
        shape = self.run.estimator.targets_.shape  # pyright: ignore[reportAttributeAccessIssue]
        sound = np.asarray(np.isfinite(numbers).all(axis=1))
        return self.run.estimator.targets_.encode(numbers.reshape(len(numbers), *shape)), sound


def opened_table(run: str | Path, *, device: str = "auto") -> OpenedTable:
    """An estimator ready to answer: of the folder of a run of `softlook train table`, or of what `save` wrote."""
    folder = Path(run)
    choose_device(device)
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {str(run)!r:.200}. `softlook runs` lists the runs there are.")
    settings = settings_of(folder) if (folder / SETTINGS).is_file() else None
    if settings is not None and not isinstance(settings, Table):
        task = next(word for name, word in ASK.items() if type(settings).__name__.lower() == name)
        raise ConfigError(f"{folder} is about texts, and answers about no tables. Try: softlook {task} {folder}")
    if settings is not None and not (folder / BEST).is_file():
        raise ConfigError(f"{folder} has no checkpoint yet. Train on: the command that began it goes on with it.")
    if settings is None and not (folder / BEST).is_file() and not (folder / ESTIMATOR).is_file():
        raise ConfigError(
            f"{folder} holds neither a run nor an estimator. `softlook runs {folder}` looks further down."
        )
    estimator: TableEstimator = load(folder).set_params(device=device)
    if not hasattr(estimator, "model_"):
        raise ConfigError(
            f"{folder} holds what pretrain learned, and has seen no labels yet. Fit it first, and save that: "
            f"softlook.tabular.load({str(folder)!r}).fit(X, y)"
        )
    return OpenedTable(str(run), estimator, settings.target if settings else _unnamed(estimator))


def evaluated(run: Path, data: Files, *, device: str = "auto") -> dict[str, Any]:
    """Scores on other data."""
    opened = opened_table(run, device=device)
    tally = Tally(opened)
    with told_where(data):
        for piece in opened.pieces(data):
            tally.add(opened.answer(piece))
    if tally.strange and not tally.rows:
        raise DataError(f"not one row holds a {opened.target[0]} that is known: {named(opened.classes, SHOWN)}")
    if not tally.rows:
        raise DataError(f"no row says what {' and '.join(opened.target)} is, so there is nothing to compare with")
    return {"rows": tally.rows, **tally.scores()}


def _unnamed(estimator: TableEstimator) -> tuple[str, ...]:
    count = len(getattr(estimator.targets_, "shape", ())) and estimator.targets_.outputs
    return tuple(f"{UNNAMED} {place}" for place in range(1, count + 1)) if count else (UNNAMED,)
