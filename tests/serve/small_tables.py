"""Small table models to serve: every column type and every target type."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from softlook.recipes.tabular.predict import TablePredictor
from softlook.recipes.tabular.serving import ServedTableModel
from softlook.serve.loaded_model import Columns, LoadedTable
from softlook.tabular import (
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
)
from softlook.tabular.estimator import TableEstimator

ROWS = 60
SMALL: dict[str, Any] = {"depth": 1, "epochs": 2, "random_state": 0, "device": "cpu"}
NOTES = ["red box, quite heavy", "blue bag with a handle", "old green chair", "two small lamps"]


def people() -> pd.DataFrame:
    """A table with a column of each type."""
    rng = np.random.default_rng(0)
    days = [datetime(2024, 1, 1) + timedelta(hours=int(hours)) for hours in rng.integers(0, 9000, ROWS)]
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, ROWS).astype(float),
            "work": rng.choice(["private", "state", "own"], ROWS),
            "zip": rng.choice(["1010", "2020", "3030"], ROWS),
            "member": rng.random(ROWS) < 0.5,
            "size": rng.choice(["S", "M", "L"], ROWS),
            "joined": days,
            "note": [f"{rng.choice(NOTES)} {number}" for number in range(ROWS)],
        }
    )
    frame.loc[::7, "age"] = None
    frame.loc[::5, "work"] = None
    return frame


def some(*names: str, rows: int = ROWS) -> pd.DataFrame:
    """Some columns of `people`, and its first rows."""
    return pd.DataFrame({name: column[:rows] for name, column in people().items() if name in names})


def read_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as JSON objects."""
    texts = frame.assign(**{name: frame[name].astype(str) for name in frame if frame[name].dtype.kind == "M"})
    return [
        {name: None if value is None or value != value else value for name, value in row.items()}
        for row in texts.astype(object).to_dict("records")
    ]


@cache
def estimator(name: str) -> TableEstimator:
    """One of the four estimators of `tables`."""
    X = people()
    y = np.where(X["member"] ^ (X["size"] == "S"), "yes", "no")
    numbers = X[["age"]].fillna(40.0).to_numpy()
    makers: dict[str, Any] = {
        "people": lambda: TableTransformerClassifier(
            **SMALL,
            ensemble="single",
            dim=16,
            heads=2,
            n_members=2,
            column_types={"note": "text"},
            ordinal_categories={"size": ["S", "M", "L"]},
        ).fit(X, y),
        "prices": lambda: TableTransformerRegressor(**SMALL, ensemble="single", dim=16, heads=2).fit(
            X[["age", "work"]], np.stack([numbers[:, 0], -numbers[:, 0]], 1)
        ),
        "booleans": lambda: TabTransformerClassifier(**SMALL).fit(
            X[["age", "work", "size"]].fillna({"age": 40}), (y == "yes")
        ),
        "unnamed": lambda: TabTransformerClassifier(**SMALL).fit(numbers, np.arange(ROWS) % 3),
    }
    return makers[name]()


TARGETS = {"people": ("answer",), "prices": ("up", "down"), "booleans": ("truth",), "unnamed": ("prediction",)}


def tables() -> list[LoadedTable]:
    return [
        LoadedTable(name, ServedTableModel(TablePredictor(name, estimator(name), target)))
        for name, target in TARGETS.items()
    ]


class FakeTable:
    """A table model with one column whose prediction is twice its value; it may be slow, and fails on 13."""

    model_name, target, columns, classes, can_explain = "FakeTable", ("double",), {"x": "number"}, (), True

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.batch_sizes = seconds, list[int]()

    def encode(self, columns: Columns, chunk_rows: int) -> list[Tensor]:
        return list(
            torch.tensor([float("nan") if x is None else x for x in columns["x"]], dtype=torch.float64).split(
                chunk_rows
            )
        )

    def predict(self, chunks: Sequence[Tensor]) -> Tensor:
        time.sleep(self.seconds)
        found = torch.cat(list(chunks))
        self.batch_sizes.append(len(found))
        if (found == 13).any():
            raise RuntimeError("this table fails on 13")
        return 2 * found[:, None]

    def explain(self, chunks: Sequence[Tensor]) -> Tensor:
        return torch.ones_like(self.predict(chunks))

    def decode(self, outputs: Tensor) -> list[float]:
        return outputs[:, 0].tolist()
