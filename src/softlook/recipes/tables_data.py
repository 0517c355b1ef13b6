"""The tables of a run: read, with what is to be predicted taken apart from what it is predicted from."""

import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from softlook.base.errors import ConfigError, DataError
from softlook.data.digest import data_digest
from softlook.data.files import find
from softlook.recipes.settings import Files, Table
from softlook.recipes.tables_target import Seen, Target, decided
from softlook.recipes.told import meant
from softlook.tabular.encoding.kinds import KINDS
from softlook.tabular.learning.stored_rows import Room
from softlook.tabular.sources.bad_cells import told_where
from softlook.tabular.sources.files import read_table
from softlook.tabular.wording import named

WORDS = ("category", "boolean", "ordinal", "text")
"""Kinds of columns whose cells are taken as they are spelled."""
SHOWN, LISTED = 12, 40
"""Names of columns that an error shows; and those that are listed for somebody to choose from."""


class Part(NamedTuple):
    """Rows, and what is wanted of them; of a table too large to be held, its pieces, and which columns that is."""

    X: Any
    y: Any


@dataclass(frozen=True)
class TableData:
    """All that a run reads."""

    target: Target
    train: Part
    shape: tuple[int, int]
    """Rows to learn from, and columns."""
    valid: Part | None
    test: Part | None
    digest: str
    """Of what is learned from, and of what is held out."""
    said: list[str]


def read_data(settings: Table) -> TableData:
    """Every file that is named. What can be known to be wrong is said before the last row is read."""
    with told_of(settings):
        return first_pass(settings).data()


def first_pass(settings: Table) -> "FirstPass":
    """The files to learn from, once every column is there that somebody named."""
    files = find(settings.data)
    schema = schema_in(files)
    check_names(settings, schema.names)
    refuse_nested(schema, set(schema.names) - set(settings.ignore), files[0])
    return FirstPass(files, schema.names, settings)


class FirstPass:
    """Files that have been gone through once: what their target holds is known, and they are held where they fit."""

    def __init__(self, files: list[Path], names: list[str], settings: Table) -> None:
        self.files, self.names, self.settings, self.gone = files, names, settings, 0
        kinds = kinds_of(settings)
        self.words = {*settings.target, *orders_of(settings), *(name for name in kinds if kinds[name] in WORDS)}
        self.seen = [Seen(name) for name in settings.target]
        self.held: list[pa.Table] | None = []
        room, taken = Room.of(memory_limit_of(settings)).raw, 0
        for piece in self._pieces(files):
            for one in self.seen:
                one.add(piece.column(one.name))
            taken += piece.nbytes
            self.held = None if self.held is None or taken > room else [*self.held, piece]
        if not self.seen[0].rows:
            raise DataError(f"not one row has a value in {', '.join(map(repr, settings.target))}", file=files[0])

    def data(self) -> TableData:
        """All that a run reads, with what is to be predicted taken apart."""
        settings = self.settings
        target = decided(self.seen, settings.answers)
        valid, test = (self.others(given, target) for given in (settings.valid, settings.test))
        digest = data_digest([*self.files, *(find(settings.valid) if settings.valid else [])])
        shape = self.seen[0].rows, len(self.features)
        return TableData(target, self.rows(target), shape, valid, test, digest, [target.said, *self.said()])

    @property
    def features(self) -> list[str]:
        """The columns that are learned from."""
        return [name for name in self.names if name not in {*self.settings.target, *self.settings.ignore}]

    def rows(self, target: Target) -> Part:
        """What is learned from."""
        if self.held is not None:
            return self._parted(pa.concat_tables(self.held), target)
        names = list(target.names)
        return Part(lambda: self._with_targets(target), names[0] if len(names) == 1 else names)

    def others(self, given: Files, target: Target) -> Part | None:
        """Held-out or test rows: the columns of the data, with labels that are known there."""
        if not given:
            return None
        files = find(given)
        names = schema_in(files).names
        for wanted, what in ((target.names, "to be predicted"), (self.features, "in the data, and learned from")):
            absent = [name for name in wanted if name not in names]
            if absent:
                raise DataError(f"there is no column {absent[0]!r:.80}, which is {what}", file=files[0])
        return self._parted(pa.concat_tables(self._pieces(files)), target)

    def said(self) -> list[str]:
        """What else there is to say."""
        names = " and ".join(self.settings.target)
        gone = [f"{self.gone:,} rows without {names} were left out."] if self.gone else []
        return gone if self.held is not None else [*gone, "The table is large: its rows are learned from the disk."]

    def _pieces(self, files: list[Path]) -> Iterator[pa.Table]:
        """Rows whose target is known."""
        count = 0
        for piece in read_table(files, words=self.words):
            whole = piece
            for name in self.settings.target:
                whole = whole.filter(whole.column(name).is_valid())
            count += piece.num_rows - whole.num_rows
            yield whole
        self.gone = count if files is self.files else self.gone

    def _parted(self, table: pa.Table, target: Target) -> Part:
        return Part(table.select(self.features), target.values(table))

    def _with_targets(self, target: Target) -> Iterator[pa.Table]:
        for piece in self._pieces(self.files):
            X, y = self._parted(piece, target)
            columns = [y] if y.ndim == 1 else [y[:, place] for place in range(y.shape[1])]
            for name, column in zip(target.names, columns, strict=True):
                X = X.append_column(name, pa.array(column))
            yield X


def told_of(settings: Table) -> AbstractContextManager[None]:
    """What is wrong with a cell is said with its place in the files that a run reads."""
    return told_where((*settings.data, *settings.valid, *settings.test))


def schema_in(files: list[Path]) -> pa.Schema:
    """The columns of a table, and what is in them."""
    first = next(iter(read_table(files)), None)
    if first is None:
        raise DataError("there is not one row in it", file=files[0])
    return first.schema


def refuse_nested(schema: pa.Schema, names: Collection[str], file: Path) -> None:
    """A cell is one thing, not a list of them."""
    for field in schema:
        if field.name in names and pa.types.is_nested(field.type):
            raise DataError(
                f"column {field.name!r:.80} holds {str(field.type):.80}, and a cell is a number, a word or a date",
                file=file,
                help="give what it holds columns of its own, or leave it out when learning: "
                f"--ignore {shlex.quote(field.name)}",
            )


def memory_limit_of(settings: Table) -> float | None:
    """Bytes that a table may take up."""
    return None if settings.training.memory_limit is None else settings.training.memory_limit * 1e9


def check_names(settings: Table, names: Collection[str]) -> None:
    """Is every column there that somebody named?"""
    if not settings.target:
        raise ConfigError(f"which column is to be predicted? --target names it. There are {_listed(names)}")
    given = {"target": settings.target, "ignore": settings.ignore}
    given |= {"kinds": tuple(kinds_of(settings)), "ordinal": tuple(orders_of(settings))}
    for option, wanted in given.items():
        for name in wanted:
            if name not in names:
                raise ConfigError(
                    f"--{option} names {name!r:.80}, and there is no such column.{meant(name, names)} "
                    f"There are {_listed(names)}"
                )
    if set(settings.target) & set(settings.ignore):
        raise ConfigError(f"{settings.target[0]!r} is both to be predicted and to be left out")
    if len(set(names) - set(settings.target) - set(settings.ignore)) == 0:
        raise ConfigError("no column is left to predict from")


def kinds_of(settings: Table) -> dict[str, str]:
    """What columns were said to be.

    >>> kinds_of(Table(kinds=("zip=category",)))
    {'zip': 'category'}
    """
    found = _pairs(settings.kinds, "kinds", "zip=category")
    for name, kind in found.items():
        if kind not in KINDS:
            raise ConfigError(f"--kinds: {name!r:.80} is to be {kind!r:.80}. It may be {', '.join(KINDS)}")
    return found


def orders_of(settings: Table) -> dict[str, list[str]]:
    """Values in their order.

    >>> orders_of(Table(ordinal=("size=S,M,L",)))
    {'size': ['S', 'M', 'L']}
    """
    return {name: words.split(",") for name, words in _pairs(settings.ordinal, "ordinal", "size=S,M,L").items()}


def class_weights_of(settings: Table, target: Target) -> dict[Any, float] | str | None:
    """What each class weighs, by the class itself."""
    if not settings.class_weights:
        return None
    if target.answers == "numbers":
        raise ConfigError("--class-weights is for classes, and numbers are predicted here")
    if settings.class_weights == ("balanced",):
        return "balanced"
    classes = {str(label): label for label in target.labels}
    found: dict[Any, float] = {}
    for name, weight in _pairs(settings.class_weights, "class-weights", "yes=3").items():
        if name not in classes:
            there = f"{meant(name, classes)} There are {named(list(classes), SHOWN)}."
            raise ConfigError(f"--class-weights: there is no class {name!r:.80}.{there}")
        try:
            found[classes[name]] = float(weight)
        except ValueError:
            raise ConfigError(f"--class-weights: {name!r:.80} is to weigh a number; {weight!r:.80} came") from None
    return found


def _pairs(given: Iterable[str], option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        name, sign, value = one.rpartition("=") if option != "ordinal" else one.partition("=")
        if not sign or not name or not value:
            raise ConfigError(f"--{option} is told as {example}; {one!r:.80} came")
        found[name] = value
    return found


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:LISTED])
    return shown if len(names) <= LISTED else f"{shown} and {len(names) - LISTED} more"
