"""What other people's models make of the same rows: boosted trees, and a linear model.

LightGBM where it is installed, else scikit-learn's HistGradientBoosting; logistic regression, or ridge. All at sensible
settings and untuned. The trees stop by the same held-out rows as ours, or when their time is up.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from softlook.tabular.encoding.rows import Rows, Supply, some_rows
from softlook.tabular.encoding.targets import Amounts, Classes
from softlook.tabular.learning.metrics import judged

MOST_ROWS = 500_000
"""Rows that they learn from at most; a linear model, from fewer."""
ENOUGH_FOR_LINES = 100_000
ROUNDS, PATIENCE = 2000, 50
"""Trees at most, and how many of them may bring nothing."""
MOST_CODES = 250
"""Values of a category that HistGradientBoosting can part; a column with more is taken as numbers."""


@dataclass(frozen=True)
class Baseline:
    """One model beside ours."""

    name: str
    scores: dict[str, float]
    seconds: float


class Arrays(NamedTuple):
    """Rows as arrays: numbers with NaN, codes, what is wanted, weights."""

    numbers: np.ndarray
    codes: np.ndarray
    wanted: np.ndarray
    weight: np.ndarray

    @property
    def whole(self) -> np.ndarray:
        return np.hstack([self.numbers, self.codes.astype(np.float32)])

    def some(self, most: int) -> "Arrays":
        return Arrays(*(part[:most] for part in self))


class Given(NamedTuple):
    """What they learn from, and what they may stop by."""

    train: Arrays
    held: Arrays | None
    targets: Classes | Amounts
    ends: float
    """When their time is up."""
    seed: int


def baselines(
    train: Supply, held: Rows | None, on: Rows, *, targets: Classes | Amounts, seconds: float, seed: int
) -> list[Baseline]:
    """Train each, in about so many seconds at most, and judge it on the rows `on`."""
    arrays, judge = _arrays(some_rows(train, MOST_ROWS, torch.Generator().manual_seed(seed))), _arrays(on)
    stop = None if held is None else _arrays(held)
    ways: list[tuple[str, Callable[[Given, Arrays], np.ndarray]]] = [
        ("LightGBM", _lightgbm) if find_spec("lightgbm") else ("HistGradientBoosting", _histograms),
        ("ridge regression", _ridge) if isinstance(targets, Amounts) else ("logistic regression", _logistic),
    ]
    made: list[Baseline] = []
    for name, way in ways:
        began = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a linear model that would have liked more steps, a column without values
            answers = way(Given(arrays, stop, targets, began + seconds, seed), judge)
        made.append(Baseline(name, judged(targets, answers, judge.wanted), time.monotonic() - began))
    return made


def _lightgbm(given: Given, on: Arrays) -> np.ndarray:
    import lightgbm  # noqa: PLC0415  (many do without)

    def clock(env: Any) -> None:
        if time.monotonic() > given.ends:
            raise lightgbm.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

    def fitted(wanted: np.ndarray, held: np.ndarray | None) -> Any:
        kind = lightgbm.LGBMClassifier if isinstance(given.targets, Classes) else lightgbm.LGBMRegressor
        rounds = ROUNDS if given.held is not None else 300
        model: Any = kind(
            n_estimators=rounds,
            learning_rate=0.05,
            random_state=given.seed,
            n_jobs=torch.get_num_threads(),
            verbose=-1,
        )
        callbacks: list[Any] = [clock]
        told: dict[str, Any] = {}
        if given.held is not None:
            callbacks.append(lightgbm.early_stopping(PATIENCE, verbose=False))
            told["eval_set"] = [(given.held.whole, held)]
        first = given.train.numbers.shape[1]
        codes = list(range(first, first + given.train.codes.shape[1]))
        return model.fit(
            given.train.whole,
            wanted,
            sample_weight=given.train.weight,
            categorical_feature=codes,
            callbacks=callbacks,
            **told,
        )

    return _answers(given, on.whole, fitted)


def _histograms(given: Given, on: Arrays) -> np.ndarray:
    numbers = given.train.numbers.shape[1]
    few = given.train.codes.max(0, initial=0) < MOST_CODES
    mask = np.concatenate([np.zeros(numbers, bool), few])

    def fitted(wanted: np.ndarray, held: np.ndarray | None) -> Any:
        """More trees as long as they help and there is time."""
        kind: Any = (
            HistGradientBoostingClassifier if isinstance(given.targets, Classes) else HistGradientBoostingRegressor
        )
        model = kind(max_iter=100, early_stopping=False, warm_start=True, categorical_features=mask, random_state=0)
        trees = 100
        while True:
            model.set_params(max_iter=trees).fit(_parted(given.train.whole, mask), wanted, given.train.weight)
            if held is None or given.held is None or time.monotonic() > given.ends or trees >= ROUNDS:
                return model
            true = np.searchsorted(model.classes_, held) if hasattr(model, "classes_") else held
            losses = [_loss(said, true) for said in _staged(model, _parted(given.held.whole, mask))]
            kept = int(np.argmin(losses))
            if len(losses) - kept > PATIENCE or not np.isfinite(losses[kept]):
                return _Cut(model, kept)
            trees += 100

    return _answers(given, _parted(on.whole, mask), fitted)


class _Cut:
    """Boosted trees, up to the one that was best."""

    def __init__(self, model: Any, place: int) -> None:
        self.model, self.place, self.classes_ = model, place, getattr(model, "classes_", None)

    def predict(self, cells: np.ndarray) -> np.ndarray:
        return _last(self.model.staged_predict(cells), self.place)

    def predict_proba(self, cells: np.ndarray) -> np.ndarray:
        return _last(self.model.staged_predict_proba(cells), self.place)


def _last(stages: Any, place: int) -> np.ndarray:
    return next(said for number, said in enumerate(stages) if number == place)


def _staged(model: Any, cells: np.ndarray) -> Any:
    return model.staged_predict_proba(cells) if hasattr(model, "classes_") else model.staged_predict(cells)


def _loss(said: np.ndarray, wanted: np.ndarray) -> float:
    if said.ndim == 1:
        return float(np.square(said - wanted).mean())
    return float(-np.log(said[np.arange(len(wanted)), wanted].clip(1e-15)).mean())


def _parted(cells: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Codes that were never seen are missing there."""
    return np.where(mask & (cells >= MOST_CODES), np.nan, cells)


def _logistic(given: Given, on: Arrays) -> np.ndarray:
    train = given.train.some(ENOUGH_FOR_LINES)
    flat = _Flat(train)
    model = LogisticRegression(max_iter=200).fit(flat(train), train.wanted, train.weight)
    return _spread(model, model.predict_proba(flat(on)), given.targets)


def _ridge(given: Given, on: Arrays) -> np.ndarray:
    train = given.train.some(ENOUGH_FOR_LINES)
    flat = _Flat(train)
    return Ridge().fit(flat(train), train.wanted, train.weight).predict(flat(on)).reshape(len(on.wanted), -1)


class _Flat:
    """Cells for a linear model: numbers of one size, a flag for each that is missing, a column for each category."""

    def __init__(self, rows: Arrays) -> None:
        self.scaler = StandardScaler().fit(np.nan_to_num(rows.numbers)) if rows.numbers.shape[1] else None
        self.encoder = OneHotEncoder(handle_unknown="ignore").fit(rows.codes) if rows.codes.shape[1] else None

    def __call__(self, rows: Arrays) -> Any:
        parts: list[Any] = []
        if self.scaler is not None:
            scaled: Any = self.scaler.transform(np.nan_to_num(rows.numbers))
            parts += [csr_matrix(scaled), csr_matrix(np.isnan(rows.numbers).astype(np.float32))]
        if self.encoder is not None:
            parts.append(self.encoder.transform(rows.codes))
        return hstack(parts, format="csr")


def _answers(given: Given, on: np.ndarray, fitted: Callable[[np.ndarray, np.ndarray | None], Any]) -> np.ndarray:
    """(N, C): of classes by one model, of several numbers by one each."""
    train, held = given.train, given.held
    if isinstance(given.targets, Classes):
        model = fitted(train.wanted, None if held is None else _known(held.wanted, train.wanted))
        return _spread(model, model.predict_proba(on), given.targets)
    columns = range(train.wanted.shape[1])
    models = [fitted(train.wanted[:, place], None if held is None else held.wanted[:, place]) for place in columns]
    return np.stack([model.predict(on) for model in models], 1)


def _known(held: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """Held-out classes; one that nobody learns stands for the commonest, as the libraries take no others."""
    there = np.isin(held, learned)
    return held if there.all() else np.where(there, held, np.bincount(learned).argmax())


def _spread(model: Any, said: np.ndarray, targets: Classes | Amounts) -> np.ndarray:
    """Probabilities for all classes, also those of which no row was learned from."""
    assert isinstance(targets, Classes)
    whole = np.zeros((len(said), len(targets.values)))
    whole[:, np.asarray(model.classes_, dtype=np.int64)] = said
    return whole


def _arrays(rows: Rows) -> Arrays:
    assert rows.wanted is not None
    weight = torch.ones(len(rows)) if rows.weight is None else rows.weight
    return Arrays(*(part.cpu().numpy() for part in (rows.numbers, rows.categories, rows.wanted, weight)))
