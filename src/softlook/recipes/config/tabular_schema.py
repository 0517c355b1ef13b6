"""Schemas of tabular tasks: training and hyperparameter search."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from softlook.recipes.config.schema import RunConfig
from softlook.tabular.presets import HELP, EarlyStoppingMetric, EnsembleName, NumericEmbeddingName, ScalingMethod
from softlook.train.config import BaseConfig


def _hp(name: str, **constraints: Any) -> Any:
    """A hyperparameter of `softlook.tabular.presets`; None: the preset's value."""
    return Field(default=None, description=HELP[name], **constraints)


class TabularModelConfig(BaseConfig):
    """Model hyperparameters; default: the preset's."""

    dim: int | None = _hp("dim", ge=1)
    depth: int | None = _hp("depth", ge=1)
    heads: int | None = _hp("heads", ge=1)
    hidden: int | None = _hp("hidden", ge=1)
    n_members: int | None = _hp("n_members", ge=1)
    num_embeddings: NumericEmbeddingName | None = _hp("num_embeddings")
    scaling: ScalingMethod | None = _hp("scaling")
    dropout: float | None = _hp("dropout", ge=0, lt=1)
    attention_dropout: float | None = _hp("attention_dropout", ge=0, lt=1)
    hidden_dropout: float | None = _hp("hidden_dropout", ge=0, lt=1)


class TabularOptimizerConfig(BaseConfig):
    """Optimizer hyperparameters; default: the preset's."""

    lr: float | None = _hp("lr", gt=0)
    weight_decay: float | None = _hp("weight_decay", ge=0)
    batch_size: int | None = _hp("batch_size", ge=1)


class TabularTrainingConfig(BaseConfig):
    """Duration of training, early stopping and checkpoints."""

    epochs: int | None = _hp("epochs", ge=1)
    patience: int | None = _hp("patience", ge=1)
    early_stopping_metric: EarlyStoppingMetric | None = _hp("early_stopping_metric")
    max_minutes: float | None = Field(default=None, gt=0, description="time limit in minutes")
    memory_limit: float | None = Field(
        default=None, gt=0, description="GB that the table may occupy; rows beyond are read from disk; default: 1"
    )
    validation_fraction: float = Field(
        default=0.2, ge=0, lt=1, description="fraction of the rows held out for early stopping"
    )
    device: str = Field(default="auto", description="auto: cuda, then mps, then cpu")
    seed: int = Field(default=0, ge=0, lt=2**32, description="random seed")
    save_every: float = Field(default=30.0, gt=0, description="seconds between checkpoints")
    keep_checkpoints: int = Field(default=2, ge=1, description="number of checkpoints to keep")


class TabularConfig(RunConfig):
    """Train a model that predicts one column of a table from the others."""

    task: ClassVar[str] = "table"
    unit: ClassVar[str] = "rows"
    inference_command: ClassVar[str] = "predict"
    example_input: ClassVar[str] = "--data FILE"

    target: tuple[str, ...] = Field(default=(), description="target column; several for multi-output regression")
    problem: Literal["classification", "regression"] | None = Field(
        default=None, description="type of the problem; default: inferred from the target"
    )
    ignore: tuple[str, ...] = Field(default=(), description="columns to leave out")
    column_types: tuple[str, ...] = Field(
        default=(), description="column types that override the inferred ones: zip=category note=text"
    )
    ordinal_categories: tuple[str, ...] = Field(
        default=(), description="ordered values of ordinal columns, lowest first: size=S,M,L"
    )
    class_weights: tuple[str, ...] = Field(default=(), description="balanced, or the weight of each class: yes=3 no=1")
    estimator: Literal["table", "ft", "tab"] = Field(
        default="table", description="TableTransformer, or the papers' FT-Transformer (ft) or TabTransformer (tab)"
    )
    preset: Literal["default", "paper", "improved"] | None = Field(
        default=None, description="hyperparameter preset; default: default for table, paper for ft and tab"
    )
    ensemble: EnsembleName = Field(
        default="auto",
        description="after an attention model, fit an ensemble: auto, of attention models, boosted trees and a linear "
        "model; attention, of attention models only; single: no ensemble",
    )
    no_baseline: bool = Field(
        default=False, description="do not train boosted trees and a linear model to compare with"
    )
    model: TabularModelConfig = TabularModelConfig()
    optim: TabularOptimizerConfig = TabularOptimizerConfig()
    training: TabularTrainingConfig = TabularTrainingConfig()


class TuneConfig(TabularConfig):
    """Search for hyperparameters of a table model."""

    trials: int = Field(default=20, ge=1, description="number of trials")
    max_minutes: float | None = Field(default=None, gt=0, description="time limit of the whole search in minutes")
