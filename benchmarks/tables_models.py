"""Models of the tabular benchmarks: softlook's estimators with their presets, and the baselines."""

from dataclasses import replace
from typing import Any

from benchmarks.tables_baselines import BASELINES, FitModel, FitParams, FittedModel, Predict
from benchmarks.tables_data import Dataset
from benchmarks.tables_rtdl import rtdl
from softlook.tabular import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
)
from softlook.tabular.presets import FT_PAPER

TABLE = (TableTransformerRegressor, TableTransformerClassifier)
FT = (FTTransformerRegressor, FTTransformerClassifier)
TAB = (TabTransformerRegressor, TabTransformerClassifier)
SOFTLOOK: dict[str, tuple[tuple[type, type], Any]] = {
    "table-transformer": (TABLE, "default"),
    "ft-transformer": (FT, "paper"),
    "ft-transformer-compiled": (FT, replace(FT_PAPER, mixed_precision=True, compile=True)),
    "tab-transformer": (TAB, "improved"),
    "tab-transformer-paper": (TAB, "paper"),
}
"""Regressor, classifier and preset. The compiled one is the paper's in bfloat16, for a GPU."""


def make_estimator(name: str, dataset: Dataset, params: FitParams) -> Any:
    """A softlook estimator for this dataset, without tuning."""
    classes, preset = SOFTLOOK[name]
    estimator: Any = classes[bool(dataset.classes)]
    return estimator(preset=preset, random_state=params.seed, n_jobs=params.threads, time_limit=params.time_limit)


def prediction_function(model: Any, dataset: Dataset) -> Predict:
    """Probabilities for classification, numbers for regression."""
    return model.predict_proba if dataset.classes else model.predict


def fit_softlook(name: str) -> FitModel:
    """Fits a softlook estimator with early stopping on the validation split."""

    def fit(dataset: Dataset, params: FitParams) -> FittedModel:
        model = make_estimator(name, dataset, params)
        validation = (dataset.validation.frame, dataset.validation.targets)
        model.fit(dataset.train.frame, dataset.train.targets, eval_set=validation)
        return FittedModel(prediction_function(model, dataset), {"epochs": model.n_iter_})

    return fit


MODELS: dict[str, FitModel] = {**{name: fit_softlook(name) for name in SOFTLOOK}, **BASELINES, "rtdl": rtdl}
NEURAL = (*SOFTLOOK, "rtdl")
"""Models that use a GPU if there is one."""
