"""Small estimators and tables shared by the tests of `softlook.tabular`."""

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


def small(estimator_class: Any, **params: Any) -> Any:
    """A small estimator that trains quickly and deterministically."""
    own = {"tab": {"preset": "improved"}, "table": {"ensemble": "single"}}.get(estimator_class.family, {})
    return estimator_class(**({"dim": 16, "depth": 2, "heads": 2, "epochs": 3, "random_state": 0} | own | params))


def flip_bit(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def mixed_table(rows: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An object array of two numeric columns and a category, and labels that depend on one of each."""
    rng = np.random.RandomState(seed)
    numbers, colors = rng.randn(rows, 2), rng.choice(["red", "green", "blue"], rows)
    X = np.empty((rows, 3), dtype=object)
    X[:, :2], X[:, 2] = numbers, colors
    return X, (numbers[:, 0] > 0) ^ (colors == "red")
