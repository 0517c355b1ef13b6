"""Baselines: gradient-boosted trees and a linear model.

LightGBM if it is installed, otherwise scikit-learn's HistGradientBoosting; logistic regression, or ridge. All with
sensible settings and untuned. The trees use the same validation rows for early stopping, within a time limit.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from softlook.tabular.preprocessing.rows import RowSource, TableTensors, sample_rows
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget, Target
from softlook.tabular.training.metrics import compute_metrics

MAX_ROWS = 500_000
"""Training rows of the trees."""
MAX_LINEAR_ROWS = 100_000
MAX_TREES, PATIENCE = 2000, 50
MAX_CODES = 250
"""Categories that HistGradientBoosting supports; a column with more is treated as numeric."""


@dataclass(frozen=True)
class Baseline:
    """A baseline model's metrics and training time."""

    name: str
    scores: dict[str, float]
    seconds: float


class Arrays(NamedTuple):
    """Rows as arrays: numbers with NaN, category codes, targets and sample weights."""

    numbers: np.ndarray
    codes: np.ndarray
    targets: np.ndarray
    weight: np.ndarray

    @property
    def features(self) -> np.ndarray:
        return np.hstack([self.numbers, self.codes.astype(np.float32)])

    def head(self, rows: int) -> "Arrays":
        return Arrays(*(array[:rows] for array in self))


class BaselineData(NamedTuple):
    """Training and validation rows, target, deadline and seed."""

    train: Arrays
    validation: Arrays | None
    target: Target
    deadline: float
    seed: int


def fit_baselines(
    train: RowSource, validation: TableTensors | None, test: TableTensors, *, target: Target, seconds: float, seed: int
) -> list[Baseline]:
    """Fit each baseline within about `seconds`, and evaluate it on `test`."""
    arrays = _to_arrays(sample_rows(train, MAX_ROWS, torch.Generator().manual_seed(seed)))
    test_arrays = _to_arrays(test)
    validation_arrays = None if validation is None else _to_arrays(validation)
    models: list[tuple[str, Callable[[BaselineData, Arrays], np.ndarray]]] = [
        ("LightGBM", _lightgbm) if find_spec("lightgbm") else ("HistGradientBoosting", _hist_gradient_boosting),
        ("ridge regression" if isinstance(target, RegressionTarget) else "logistic regression", _linear),
    ]
    baselines: list[Baseline] = []
    for name, fit_predict in models:
        started = time.monotonic()
        data = BaselineData(arrays, validation_arrays, target, started + seconds, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a linear model that has not converged, a column without values
            predictions = fit_predict(data, test_arrays)
        scores = compute_metrics(target, predictions, test_arrays.targets)
        baselines.append(Baseline(name, scores, time.monotonic() - started))
    return baselines


def _lightgbm(data: BaselineData, test: Arrays) -> np.ndarray:
    import lightgbm  # noqa: PLC0415  (optional)

    def stop_at_deadline(env: Any) -> None:
        if time.monotonic() > data.deadline:
            raise lightgbm.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

    def fit(targets: np.ndarray, validation_targets: np.ndarray | None) -> Any:
        kind = lightgbm.LGBMClassifier if isinstance(data.target, ClassTarget) else lightgbm.LGBMRegressor
        model: Any = kind(
            n_estimators=MAX_TREES if data.validation is not None else 300,
            learning_rate=0.05,
            random_state=data.seed,
            n_jobs=torch.get_num_threads(),
            verbose=-1,
        )
        callbacks: list[Any] = [stop_at_deadline]
        options: dict[str, Any] = {}
        if data.validation is not None:
            callbacks.append(lightgbm.early_stopping(PATIENCE, verbose=False))
            options["eval_set"] = [(data.validation.features, validation_targets)]
        first = data.train.numbers.shape[1]
        return model.fit(
            data.train.features,
            targets,
            sample_weight=data.train.weight,
            categorical_feature=list(range(first, first + data.train.codes.shape[1])),
            callbacks=callbacks,
            **options,
        )

    return _fit_predict(data, test.features, fit)


def _hist_gradient_boosting(data: BaselineData, test: Arrays) -> np.ndarray:
    is_category = data.train.codes.max(0, initial=0) < MAX_CODES
    mask = np.concatenate([np.zeros(data.train.numbers.shape[1], bool), is_category])

    def fit(targets: np.ndarray, validation_targets: np.ndarray | None) -> Any:
        """Add trees as long as the validation loss improves and there is time."""
        is_class = isinstance(data.target, ClassTarget)
        kind: Any = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
        model = kind(max_iter=100, early_stopping=False, warm_start=True, categorical_features=mask, random_state=0)
        trees = 100
        while True:
            model.set_params(max_iter=trees).fit(_clip_codes(data.train.features, mask), targets, data.train.weight)
            is_over = time.monotonic() > data.deadline or trees >= MAX_TREES
            if validation_targets is None or data.validation is None or is_over:
                return model
            has_classes = hasattr(model, "classes_")
            true = np.searchsorted(model.classes_, validation_targets) if has_classes else validation_targets
            stages = _staged_predictions(model, _clip_codes(data.validation.features, mask))
            losses = [_loss(predictions, true) for predictions in stages]
            best = int(np.argmin(losses))
            if len(losses) - best > PATIENCE or not np.isfinite(losses[best]):
                return _TruncatedTrees(model, best)
            trees += 100

    return _fit_predict(data, _clip_codes(test.features, mask), fit)


class _TruncatedTrees:
    """Boosted trees up to the best stage."""

    def __init__(self, model: Any, stage: int) -> None:
        self.model, self.stage, self.classes_ = model, stage, getattr(model, "classes_", None)

    def predict(self, features: np.ndarray) -> np.ndarray:
        return next(islice(self.model.staged_predict(features), self.stage, None))

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        return next(islice(self.model.staged_predict_proba(features), self.stage, None))


def _staged_predictions(model: Any, features: np.ndarray) -> Any:
    return model.staged_predict_proba(features) if hasattr(model, "classes_") else model.staged_predict(features)


def _loss(predictions: np.ndarray, targets: np.ndarray) -> float:
    if predictions.ndim == 1:
        return float(np.square(predictions - targets).mean())
    return float(-np.log(predictions[np.arange(len(targets)), targets].clip(1e-15)).mean())


def _clip_codes(features: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Codes beyond the supported range become missing."""
    return np.where(mask & (features >= MAX_CODES), np.nan, features)


def _linear(data: BaselineData, test: Arrays) -> np.ndarray:
    train = data.train.head(MAX_LINEAR_ROWS)
    encode = _LinearFeatures(train)
    if isinstance(data.target, RegressionTarget):
        model = Ridge().fit(encode(train), train.targets, train.weight)
        return model.predict(encode(test)).reshape(len(test.targets), -1)
    model = LogisticRegression(max_iter=200).fit(encode(train), train.targets, train.weight)
    return _to_all_classes(model, model.predict_proba(encode(test)), data.target)


class _LinearFeatures:
    """Features of a linear model: standardized numbers, missing indicators and one-hot categories."""

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


def _fit_predict(
    data: BaselineData, features: np.ndarray, fit: Callable[[np.ndarray, np.ndarray | None], Any]
) -> np.ndarray:
    """(N, C): one model for classes, one per column for several numbers."""
    train, validation = data.train, data.validation
    if isinstance(data.target, ClassTarget):
        model = fit(train.targets, None if validation is None else _known_classes(validation.targets, train.targets))
        return _to_all_classes(model, model.predict_proba(features), data.target)
    validation_columns = [None] * train.targets.shape[1] if validation is None else validation.targets.T
    models = [fit(*columns) for columns in zip(train.targets.T, validation_columns, strict=True)]
    return np.stack([model.predict(features) for model in models], 1)


def _known_classes(validation: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Validation classes; one without training rows becomes the most frequent, as the libraries reject it."""
    is_known = np.isin(validation, train)
    return validation if is_known.all() else np.where(is_known, validation, np.bincount(train).argmax())


def _to_all_classes(model: Any, probabilities: np.ndarray, target: Target) -> np.ndarray:
    """Probabilities for all classes, including those without training rows."""
    assert isinstance(target, ClassTarget)
    full = np.zeros((len(probabilities), len(target.values)))
    full[:, np.asarray(model.classes_, dtype=np.int64)] = probabilities
    return full


def _to_arrays(rows: TableTensors) -> Arrays:
    assert rows.targets is not None
    weight = torch.ones(len(rows)) if rows.weight is None else rows.weight
    return Arrays(*(tensor.cpu().numpy() for tensor in (rows.numbers, rows.categories, rows.targets, weight)))
