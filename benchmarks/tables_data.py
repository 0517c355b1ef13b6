"""Datasets of the tabular benchmarks, split as in the papers.

California, Adult and Covertype are FT-Transformer's (Gorishniy et al. 2021) and have one fixed split; the seed changes
the model only. Bank, blastchar and income are TabTransformer's (Huang et al. 2020): random splits of 65 / 15 / 20.
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

Metric = Literal["RMSE", "accuracy", "AUC"]


@dataclass(frozen=True)
class Split:
    """Rows and their targets: numbers, or class indices."""

    frame: pandas.DataFrame
    targets: np.ndarray

    def take(self, indices: np.ndarray) -> "Split":
        return Split(self.frame.iloc[indices].reset_index(drop=True), self.targets[indices])

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Dataset:
    """Training, validation and test splits. The validation split is for early stopping."""

    name: str
    metric: Metric
    train: Split
    validation: Split
    test: Split

    @property
    def classes(self) -> int:
        """Number of classes; 0 for regression."""
        return 0 if self.metric == "RMSE" else int(max(split.targets.max() for split in self.splits)) + 1

    @property
    def splits(self) -> tuple[Split, Split, Split]:
        return self.train, self.validation, self.test

    @property
    def categorical_columns(self) -> list[str]:
        """Columns that are not numeric."""
        frame = self.train.frame
        return [name for name in frame.columns if not pandas.api.types.is_numeric_dtype(frame[name])]

    def head(self, rows: int | None) -> "Dataset":
        """The first rows of each split; None: all."""
        if rows is None:
            return self
        train, validation, test = (split.take(np.arange(min(rows, len(split)))) for split in self.splits)
        return replace(self, train=train, validation=validation, test=test)


def evaluate(dataset: Dataset, predictions: np.ndarray) -> dict[str, float]:
    """Metrics of predictions for the test rows: (N,) numbers, or (N, classes) probabilities."""
    targets = dataset.test.targets
    if dataset.metric == "RMSE":
        return {"RMSE": float(np.sqrt(np.mean((predictions - targets) ** 2)))}
    metrics = {"accuracy": float((predictions.argmax(1) == targets).mean())}
    metrics["log loss"] = float(log_loss(targets, predictions.clip(1e-9, 1), labels=np.arange(dataset.classes)))
    return metrics | ({"AUC": float(roc_auc_score(targets, predictions[:, 1]))} if dataset.classes == 2 else {})


# --- fixed splits ----------------------------------------------------------------------------------------------------


def california(data_dir: Path) -> Dataset:
    """The paper's split, which is a file in the same directory."""
    rows = _read(data_dir, "california_housing/california_housing", "MedHouseVal")
    split = pandas.read_csv(data_dir / "california_housing" / "rtdl_split.csv.gz")["split"].to_numpy()
    indices = {name: np.flatnonzero(split == name) for name in ("train", "val", "test")}
    return _make_dataset("california", "RMSE", rows, indices)


def adult(data_dir: Path) -> Dataset:
    """UCI's test file; a fifth of the training file is the validation split."""
    rows, test = (_read(data_dir, f"adult/adult_{part}", "income") for part in ("train", "test"))
    train, validation = stratified_split(rows.targets, 0.2, 0)
    return Dataset("adult", "accuracy", rows.take(train), rows.take(validation), test)


def covertype(data_dir: Path) -> Dataset:
    """A fifth for testing and a fifth of the rest for validation: the sizes of the paper."""
    rows = _read(data_dir, "covertype/covertype", "Cover_Type")
    rest, test = stratified_split(rows.targets, 0.2, 0)
    train, validation = stratified_split(rows.targets[rest], 0.2, 0)
    return _make_dataset("covertype", "accuracy", rows, {"train": rest[train], "val": rest[validation], "test": test})


# --- random splits ---------------------------------------------------------------------------------------------------


def bank(data_dir: Path, seed: int) -> Dataset:
    return _random_split("bank", _read(data_dir, "bank_marketing/bank_marketing", "y"), seed)


def blastchar(data_dir: Path, seed: int) -> Dataset:
    rows = _read(data_dir, "blastchar/blastchar", "Churn")
    return _random_split("blastchar", Split(rows.frame.drop(columns="customerID"), rows.targets), seed)


def income(data_dir: Path, seed: int) -> Dataset:
    """TabTransformer's "1995_income": UCI's adult.data without its test file."""
    return _random_split("income", _read(data_dir, "adult/adult_train", "income"), seed)


FIXED_SPLITS: dict[str, Callable[[Path], Dataset]] = {"california": california, "adult": adult, "covertype": covertype}
RANDOM_SPLITS: dict[str, Callable[[Path, int], Dataset]] = {"bank": bank, "blastchar": blastchar, "income": income}
NAMES = (*FIXED_SPLITS, *RANDOM_SPLITS)


def load_dataset(data_dir: Path, name: str, seed: int) -> Dataset:
    """A dataset by name; the seed selects a random split."""
    return FIXED_SPLITS[name](data_dir) if name in FIXED_SPLITS else RANDOM_SPLITS[name](data_dir, seed)


def _random_split(name: str, rows: Split, seed: int) -> Dataset:
    """65 / 15 / 20, stratified by class."""
    rest, test = stratified_split(rows.targets, 0.2, seed)
    train, validation = stratified_split(rows.targets[rest], 15 / 80, seed)
    return _make_dataset(name, "AUC", rows, {"train": rest[train], "val": rest[validation], "test": test})


def stratified_split(targets: np.ndarray, second: float | int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row indices of two parts, stratified by class; `second` is the fraction or number of rows of the second."""
    parts = train_test_split(np.arange(len(targets)), test_size=second, random_state=seed, stratify=targets)
    return np.asarray(parts[0]), np.asarray(parts[1])


def _make_dataset(name: str, metric: Metric, rows: Split, indices: dict[str, np.ndarray]) -> Dataset:
    return Dataset(name, metric, *(rows.take(indices[split]) for split in ("train", "val", "test")))


@lru_cache(maxsize=2)
def _read(data_dir: Path, path: str, target: str) -> Split:
    """A CSV file, compressed or not; targets are numbers, or class indices in the order of the class names."""
    stem = data_dir / path
    files = sorted(stem.parent.glob(f"{stem.name}.csv*"))
    if not files:
        raise FileNotFoundError(f"{stem}.csv does not exist, nor does {stem}.csv.gz or {stem}.csv.xz")
    frame = pandas.read_csv(files[0])
    targets = frame.pop(target)
    if target != "MedHouseVal":
        return Split(frame, np.unique(targets.to_numpy(), return_inverse=True)[1])
    return Split(frame, targets.to_numpy(dtype=np.float64))
