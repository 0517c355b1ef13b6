"""The tables of the accuracy figures, split as the papers split them.

California, Adult and Covertype are FT-Transformer's (Gorishniy et al. 2021) and have one split; a seed changes the
model alone. Bank, blastchar and income are TabTransformer's (Huang et al. 2020): five splits by chance, 65 / 15 / 20.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import pandas
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

Measure = Literal["RMSE", "accuracy", "AUC"]


@dataclass(frozen=True)
class Rows:
    """Some rows of a table, and what is wanted of them: numbers, or classes counted from 0."""

    frame: pandas.DataFrame
    wanted: np.ndarray

    def take(self, which: np.ndarray) -> "Rows":
        return Rows(self.frame.iloc[which].reset_index(drop=True), self.wanted[which])

    def __len__(self) -> int:
        return len(self.wanted)


@dataclass(frozen=True)
class Table:
    """A table in three parts. Whoever learns is given the second to stop by, and is judged by the third."""

    name: str
    measure: Measure
    train: Rows
    validation: Rows
    test: Rows

    @property
    def classes(self) -> int:
        """How many there are to choose from; 0 where a number is wanted."""
        return 0 if self.measure == "RMSE" else int(max(part.wanted.max() for part in self.parts)) + 1

    @property
    def parts(self) -> tuple[Rows, Rows, Rows]:
        return self.train, self.validation, self.test

    @property
    def words(self) -> list[str]:
        """The columns that are no numbers."""
        frame = self.train.frame
        return [name for name in frame.columns if not pandas.api.types.is_numeric_dtype(frame[name])]

    def first(self, rows: int | None) -> "Table":
        """The same with at most so many rows in each part, for trying out."""
        if rows is None:
            return self
        train, validation, test = (part.take(np.arange(min(rows, len(part)))) for part in self.parts)
        return replace(self, train=train, validation=validation, test=test)


def score(table: Table, answers: np.ndarray) -> dict[str, float]:
    """What answers to the test rows are worth: (N,) numbers, or (N, classes) probabilities."""
    wanted = table.test.wanted
    if table.measure == "RMSE":
        return {"RMSE": float(np.sqrt(np.mean((answers - wanted) ** 2)))}
    found = {"accuracy": float((answers.argmax(1) == wanted).mean())}
    found["log loss"] = float(log_loss(wanted, answers.clip(1e-9, 1), labels=np.arange(table.classes)))
    return found | ({"AUC": float(roc_auc_score(wanted, answers[:, 1]))} if table.classes == 2 else {})


# --- one split -------------------------------------------------------------------------------------------------------


def california(folder: Path) -> Table:
    """The very rows of the paper, which are listed beside the table."""
    rows = _read(folder, "california_housing/california_housing", "MedHouseVal")
    part = pandas.read_csv(folder / "california_housing" / "rtdl_split.csv.gz")["split"].to_numpy()
    return _cut("california", "RMSE", rows, {name: np.flatnonzero(part == name) for name in ("train", "val", "test")})


def adult(folder: Path) -> Table:
    """UCI's own test file; a fifth of the rest is for stopping."""
    rows, test = (_read(folder, f"adult/adult_{part}", "income") for part in ("train", "test"))
    train, validation = divided(rows.wanted, 0.2, 0)
    return Table("adult", "accuracy", rows.take(train), rows.take(validation), test)


def covertype(folder: Path) -> Table:
    """A fifth for testing, a fifth of the rest for stopping: the paper's rule and sizes."""
    rows = _read(folder, "covertype/covertype", "Cover_Type")
    rest, test = divided(rows.wanted, 0.2, 0)
    train, validation = divided(rows.wanted[rest], 0.2, 0)
    return _cut("covertype", "accuracy", rows, {"train": rest[train], "val": rest[validation], "test": test})


# --- a split for each seed -------------------------------------------------------------------------------------------


def bank(folder: Path, seed: int) -> Table:
    return _by_chance("bank", _read(folder, "bank_marketing/bank_marketing", "y"), seed)


def blastchar(folder: Path, seed: int) -> Table:
    rows = _read(folder, "blastchar/blastchar", "Churn")
    return _by_chance("blastchar", Rows(rows.frame.drop(columns="customerID"), rows.wanted), seed)


def income(folder: Path, seed: int) -> Table:
    """TabTransformer's "1995_income": UCI's adult.data alone, without its test file."""
    return _by_chance("income", _read(folder, "adult/adult_train", "income"), seed)


FIXED: dict[str, Callable[[Path], Table]] = {"california": california, "adult": adult, "covertype": covertype}
BY_CHANCE: dict[str, Callable[[Path, int], Table]] = {"bank": bank, "blastchar": blastchar, "income": income}
NAMES = (*FIXED, *BY_CHANCE)


def load(folder: Path, name: str, seed: int) -> Table:
    """A table by its name, split as this seed has it."""
    return FIXED[name](folder) if name in FIXED else BY_CHANCE[name](folder, seed)


def _by_chance(name: str, rows: Rows, seed: int) -> Table:
    """65 / 15 / 20, each with its share of every class."""
    rest, test = divided(rows.wanted, 0.2, seed)
    train, validation = divided(rows.wanted[rest], 15 / 80, seed)
    return _cut(name, "AUC", rows, {"train": rest[train], "val": rest[validation], "test": test})


def divided(wanted: np.ndarray, second: float | int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are in the first part and which in the second, a share or a number; every class is in both."""
    parts = train_test_split(np.arange(len(wanted)), test_size=second, random_state=seed, stratify=wanted)
    return np.asarray(parts[0]), np.asarray(parts[1])


def _cut(name: str, measure: Measure, rows: Rows, parts: dict[str, np.ndarray]) -> Table:
    return Table(name, measure, *(rows.take(parts[part]) for part in ("train", "val", "test")))


@lru_cache(maxsize=2)
def _read(folder: Path, path: str, target: str) -> Rows:
    """A CSV file, however it is packed; what is wanted as numbers, or as classes in the order of their names."""
    place = folder / path
    found = sorted(place.parent.glob(f"{place.name}.csv*"))
    if not found:
        raise FileNotFoundError(f"{place}.csv, or the same as .csv.gz or .csv.xz, is wanted and not there")
    frame = pandas.read_csv(found[0])
    wanted = frame.pop(target)
    if target != "MedHouseVal":
        return Rows(frame, np.unique(wanted.to_numpy(), return_inverse=True)[1])
    return Rows(frame, wanted.to_numpy(dtype=np.float64))
