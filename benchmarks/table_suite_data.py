"""Public tables of a suite, which no default was tuned on, and their splits.

A folder holds `tables.json` (rows, columns, problem and categorical columns of each table) and a CSV file of each,
whose last column is `target`. A quarter of the rows are for testing; a fifth of the others are for early stopping.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from sklearn.model_selection import train_test_split

from benchmarks.tables_data import Dataset, Split

TEST, VALIDATION = 0.25, 0.2


def load_suite_dataset(folder: Path, name: str, seed: int) -> Dataset:
    """A table by name; the seed selects the split. Regression targets are standardized by the training rows."""
    frame, targets, is_class = _read(folder, name)
    rest, test = _split(np.arange(len(targets)), targets, TEST, seed, is_class)
    train, validation = _split(rest, targets, VALIDATION, seed, is_class)
    if not is_class:
        targets = (targets - targets[rest].mean()) / targets[rest].std()
    rows = Split(frame, targets)
    return Dataset(name, "accuracy" if is_class else "RMSE", *(rows.take(part) for part in (train, validation, test)))


def table_names(folder: Path) -> list[str]:
    """The tables of a folder, the smallest first."""
    tables: dict[str, Any] = json.loads((folder / "tables.json").read_text())
    return sorted(tables, key=lambda name: tables[name]["rows"] * tables[name]["columns"])


def _split(
    rows: np.ndarray, targets: np.ndarray, fraction: float, seed: int, is_class: bool
) -> tuple[np.ndarray, np.ndarray]:
    stratify = targets[rows] if is_class else None
    first, second = train_test_split(rows, test_size=fraction, random_state=seed, stratify=stratify)
    return np.asarray(first), np.asarray(second)


@lru_cache(maxsize=2)
def _read(folder: Path, name: str) -> tuple[pandas.DataFrame, np.ndarray, bool]:
    """Columns, targets, and whether these are classes. Categories are strings."""
    info = json.loads((folder / "tables.json").read_text())[name]
    frame = pandas.read_csv(folder / f"{name}.csv.gz")
    targets, is_class = frame.pop("target"), info["problem"] == "classification"
    for column in info["categorical"]:
        frame[column] = frame[column].map(str, na_action="ignore").astype(object)
    if is_class:
        return frame, np.unique(targets.to_numpy().astype(str), return_inverse=True)[1], True
    return frame, targets.to_numpy(dtype=np.float64), False
