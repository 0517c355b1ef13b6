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
class TableTensors:
    """Some rows of a table, and what is wanted of them: numbers, or classes counted from 0."""

    frame: pandas.DataFrame
    targets: np.ndarray

    def take(self, which: np.ndarray) -> "Rows":
        return TableTensors(self.frame.iloc[which].reset_index(drop=True), self.target[which])

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True)
class Table:
    """A table in three parts. Whoever learns is given the second to stop by, and is judged by the third."""

    name: str
    measure: Measure
    train: TableTensors
    eval_set: TableTensors
    test: TableTensors

    @property
    def classes(self) -> int:
        """How many there are to choose from; 0 where a number is wanted."""
        return 0 if self.measure == "RMSE" else int(max(part.target.max() for part in self.parts)) + 1

    @property
    def parts(self) -> tuple[TableTensors, TableTensors, TableTensors]:
        return self.train, self.eval_set, self.test

    @property
    def strings(self) -> list[str]:
        """The columns that are no numbers."""
        frame = self.train.frame
        return [name for name in frame.columns if not pandas.api.types.is_numeric_dtype(frame[name])]

    def first(self, rows: int | None) -> "Table":
        """The same with at most so many rows in each part, for trying out."""
        if rows is None:
            return self
        train, eval_set, test = (part.take(np.arange(min(rows, len(part)))) for part in self.parts)
        return replace(self, train=train, eval_set=eval_set, test=test)


def score(table: Table, predict_rows: np.ndarray) -> dict[str, float]:
    """What answers to the test rows are worth: (N,) numbers, or (N, classes) probabilities."""
    targets = table.test.target
    if table.measure == "RMSE":
        return {"RMSE": float(np.sqrt(np.mean((predict_rows - targets) ** 2)))}
    found = {"accuracy": float((predict_rows.argmax(1) == targets).mean())}
    found["log loss"] = float(log_loss(targets, predict_rows.grad_clip(1e-9, 1), labels=np.arange(table.classes)))
    return found | ({"AUC": float(roc_auc_score(targets, predict_rows[:, 1]))} if table.classes == 2 else {})


# --- one split -------------------------------------------------------------------------------------------------------


def california(folder: Path) -> Table:
    """The very rows of the paper, which are listed beside the table."""
    rows = _read(folder, "california_housing/california_housing", "MedHouseVal")
    part = pandas.read_csv(folder / "california_housing" / "rtdl_split.csv.gz")["split"].to_numpy()
    return _cut("california", "RMSE", rows, {name: np.flatnonzero(part == name) for name in ("train", "val", "test")})


def adult(folder: Path) -> Table:
    """UCI's own test file; a fifth of the rest is for stopping."""
    rows, test = (_read(folder, f"adult/adult_{part}", "income") for part in ("train", "test"))
    train, eval_set = divided(rows.target, 0.2, 0)
    return Table("adult", "accuracy", rows.take(train), rows.take(eval_set), test)


def covertype(folder: Path) -> Table:
    """A fifth for testing, a fifth of the rest for stopping: the paper's rule and sizes."""
    rows = _read(folder, "covertype/covertype", "Cover_Type")
    rest, test = divided(rows.target, 0.2, 0)
    train, eval_set = divided(rows.target[rest], 0.2, 0)
    return _cut("covertype", "accuracy", rows, {"train": rest[train], "val": rest[eval_set], "test": test})


# --- a split for each seed -------------------------------------------------------------------------------------------


def bank(folder: Path, seed: int) -> Table:
    return _by_chance("bank", _read(folder, "bank_marketing/bank_marketing", "y"), seed)


def blastchar(folder: Path, seed: int) -> Table:
    rows = _read(folder, "blastchar/blastchar", "Churn")
    return _by_chance("blastchar", TableTensors(rows.frame.drop(columns="customerID"), rows.target), seed)


def income(folder: Path, seed: int) -> Table:
    """TabTransformer's "1995_income": UCI's adult.data alone, without its test file."""
    return _by_chance("income", _read(folder, "adult/adult_train", "income"), seed)


FIXED: dict[str, Callable[[Path], Table]] = {"california": california, "adult": adult, "covertype": covertype}
BY_CHANCE: dict[str, Callable[[Path, int], Table]] = {"bank": bank, "blastchar": blastchar, "income": income}
NAMES = (*FIXED, *BY_CHANCE)


def load(folder: Path, name: str, seed: int) -> Table:
    """A table by its name, split as this seed has it."""
    return FIXED[name](folder) if name in FIXED else BY_CHANCE[name](folder, seed)


def _by_chance(name: str, rows: TableTensors, seed: int) -> Table:
    """65 / 15 / 20, each with its share of every class."""
    rest, test = divided(rows.target, 0.2, seed)
    train, eval_set = divided(rows.target[rest], 15 / 80, seed)
    return _cut(name, "AUC", rows, {"train": rest[train], "val": rest[eval_set], "test": test})


def divided(targets: np.ndarray, second: float | int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are in the first part and which in the second, a share or a number; every class is in both."""
    parts = train_test_split(np.arange(len(targets)), test_size=second, random_state=seed, stratify=targets)
    return np.asarray(parts[0]), np.asarray(parts[1])


def _cut(name: str, measure: Measure, rows: TableTensors, parts: dict[str, np.ndarray]) -> Table:
    return Table(name, measure, *(rows.take(parts[part]) for part in ("train", "val", "test")))


@lru_cache(maxsize=2)
def _read(folder: Path, path: str, target: str) -> TableTensors:
    """A CSV file, however it is packed; what is wanted as numbers, or as classes in the order of their names."""
    place = folder / path
    found = sorted(place.parent.glob(f"{place.name}.csv*"))
    if not found:
        raise FileNotFoundError(f"{place}.csv, or the same as .csv.gz or .csv.xz, is wanted and not there")
    frame = pandas.read_csv(found[0])
    targets = frame.pop(target)
    if target != "MedHouseVal":
        return TableTensors(frame, np.unique(targets.to_numpy(), return_inverse=True)[1])
    return TableTensors(frame, targets.to_numpy(dtype=np.float64))
