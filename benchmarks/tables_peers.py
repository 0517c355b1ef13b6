"""Gradient boosting beside ours: every library as its documents advise, stopped by the same held-out rows.

Trees are added at a rate of 0.05 until 50 in a row bring nothing, as is usual with LightGBM and XGBoost; CatBoost is
left to its own defaults, a rate of its choice and at most 1,000 trees, and once more with the rate and length of the
others. Categories are told as such, and each library treats them in its own way.
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

from benchmarks.tables_data import Table, TableTensors

RATE, MOST, PATIENCE = 0.05, 4000, 50
TURN = 250
"""Trees that scikit-learn adds before it is asked for more."""
Predict = Callable[[pandas.DataFrame], np.ndarray]
"""(N,) numbers or (N, classes) probabilities for the rows of a frame."""


@dataclass(frozen=True)
class Fitted:
    """Something that answers, and what is known of how it came about."""

    predict: Predict
    facts: dict[str, Any]


@dataclass(frozen=True)
class Terms:
    """What everyone is told: chance, cores, and when to stop at the latest (seconds, None: never)."""

    seed: int = 0
    limit_threads: int = 1
    seconds: float | None = None

    def clock(self) -> Callable[[], bool]:
        """Says whether time is up; it runs from now on."""
        ends = float("inf") if self.seconds is None else time.monotonic() + self.seconds
        return lambda: time.monotonic() > ends


def lightgbm(table: Table, terms: Terms) -> Fitted:
    """Native categories; the metric of its own loss."""
    import lightgbm as library  # noqa: PLC0415  (not everyone has it)

    is_up, seen = terms.clock(), as_categories(table)

    def stop_late(state: Any) -> None:
        if is_up():
            raise library.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

    kind = library.LGBMClassifier if table.classes else library.LGBMRegressor
    model = kind(n_estimators=MOST, learning_rate=RATE, n_jobs=terms.limit_threads, random_state=terms.seed, verbosity=-1)
    held = {"eval_X": seen(table.eval_set.frame), "eval_y": table.eval_set.target}
    calls = [library.early_stopping(PATIENCE, verbose=False), stop_late]
    model.fit(seen(table.train.frame), table.train.target, **held, callbacks=calls)
    return Fitted(
        lambda frame: _answers(model, seen(frame)), {"trees": model.best_iteration_, "version": library.__version__}
    )


def xgboost(table: Table, terms: Terms) -> Fitted:
    """Native categories, trees by histogram."""
    import xgboost as library  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  (not everyone has it)

    is_up, seen = terms.clock(), as_categories(table)

    class Late(library.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return is_up()

    kind = library.XGBClassifier if table.classes else library.XGBRegressor
    model = kind(
        n_estimators=MOST,
        learning_rate=RATE,
        tree_method="hist",
        device="cpu",
        enable_categorical=True,
        early_stopping_rounds=PATIENCE,
        n_jobs=terms.limit_threads,
        random_state=terms.seed,
        callbacks=[Late()],
    )
    held = [(seen(table.eval_set.frame), table.eval_set.target)]
    model.fit(seen(table.train.frame), table.train.target, eval_set=held, verbose=False)
    return Fitted(
        lambda frame: _answers(model, seen(frame)), {"trees": model.best_iteration, "version": library.__version__}
    )


def catboost(table: Table, terms: Terms) -> Fitted:
    """Its defaults: ordered statistics of categories, at most 1,000 trees, a rate that it chooses."""
    return _catboost(table, terms, {})


def catboost_long(table: Table, terms: Terms) -> Fitted:
    """With the rate and the length of the others, it is the strongest on these tables."""
    return _catboost(table, terms, {"learning_rate": RATE, "iterations": MOST})


def _catboost(table: Table, terms: Terms, told: dict[str, Any]) -> Fitted:
    import catboost as library  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  (not everyone has it)

    is_up, words = terms.clock(), table.strings

    class Late:
        def after_iteration(self, info: Any) -> bool:
            return not is_up()

    def pool(rows: TableTensors) -> Any:
        return library.Pool(_spelled(rows.frame, words), rows.target, cat_features=words)

    kind = library.CatBoostClassifier if table.classes else library.CatBoostRegressor
    model = kind(
        **told,
        early_stopping_rounds=PATIENCE,
        thread_count=terms.limit_threads,
        random_seed=terms.seed,
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(pool(table.train), eval_set=pool(table.eval_set), callbacks=[Late()])
    facts = {"trees": model.tree_count_, "rate": model.learning_rate_, "version": library.__version__}
    return Fitted(lambda frame: _answers(model, _spelled(frame, words)), facts)


def histgb(table: Table, terms: Terms) -> Fitted:
    """scikit-learn's; older versions hold out a share of the training rows instead of taking ours."""
    is_up, seen = terms.clock(), as_categories(table)
    kind = HistGradientBoostingClassifier if table.classes else HistGradientBoostingRegressor
    told = {"early_stopping": True, "warm_start": True, "categorical_features": "from_dtype"}
    model: Any = kind(learning_rate=RATE, n_iter_no_change=PATIENCE, random_state=terms.seed, **told)
    held = {}
    if "X_val" in inspect.signature(model.fit).parameters:
        held = {"X_val": seen(table.eval_set.frame), "y_val": table.eval_set.target}
    for most in range(TURN, MOST + 1, TURN):  # it takes no calls on the way: the clock is looked at in between
        model.set_params(max_iter=most).fit(seen(table.train.frame), table.train.target, **held)
        if model.n_iter_ < most or is_up():
            break
    return Fitted(lambda frame: _answers(model, seen(frame)), {"trees": model.n_iter_, "version": sklearn.__version__})


def linear(table: Table, terms: Terms) -> Fitted:
    """Logistic or ridge regression over scaled numbers and a column for every category: the least to beat."""
    numbers = [name for name in table.train.frame.columns if name not in table.strings]
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), table.strings),
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=1000) if table.classes else Ridge())
    model.fit(table.train.frame, table.train.target)
    return Fitted(lambda frame: _answers(model, frame), {"version": sklearn.__version__})


PEERS: dict[str, Callable[[Table, Terms], Fitted]] = {
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "catboost": catboost,
    "catboost-long": catboost_long,
    "histgb": histgb,
    "linear": linear,
}
SAME_FOR_EVERY_SEED = ("lightgbm", "xgboost", "histgb", "linear")
"""They roll no dice on a given split at these settings: once is enough."""


def as_categories(table: Table) -> Callable[[pandas.DataFrame], pandas.DataFrame]:
    """Turns columns of words into pandas categories: those of the training rows, and anything else is missing."""
    known = {name: sorted(table.train.frame[name].dropna().unique()) for name in table.strings}
    return lambda frame: frame.assign(
        **{
            name: frame[name].where(frame[name].isin(values)).astype(pandas.CategoricalDtype(values))
            for name, values in known.items()
        }
    )


def _spelled(frame: pandas.DataFrame, words: list[str]) -> pandas.DataFrame:
    """CatBoost wants every category as a string, a missing one too."""
    return frame.assign(**{name: frame[name].astype(object).where(frame[name].notna(), "") for name in words})


def _predict_raw(model: Any, frame: Any) -> np.ndarray:
    return model.predict_proba(frame) if hasattr(model, "predict_proba") else model.predict(frame)
