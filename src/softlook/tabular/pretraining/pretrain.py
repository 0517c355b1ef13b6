"""Pretraining on unlabelled rows, and fine-tuning: methods of the estimators."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from softlook.base.device import choose_device
from softlook.base.errors import ConfigError, DataError
from softlook.tabular.formatting import join_names
from softlook.tabular.io.chunked import ChunkedTable, concat_tables, is_chunked
from softlook.tabular.preprocessing.column_types import ColumnOverrides
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.reservoir import RESERVOIR_ROWS
from softlook.tabular.presets import ARCHITECTURE, AUTO_SIZES, Family, Hyperparameters
from softlook.tabular.pretraining.linear_probe import FeatureScale, fit_linear_probe, is_head_parameter
from softlook.tabular.pretraining.pretext_tasks import PretrainParams, PretrainTrainer, TaskName
from softlook.tabular.training.autosize import build_model, fill_sizes
from softlook.tabular.training.row_store import MemoryBudget
from softlook.tabular.training.runtime import (
    Epoch,
    TimeBudget,
    forked_rng,
    limit_threads,
    progress_printer,
    seed_from_random_state,
)
from softlook.tabular.training.trainer import TableTrainer
from softlook.tabular.validation import validate_features
from softlook.train.rng import make_generator

FEW_LABELS = 1000
"""With fewer labels there is no validation split after `pretrain`, and only the linear probe is fitted."""
PRETRAIN_LR, FINETUNE_LR_FACTOR = 1e-3, 0.1
"""Learning rate of `pretrain`, and the factor on the learning rate of a `fit` that follows."""
MAX_PROBE_ROWS = 10_000
"""Labelled rows that the linear probe is fitted on."""
SIZE = Hyperparameters(dim=64, depth=2, n_members=8, bins=96, attention_dropout=0.2, hidden_dropout=0.1)
"""Model size if the preset leaves it open; members share all blocks but the last."""


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A pretrained model with its preprocessor."""

    task: TaskName
    hparams: Hyperparameters
    overrides: ColumnOverrides
    preprocessor: TablePreprocessor
    weights: dict[str, Tensor]
    """All weights but those of the head."""
    scale: FeatureScale
    """Scale of the features of the linear probe."""
    history: list[Epoch]

    def build_model(self, hparams: Hyperparameters, outputs: int) -> nn.Module:
        """A model with these weights and a new head."""
        model = build_model(hparams, self.preprocessor, None, outputs)
        model.load_state_dict(self.weights, strict=False)
        return model


class PretrainMixin:
    """`pretrain`, and what a `fit` after it does differently."""

    family: ClassVar[Family]
    preprocessor_: TablePreprocessor
    pretrained_: Pretrained

    def pretrain(
        self: Any, X: Any, *, task: TaskName = "mlm", corruption_rate: float = 0.3, epochs: int | None = None
    ) -> Any:
        """Pretrain on unlabelled rows; a `fit` that follows fine-tunes the result.

        task: "mlm" masks cells, and the model predicts their category or the bin of their number. "rtd" replaces cells
        by values of other rows, and the model detects them. `corruption_rate` is the fraction of cells. A
        TabTransformer, whose blocks see no numbers, is pretrained on its categories alone.

        `fit` requires the same columns and uses the same preprocessing: a category that X does not contain is unseen.
        With fewer than 1,000 labels it fits a linear probe on the inputs and the states of the cells; with more labels,
        or with an `eval_set`, it then fine-tunes all layers at a low learning rate. Each call of `fit` starts from the
        pretrained weights, and so do the trials of `tune`. `clone`, and with it cross-validation, searches and
        ensembles of scikit-learn, discards them; `save`, joblib and copy.deepcopy keep them.

        >>> from softlook.tabular import TableTransformerClassifier
        >>> X = [[row % 7, "odd" if row % 2 else "even"] for row in range(80)]
        >>> model = TableTransformerClassifier(dim=16, heads=2, random_state=0).pretrain(X, epochs=2)
        >>> model.fit(X[:20], [label for _, label in X[:20]]).predict(X[40:42])
        array(['even', 'odd'], dtype='<U4')
        """
        params, budget = PretrainParams(task, corruption_rate, epochs), TimeBudget(self.time_limit, time.monotonic())
        for name in ("pretrained_", "model_"):
            vars(self).pop(name, None)
        hparams, device = _pretraining_hyperparameters(self._select_hyperparameters()), choose_device(self.device)
        hparams = hparams if self.lr is not None else replace(hparams, lr=PRETRAIN_LR)
        seed = seed_from_random_state(self.random_state)
        if is_chunked(X):
            X = _load_or_sample(X, self.memory_limit, seed)
        X = validate_features(self, X, reset=True)
        with forked_rng(seed, device), limit_threads(self.n_jobs):
            rows = self._fit_preprocessor(X, hparams, seed)
            model = build_model(hparams, self.preprocessor_, rows.numbers, 1).to(device)
            if hparams.model == "TabTransformer" and not self.preprocessor_.cardinalities:
                raise ConfigError(
                    "a TabTransformer attends to categories only, and this table has none: there is nothing to "
                    "pretrain. A TableTransformer attends to numbers too."
                )
            rows = rows.to(device)
            trainer = PretrainTrainer(model, rows, params=params, hparams=hparams, seed=seed)
            with progress_printer(self.verbose) as callback:
                history = trainer.train(budget, callback)
            named = {name: tensor for name, tensor in model.state_dict().items() if not is_head_parameter(name)}
            self.pretrained_ = Pretrained(
                task,
                hparams,
                ColumnOverrides.of(self.encoder_.names, self.column_types, self.ordinal_categories),
                self.preprocessor_,
                {name: tensor.cpu().clone() for name, tensor in named.items()},
                FeatureScale.of(model, rows).to(torch.device("cpu")),
                history,
            )
        return self

    def _check_columns(self: Any, X: Any) -> None:
        """Raise an error if the columns are not those of `pretrain`."""
        known = getattr(self, "feature_names_in_", None)
        if known is None or not nw.dependencies.is_into_dataframe(X):
            return  # scikit-learn compares their number
        known, names = known.tolist(), list(nw.from_native(X, eager_only=True).columns)
        absent, new = [name for name in known if name not in names], [name for name in names if name not in known]
        if absent or new or known != names:
            found = [f"{join_names(some)} {word}" for some, word in ((absent, "missing"), (new, "new")) if some]
            raise DataError(f"the columns are not those of pretrain: {'; '.join(found) or 'their order differs'}")

    def _get_pretrained(self) -> Pretrained | None:
        return getattr(self, "pretrained_", None)

    def _copy_pretrained(self, other: "PretrainMixin") -> None:
        """Let another estimator start from the same pretrained weights."""
        for name in ("pretrained_", "n_features_in_", "feature_names_in_"):
            if self._get_pretrained() is not None and hasattr(self, name):
                setattr(other, name, getattr(self, name))

    def _finetuning_hyperparameters(self: Any, pretrained: Pretrained, hparams: Hyperparameters) -> Hyperparameters:
        """The hyperparameters with the sizes of the pretrained weights; raises an error if they ask for others."""
        now = ColumnOverrides.of(pretrained.preprocessor.encoder.names, self.column_types, self.ordinal_categories)
        _check_same("ordinal_categories", pretrained.overrides.orders, now.orders)
        _check_same("column_types", pretrained.overrides.column_types, now.column_types)
        own = pretrained.hparams
        for name in (*ARCHITECTURE, *(name for name in AUTO_SIZES if getattr(hparams, name))):
            _check_same(name, getattr(own, name), getattr(hparams, name))
        return replace(
            fill_sizes(hparams, own),
            shared_blocks=own.shared_blocks,
            linear_skip=True,
            retrieval_rows=None,
            schedule="cosine",
            lr=hparams.lr * (FINETUNE_LR_FACTOR if self.lr is None else 1),
        )

    def _fit_probe(self: Any, pretrained: Pretrained, trainer: TableTrainer, budget: TimeBudget) -> list[Epoch] | None:
        """Fit the linear probe; returns the history if that is all, None if all layers are to be fine-tuned."""
        rows = next(iter(trainer.train_rows.batches(MAX_PROBE_ROWS, make_generator(trainer.seed, 0))))
        loss = fit_linear_probe(trainer.model, rows, trainer.target, pretrained.scale)
        epoch: Epoch = {"epoch": 1, "loss": loss}
        if trainer.has_validation:
            trainer.reserve_time(budget)
            trainer.evaluate(epoch)  # fine-tuning can only improve on it
        if trainer.has_validation or trainer.hparams.epochs is not None:
            return None
        return [epoch | {"seconds": time.monotonic() - budget.started}]


def _load_or_sample(X: Any, memory_limit: float | None, seed: int) -> pa.Table:
    """A chunked table as one; a random sample of its rows if it is too large."""
    with TemporaryDirectory(prefix="softlook-") as folder:
        chunks = ChunkedTable.of(X, Path(folder))
        table = chunks.load(MemoryBudget.of(memory_limit).table)
        if table is not None:
            return table
        fraction = RESERVOIR_ROWS / sum(chunk.num_rows for chunk in chunks.tables())
        rng = np.random.default_rng(seed)
        return concat_tables([chunk.filter(pa.array(rng.random(len(chunk)) < fraction)) for chunk in chunks.tables()])


def _check_same(name: str, then: Any, now: Any) -> None:
    if then != now:
        raise ConfigError(
            f"{name} was {then!r:.200} in pretrain, and is {now!r:.200} now. "
            "Use the same value, or call pretrain again."
        )


def _pretraining_hyperparameters(hparams: Hyperparameters) -> Hyperparameters:
    """The hyperparameters with all sizes. Members are expanded late, so that they cost next to nothing."""
    if not hparams.n_members:
        hparams = replace(hparams, shared_blocks=None)
    return replace(fill_sizes(hparams, SIZE), linear_skip=True)
