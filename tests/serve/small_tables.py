"""Small tables' models to serve: every kind of column, and of answer."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from softlook.recipes.tables_asking import OpenedTable
from softlook.recipes.tables_serving import AskedTable
from softlook.serve.tables import Cells, ServedTable
from softlook.tabular import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    TabTransformerClassifier,
)
from softlook.tabular.estimator import TableEstimator

ROWS = 60
SMALL: dict[str, Any] = {"depth": 1, "epochs": 2, "random_state": 0, "device": "cpu"}
NOTES = ["red box, quite heavy", "blue bag with a handle", "old green chair", "two small lamps"]


def people() -> pd.DataFrame:
    """A column of each kind."""
    dice = np.random.default_rng(0)
    days = [datetime(2024, 1, 1) + timedelta(hours=int(hours)) for hours in dice.integers(0, 9000, ROWS)]
    frame = pd.DataFrame(
        {
            "age": dice.integers(18, 80, ROWS).astype(float),
            "work": dice.choice(["private", "state", "own"], ROWS),
            "zip": dice.choice(["1010", "2020", "3030"], ROWS),
            "member": dice.random(ROWS) < 0.5,
            "size": dice.choice(["S", "M", "L"], ROWS),
            "joined": days,
            "note": [f"{dice.choice(NOTES)} {number}" for number in range(ROWS)],
        }
    )
    frame.loc[::7, "age"] = None
    frame.loc[::5, "work"] = None
    return frame


def some(*names: str, rows: int = ROWS) -> pd.DataFrame:
    """Some of its columns, and its first rows."""
    return pd.DataFrame({name: column[:rows] for name, column in people().items() if name in names})


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """As JSON has them."""
    told = frame.assign(**{name: frame[name].astype(str) for name in frame if frame[name].dtype.kind == "M"})
    return [
        {name: None if value is None or value != value else value for name, value in row.items()}
        for row in told.astype(object).to_dict("records")
    ]


@cache
def estimator(name: str) -> TableEstimator:
    """One of the four that `tables` serves."""
    X = people()
    y = np.where(X["member"] ^ (X["size"] == "S"), "yes", "no")
    numbers = X[["age"]].fillna(40.0).to_numpy()
    makers: dict[str, Any] = {
        "people": lambda: FTTransformerClassifier(
            **SMALL, dim=16, heads=2, members=2, kinds={"note": "text"}, ordinal={"size": ["S", "M", "L"]}
        ).fit(X, y),
        "prices": lambda: FTTransformerRegressor(**SMALL, dim=16, heads=2).fit(
            X[["age", "work"]], np.stack([numbers[:, 0], -numbers[:, 0]], 1)
        ),
        "truths": lambda: TabTransformerClassifier(**SMALL).fit(
            X[["age", "work", "size"]].fillna({"age": 40}), (y == "yes")
        ),
        "bare": lambda: TabTransformerClassifier(**SMALL).fit(numbers, np.arange(ROWS) % 3),
    }
    return makers[name]()


TARGETS = {"people": ("answer",), "prices": ("up", "down"), "truths": ("truth",), "bare": ("prediction",)}


def tables() -> list[ServedTable]:
    return [
        ServedTable(name, AskedTable(OpenedTable(name, estimator(name), target))) for name, target in TARGETS.items()
    ]


class Pretended:
    """A table with one column, whose answers are the numbers in it; it can take its time, and it can break."""

    kind, target, columns, classes, explains = "Pretended", ("double",), {"x": "number"}, (), True

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.sizes = seconds, list[int]()

    def read(self, cells: Cells, most: int) -> list[Tensor]:
        return list(
            torch.tensor([float("nan") if x is None else x for x in cells["x"]], dtype=torch.float64).split(most)
        )

    def answer(self, parts: Sequence[Tensor]) -> Tensor:
        time.sleep(self.seconds)
        found = torch.cat(list(parts))
        self.sizes.append(len(found))
        if (found == 13).any():
            raise RuntimeError("a number that brings ill luck")
        return 2 * found[:, None]

    def looks(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.ones_like(self.answer(parts))

    def told(self, answers: Tensor) -> list[float]:
        return answers[:, 0].tolist()
