"""Parameters of the estimators, and their documentation."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from softlook.tabular.presets import (
    HELP,
    EarlyStoppingMetric,
    EnsembleName,
    Hyperparameters,
    NumericEmbeddingName,
    ScalingMethod,
)

Estimator = TypeVar("Estimator", bound=type)
ClassWeight = Mapping[Any, float] | Literal["balanced"] | None
DOCS: Mapping[str, str] = {
    **HELP,
    "preset": "A name in `softlook.tabular.PRESETS`, or `Hyperparameters`: the value of every parameter that is None.",
    "ensemble": "'auto': a cross-fitted ensemble of attention models, boosted trees and a linear model, weighted by "
    "their out-of-fold predictions. 'attention': of attention models only. 'single': one attention model.",
    "validation_fraction": "Fraction of the rows held out for early stopping; none of fewer than 50 rows.",
    "n_cv": "Folds of the ensemble; default: 5, and one split of more than 20,000 rows.",
    "time_column": "Column of dates or numbers: validation rows are the latest ones.",
    "time_limit": "Seconds that `fit`, or `pretrain`, may take.",
    "memory_limit": "Bytes that a chunked table may occupy; a larger one is read from disk. Default: 1 GiB.",
    "class_weight": "'balanced', or the weight of each class: {'yes': 3}. Other classes have weight 1.",
    "quantiles": "Ascending levels such as [0.05, 0.5, 0.95]: `predict` returns these quantiles instead of the mean.",
    "column_types": "{column: type} overrides inferred types: number, boolean, category, ordinal, date or text.",
    "ordinal_categories": "{column: [lowest, ..., highest]} for columns whose values are ordered.",
    "device": "'auto' uses a GPU if there is one; otherwise a torch device: 'cpu', 'cuda:1'.",
    "n_jobs": "CPU threads; None keeps torch's setting, -1 means all cores.",
    "random_state": "A seed, or a numpy RandomState, for reproducible results; None is random.",
    "warm_start": "Whether `fit` continues to train the existing model.",
    "verbose": "Whether `fit` prints the inferred columns and its progress on stderr.",
}
ATTRIBUTES = {
    "classes_": "The class labels, sorted.",
    "encoder_": "The column encoders: `encoder_.describe()` lists them, `encoder_.column_types` are their types.",
    "model_": "The model, a torch.nn.Module.",
    "hyperparameters_": "The hyperparameters of the fit, with all automatic choices.",
    "retrieval_": "The training rows used for retrieval, or None.",
    "history_": "Number, losses and seconds of each epoch.",
    "ensemble_": "The ensemble, or None for a single model.",
    "leaderboard_": "The models of the ensemble with weight, out-of-fold loss, folds and seconds.",
    "feature_importances_": "Fraction of the attention of [CLS] on each column, in a sample of the rows.",
    "n_iter_": "The number of epochs.",
    "n_features_in_": "The number of columns.",
    "feature_names_in_": "The column names, if all are strings.",
}


@dataclass(kw_only=True, eq=False, repr=False)
class CommonParams:
    """Parameters of all estimators. The dataclass writes the explicit constructor that scikit-learn requires."""

    preset: str | Hyperparameters = "paper"
    validation_fraction: float = 0.2
    time_column: str | int | None = None
    time_limit: float | None = None
    memory_limit: float | None = None
    column_types: Mapping[str, str] | None = None
    ordinal_categories: Mapping[str, list[Any]] | None = None
    device: str = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    warm_start: bool = False
    verbose: bool | int = False
    scaling: ScalingMethod | None = None
    lr: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    patience: int | None = None
    early_stopping_metric: EarlyStoppingMetric | None = None
    dim: int | None = None
    depth: int | None = None
    heads: int | None = None
    dropout: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ClassifierParams:
    """Parameters of the classifiers."""

    class_weight: ClassWeight = None


@dataclass(kw_only=True, eq=False, repr=False)
class RegressorParams:
    """Parameters of the regressors."""

    quantiles: Sequence[float] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class FTTransformerParams:
    """Parameters of FT-Transformers."""

    hidden: int | None = None
    attention_dropout: float | None = None
    hidden_dropout: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class TableTransformerParams(FTTransformerParams):
    """Parameters of TableTransformers."""

    preset: str | Hyperparameters = "default"
    ensemble: EnsembleName = "auto"
    n_cv: int | None = None
    n_members: int | None = None
    num_embeddings: NumericEmbeddingName | None = None


def document_parameters(estimator: Estimator) -> Estimator:
    """Append numpydoc sections of parameters and attributes to an estimator's docstring."""
    signature = inspect.signature(estimator).parameters
    parameters = [f"{name} : default={signature[name].default!r}\n    {DOCS[name]}" for name in signature]
    known = {name: text for name, text in ATTRIBUTES.items() if name != "classes_" or "class_weight" in signature}
    attributes = [f"{name}\n    {text}" for name, text in known.items()]
    doc = inspect.cleandoc(estimator.__doc__ or "")
    estimator.__doc__ = "\n".join([doc, *_section("Parameters", parameters), *_section("Attributes", attributes)])
    return estimator


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, "-" * len(title), *lines]
