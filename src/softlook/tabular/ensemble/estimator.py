"""Ensembles of estimators: a mixin."""

import math
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import is_classifier

from softlook.tabular.ensemble.attention import AttentionModel
from softlook.tabular.ensemble.cross_fit import FoldData
from softlook.tabular.ensemble.fit import EnsembleData, fit_ensemble
from softlook.tabular.preprocessing.rows import TableTensors, concat_rows
from softlook.tabular.presets import MIN_ROWS_TO_SPLIT
from softlook.tabular.training.runtime import Epoch, TimeBudget, forked_rng, limit_threads, progress_printer
from softlook.tabular.training.splits import Split, SplitKeys, fold_indices

MAX_FOLD_ROWS, FOLDS = 20_000, 5
"""Rows up to which models are cross-fitted by default, and in how many folds; of more rows, a fraction is held out."""
IMPORTANCE_ROWS = 256
"""Rows whose attention is `feature_importances_`."""


class FitTable(NamedTuple):
    """Checked columns, targets and sample weights, and the keys of the validation split."""

    X: Any
    y: np.ndarray
    weight: np.ndarray
    keys: SplitKeys


class EnsembleMixin:
    """Fits an ensemble instead of a single model."""

    @property
    def leaderboard_(self: Any) -> list[dict[str, Any]]:
        """The models that were tried: name, kind, weight in the ensemble, out-of-fold loss, folds and seconds."""
        return [] if self.ensemble_ is None else self.ensemble_.leaderboard

    def _uses_ensemble(self: Any, context: Any, y: np.ndarray) -> bool:
        """Whether there is an ensemble: not with few rows, after `pretrain`, or on a warm start.

        There is none either if all rows have the same class, or each has another: validation would be impossible.
        """
        kind = getattr(self, "ensemble", "single")
        if kind == "single" or not context.is_new or self.warm_start or not self.validation_fraction:
            return False
        can_learn = not is_classifier(self) or y.ndim > 1 or 1 < len(np.unique(y)) < len(y)
        return len(y) >= MIN_ROWS_TO_SPLIT and can_learn

    def _fit_ensemble(self: Any, table: FitTable, eval_set: tuple[Any, Any] | None, context: Any) -> None:
        """Cross-fit all models. The first attention model becomes `model_`, whose attention the estimator explains."""
        X, y, weight, keys = table
        with forked_rng(context.seed, context.device), limit_threads(self.n_jobs):
            self.target_ = self._fit_target(y, np.ones(len(y), dtype=bool))
            features, class_weights = self._fit_preprocessor(X, context.hparams, context.seed), self._class_weights(y)
            rows = self._to_rows(X, y, weight, class_weights, features)
            validation = None if eval_set is None else self._eval_set_rows(*eval_set, class_weights)
            every = rows if validation is None else concat_rows([rows, validation])
            trained: list[tuple[AttentionModel, list[Epoch]]] = []

            def fit_attention(fold: FoldData, overrides: dict[str, Any]) -> AttentionModel:
                trained.append(self._fit_fold(fold, overrides, context))
                return trained[-1][0]

            def splits(number: int) -> list[Split]:
                if validation is not None:
                    return [(np.arange(len(rows)), np.arange(len(rows), len(every)))]
                return self._splits(len(y), keys, context.seed + number)

            data = EnsembleData(
                every.to(context.device),
                splits,
                self.target_,
                self.preprocessor_.cardinalities,
                context.seed,
                context.started,
                self.time_limit,
            )
            ensemble = fit_ensemble(data, fit_attention, attention_only=self.ensemble == "attention")
        first, self.history_ = trained[0]
        self.model_, self.hyperparameters_, self.n_iter_ = first.model, first.hparams, len(self.history_)
        is_held_out = np.ones(len(every), dtype=bool)
        is_held_out[: len(y)] = self._validation_mask(keys, len(y), eval_set, context.seed)
        self.retrieval_, self.ensemble_ = first.retrieval, ensemble.select_rows(torch.from_numpy(is_held_out))
        self._store_residuals(ensemble.predictions, ensemble.targets)
        self._store_importances(every.take(slice(IMPORTANCE_ROWS)).to(context.device))

    def _splits(self: Any, rows: int, keys: SplitKeys, seed: int) -> list[Split]:
        """Training and validation rows of each fold; one split of many rows, and of rows in the order of time."""
        count = 1 if keys.times is not None else self.n_cv or (1 if rows > MAX_FOLD_ROWS else FOLDS)
        if count == 1:
            return fold_indices(keys.mask(rows, self.validation_fraction, seed).astype(int), [1])
        return keys.folds(rows, count, seed)

    def _fit_fold(
        self: Any, fold: FoldData, overrides: dict[str, Any], context: Any
    ) -> tuple[AttentionModel, list[Epoch]]:
        """Train an attention model. Parameters that the user gave are not overridden."""
        started = time.monotonic()
        seconds = None if math.isinf(fold.deadline) else max(0.1, fold.deadline - started)
        changed = {name: value for name, value in overrides.items() if getattr(self, name, None) is None}
        hparams = replace(context.hparams, **changed)
        own = replace(context, started=started, seconds=seconds, hparams=hparams, seed=fold.seed)
        sample = TableTensors(fold.train.numbers.cpu(), fold.train.categories.cpu())
        trainer = self._build_trainer(fold.train, fold.validation, sample, own)
        torch.manual_seed(fold.seed)
        with progress_printer(self.verbose) as callback:
            history = trainer.train(TimeBudget(seconds, started), context.options.callback(trainer, callback))
        return AttentionModel(trainer.model, trainer.hparams, self.target_, trainer.retrieval), history
