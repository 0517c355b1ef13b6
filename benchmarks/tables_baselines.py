"""Gradient boosting and linear baselines of the tabular benchmarks, with early stopping on the validation split.

LightGBM, XGBoost and HistGradientBoosting use a learning rate of 0.05 and stop after 50 iterations without improvement.
CatBoost runs with its defaults (an automatic learning rate and at most 1,000 trees), and once more with the learning
rate and number of trees of the others. Every library handles categories natively.
"""

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.tables_data import Dataset, Split

LEARNING_RATE, MAX_TREES, PATIENCE = 0.05, 4000, 50
MAX_CATEGORIES = 254
"""Values of a column that HistGradientBoosting supports."""
TREES_PER_FIT = 250
"""Trees that a call of HistGradientBoosting's `fit` adds."""
Predict = Callable[[pandas.DataFrame], np.ndarray]
"""(N,) numbers or (N, classes) probabilities for the rows of a frame."""


@dataclass(frozen=True)
class FittedModel:
    """A prediction function, and information about the fit."""

    predict: Predict
    info: dict[str, Any]


@dataclass(frozen=True)
class FitParams:
    """Parameters that all models share."""

    seed: int = 0
    threads: int = 1
    time_limit: float | None = None
    """Seconds; None: no limit."""
    learning_rate: float = LEARNING_RATE
    patience: int = PATIENCE
    """Iterations without improvement after which boosting stops."""

    def start_timer(self) -> Callable[[], bool]:
        """Start the time limit; the returned function tells whether it has passed."""
        end = float("inf") if self.time_limit is None else time.monotonic() + self.time_limit
        return lambda: time.monotonic() > end


FitModel = Callable[[Dataset, FitParams], FittedModel]


def lightgbm(dataset: Dataset, params: FitParams) -> FittedModel:
    """LightGBM with native categories and the metric of its default loss."""
    import lightgbm as library  # noqa: PLC0415  (optional)

    time_is_up, encode = params.start_timer(), categorical_encoder(dataset)

    def stop_at_time_limit(state: Any) -> None:
        if time_is_up():
            raise library.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

    estimator = library.LGBMClassifier if dataset.classes else library.LGBMRegressor
    model = estimator(
        n_estimators=MAX_TREES,
        learning_rate=params.learning_rate,
        n_jobs=params.threads,
        random_state=params.seed,
        verbosity=-1,
    )
    model.fit(
        encode(dataset.train.frame),
        dataset.train.targets,
        eval_X=encode(dataset.validation.frame),
        eval_y=dataset.validation.targets,
        callbacks=[library.early_stopping(params.patience, verbose=False), stop_at_time_limit],
    )
    return FittedModel(
        lambda frame: _predict(model, encode(frame)), {"trees": model.best_iteration_, "version": library.__version__}
    )


def xgboost(dataset: Dataset, params: FitParams) -> FittedModel:
    """XGBoost with native categories and histogram trees."""
    import xgboost as library  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  (optional)

    time_is_up, encode = params.start_timer(), categorical_encoder(dataset)

    class TimeLimit(library.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return time_is_up()

    estimator = library.XGBClassifier if dataset.classes else library.XGBRegressor
    model = estimator(
        n_estimators=MAX_TREES,
        learning_rate=params.learning_rate,
        tree_method="hist",
        device="cpu",
        enable_categorical=True,
        early_stopping_rounds=params.patience,
        n_jobs=params.threads,
        random_state=params.seed,
        callbacks=[TimeLimit()],
    )
    eval_set = [(encode(dataset.validation.frame), dataset.validation.targets)]
    model.fit(encode(dataset.train.frame), dataset.train.targets, eval_set=eval_set, verbose=False)
    return FittedModel(
        lambda frame: _predict(model, encode(frame)), {"trees": model.best_iteration, "version": library.__version__}
    )


def catboost(dataset: Dataset, params: FitParams) -> FittedModel:
    """CatBoost's defaults: ordered target statistics, at most 1,000 trees, an automatic learning rate."""
    return _catboost(dataset, params, {})


def catboost_long(dataset: Dataset, params: FitParams) -> FittedModel:
    """CatBoost with the learning rate and number of trees of the others: the strongest baseline on these datasets."""
    return _catboost(dataset, params, {"learning_rate": LEARNING_RATE, "iterations": MAX_TREES})


def _catboost(dataset: Dataset, params: FitParams, overrides: dict[str, Any]) -> FittedModel:
    import catboost as library  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  (optional)

    time_is_up, categorical = params.start_timer(), dataset.categorical_columns

    class TimeLimit:
        def after_iteration(self, info: Any) -> bool:
            return not time_is_up()

    def pool(split: Split) -> Any:
        frame = _missing_as_empty(split.frame, categorical)
        return library.Pool(frame, split.targets, cat_features=categorical)

    estimator = library.CatBoostClassifier if dataset.classes else library.CatBoostRegressor
    model = estimator(
        **overrides,
        early_stopping_rounds=params.patience,
        thread_count=params.threads,
        random_seed=params.seed,
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(pool(dataset.train), eval_set=pool(dataset.validation), callbacks=[TimeLimit()])
    info = {"trees": model.tree_count_, "learning_rate": model.learning_rate_, "version": library.__version__}
    return FittedModel(lambda frame: _predict(model, _missing_as_empty(frame, categorical)), info)


def histgb(dataset: Dataset, params: FitParams) -> FittedModel:
    """scikit-learn's HistGradientBoosting; older versions validate on a part of the training rows instead."""
    time_is_up, encode_all = params.start_timer(), categorical_encoder(dataset, MAX_CATEGORIES)
    distinct: Any = dataset.train.frame.nunique()
    columns = [name for name in dataset.train.frame.columns if distinct[name] > 1]

    def encode(frame: pandas.DataFrame) -> pandas.DataFrame:
        return encode_all(frame).loc[:, columns]  # it rejects columns without values

    estimator = HistGradientBoostingClassifier if dataset.classes else HistGradientBoostingRegressor
    options = {"early_stopping": True, "warm_start": True, "categorical_features": "from_dtype"}
    model: Any = estimator(
        learning_rate=params.learning_rate, n_iter_no_change=params.patience, random_state=params.seed, **options
    )
    validation = {}
    if "X_val" in inspect.signature(model.fit).parameters:
        validation = {"X_val": encode(dataset.validation.frame), "y_val": dataset.validation.targets}
    # It has no callbacks: the time limit is checked between calls of `fit`.
    for trees in range(TREES_PER_FIT, MAX_TREES + 1, TREES_PER_FIT):
        model.set_params(max_iter=trees).fit(encode(dataset.train.frame), dataset.train.targets, **validation)
        if model.n_iter_ < trees or time_is_up():
            break
    return FittedModel(
        lambda frame: _predict(model, encode(frame)), {"trees": model.n_iter_, "version": sklearn.__version__}
    )


def linear(dataset: Dataset, params: FitParams) -> FittedModel:
    """Logistic or ridge regression over standardized numbers and one-hot categories."""
    categorical = dataset.categorical_columns
    numeric = [name for name in dataset.train.frame.columns if name not in categorical]
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), categorical),
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numeric),
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=1000) if dataset.classes else Ridge())
    model.fit(dataset.train.frame, dataset.train.targets)
    return FittedModel(lambda frame: _predict(model, frame), {"version": sklearn.__version__})


BASELINES: dict[str, FitModel] = {
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "catboost": catboost,
    "catboost-long": catboost_long,
    "histgb": histgb,
    "linear": linear,
}
DETERMINISTIC = ("lightgbm", "xgboost", "histgb", "linear")
"""Baselines whose seed changes nothing with these parameters: one run per split is enough."""


def categorical_encoder(
    dataset: Dataset, max_categories: int | None = None
) -> Callable[[pandas.DataFrame], pandas.DataFrame]:
    """Converts columns to pandas categoricals with the most frequent training values; others become missing."""
    counts = {name: dataset.train.frame[name].value_counts() for name in dataset.categorical_columns}
    categories = {name: sorted(own.index[:max_categories]) for name, own in counts.items()}
    return lambda frame: frame.assign(
        **{
            name: frame[name].where(frame[name].isin(values)).astype(pandas.CategoricalDtype(values))
            for name, values in categories.items()
        }
    )


def _missing_as_empty(frame: pandas.DataFrame, columns: list[str]) -> pandas.DataFrame:
    """CatBoost requires categories to be strings, missing ones too."""
    return frame.assign(**{name: frame[name].astype(object).where(frame[name].notna(), "") for name in columns})


def _predict(model: Any, frame: Any) -> np.ndarray:
    return model.predict_proba(frame) if hasattr(model, "predict_proba") else model.predict(frame)
