"""Small estimators and tables that the tests of this folder share."""

from pathlib import Path
from typing import Any

import numpy as np

from softlook.tabular import (
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
)

CLASSIFIERS = (TableTransformerClassifier, TabTransformerClassifier)
REGRESSORS = (TableTransformerRegressor, TabTransformerRegressor)
ALL = (*CLASSIFIERS, *REGRESSORS)


def small(kind: Any, **params: Any) -> Any:
    """A small model that trains quickly and deterministically."""
    preset = {"preset": "improved"} if kind.family == "tab" else {}
    return kind(**({"dim": 16, "depth": 2, "heads": 2, "epochs": 3, "random_state": 0} | preset | params))


def spoil(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def mixed(rows: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A table of two numbers and a category as objects, and labels that depend on one of each."""
    dice = np.random.RandomState(seed)
    numbers, words = dice.randn(rows, 2), dice.choice(["red", "green", "blue"], rows)
    X = np.empty((rows, 3), dtype=object)
    X[:, :2], X[:, 2] = numbers, words
    return X, (numbers[:, 0] > 0) ^ (words == "red")
