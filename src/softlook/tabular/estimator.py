"""Base estimator: fit, predict and save."""

import copy
import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from softlook.base.device import choose_device
from softlook.base.errors import DataError
from softlook.tabular.chunked_fit import ChunkedFitMixin
from softlook.tabular.ensemble.estimator import IMPORTANCE_ROWS, EnsembleMixin, FitTable
from softlook.tabular.fit_context import NO_OPTIONS, FitCallback, FitContext, FitOptions, TrainLoop
from softlook.tabular.importance import ExplainableEstimator
from softlook.tabular.io.chunked import ChunkedTable, TargetColumns, is_chunked
from softlook.tabular.preprocessing.column_types import ColumnOverrides
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.rows import TableTensors, concat_rows, sample_rows
from softlook.tabular.preprocessing.table_encoder import TableEncoder
from softlook.tabular.preprocessing.target import Target
from softlook.tabular.presets import AUTO_SIZES, MIN_ROWS_TO_SPLIT, Hyperparameters, select_hyperparameters
from softlook.tabular.pretraining.pretrain import FEW_LABELS, PretrainMixin
from softlook.tabular.training.autosize import TrainingContext, build_model, limit_step_cost, resolve_hyperparameters
from softlook.tabular.training.row_store import DiskRows
from softlook.tabular.training.runtime import (
    Epoch,
    TimeBudget,
    forked_rng,
    limit_threads,
    progress_printer,
    seed_from_random_state,
)
from softlook.tabular.training.splits import SplitKeys
from softlook.tabular.training.trainer import TableTrainer
from softlook.tabular.validation import (
    check_eval_set,
    check_parameters,
    check_same_column_types,
    check_same_model,
    validate_features,
    validate_sample_weight,
)
from softlook.train.rng import make_generator


class TableEstimator(EnsembleMixin, ChunkedFitMixin, ExplainableEstimator, PretrainMixin):
    """Base class of all estimators. Subclasses define the target and the model family."""

    history_: list[Epoch]
    n_iter_: int
    n_features_in_: int
    feature_names_in_: np.ndarray

    @property
    def encoder_(self) -> TableEncoder:
        """The column encoders."""
        check_is_fitted(self, "preprocessor_")
        return self.preprocessor_.encoder

    # --- what subclasses define --------------------------------------------------------------------------------------

    @abstractmethod
    def _fit_target(self, y: np.ndarray, is_train: np.ndarray) -> Target:
        """Fit the target encoding, given all of y and a mask of the training rows."""

    def _class_weights(self, y: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray | None:
        """The weight of each class, if they differ. `counts`: how often each label in y occurs, if not once."""
        return None

    # --- fit ---------------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: tuple[Any, Any] | None = None,
        groups: Any = None,
        callbacks: Sequence[FitCallback] = (),
    ) -> Self:
        """Fit to a table and its targets.

        X: pandas, polars, pyarrow, numpy, or a list of rows. y: for a classifier (N,) labels, which may be strings,
        integers, booleans or dates, none missing, or (N, K) indicators, 0 or 1, of several labels per row; for a
        regressor one or several numbers per row, (N,) or (N, K). Rows with a `sample_weight` of 0 are ignored.
        `eval_set=(X, y)` are rows for early stopping; by default a fraction of X is held out. X may also be chunked: a
        path, paths, an iterable of frames or a function that returns one; then y is a column name (several numbers: a
        list of names), `sample_weight` is a column name, and rows beyond `memory_limit` are stored in a temporary
        folder.

        `groups`: (N,) labels; rows of a group are never separated into training and validation rows. `callbacks` are
        called with the metrics of every epoch; training of the model ends if one returns True.
        """
        self._fit(X, y, sample_weight, eval_set, options=FitOptions(groups, tuple(callbacks)))
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        eval_set: tuple[Any, Any] | None,
        train_loop: TrainLoop | None = None,
        *,
        options: FitOptions = NO_OPTIONS,
    ) -> None:
        """`train_loop` runs the trainer in place of `trainer.train`."""
        check_eval_set(eval_set)
        if is_chunked(X):
            options.check_chunked(self.time_column)
            self._fit_chunks(X, TargetColumns.of(y, sample_weight), eval_set, train_loop, options)
            return
        context = replace(self._begin_fit(), options=options)
        if context.pretrained is not None:
            self._check_columns(X)
        X = validate_features(self, X, reset=context.is_new)
        y = self._validate_y(X, y)
        weight, keys = validate_sample_weight(sample_weight, X), self._split_keys(X, y, options)
        if not weight.all():  # rows of weight 0 are ignored
            kept = np.flatnonzero(weight)
            X, y, weight, keys = _safe_indexing(X, kept), y[kept], weight[kept], keys.take(kept)
        if train_loop is None and self._uses_ensemble(context, y):
            self._fit_ensemble(FitTable(X, y, weight, keys), eval_set, context)
            return
        with forked_rng(context.seed, context.device), limit_threads(self.n_jobs):
            mask = self._validation_mask(keys, len(y), eval_set, context.seed)
            X_train = _safe_indexing(X, np.flatnonzero(~mask)) if mask.any() else X
            features = None
            if not context.is_warm:
                self.target_ = self._fit_target(y, ~mask)
                if context.pretrained is not None:
                    self.preprocessor_ = context.pretrained.preprocessor
                else:
                    features = self._fit_preprocessor(X_train, context.hparams, context.seed)
            class_weights = self._class_weights(y)
            rows = self._to_rows(X_train, y[~mask], weight[~mask], class_weights, features)
            if eval_set is not None:
                validation = self._eval_set_rows(*eval_set, class_weights)
            else:
                X_valid = _safe_indexing(X, np.flatnonzero(mask))
                validation = self._to_rows(X_valid, y[mask], weight[mask], class_weights)
            self._train(self._build_trainer(rows, validation, rows, context), context, train_loop)

    def _begin_fit(self) -> FitContext:
        """Discard the existing model, unless it is a warm start."""
        is_warm = bool(self.warm_start) and hasattr(self, "model_")
        if not is_warm:
            vars(self).pop("model_", None)
        pretrained, seed = None if is_warm else self._get_pretrained(), seed_from_random_state(self.random_state)
        hparams, device = self._select_hyperparameters(), choose_device(self.device)
        return FitContext(time.monotonic(), is_warm, pretrained, hparams, seed, device, self.time_limit)

    def _build_trainer(
        self,
        rows: TableTensors | DiskRows | None,
        validation: TableTensors | None,
        sample: TableTensors | None,
        context: FitContext,
    ) -> TableTrainer:
        """Model, training and validation rows on the device; `sample` determines the bins of piecewise embeddings."""
        if rows is None or sample is None:
            raise DataError("every row has weight 0: there is nothing to train on. Check the class weights.")
        hparams, device = self._resolve_hyperparameters(context, len(rows)), context.device
        if context.is_warm:
            model = self.model_
        elif context.pretrained is not None:
            model = context.pretrained.build_model(hparams, self.target_.outputs)
        else:
            model = build_model(hparams, self.preprocessor_, sample.numbers, self.target_.outputs)
        validation = None if validation is None else validation.to(device)
        return TableTrainer(
            model.to(device), rows.to(device), validation, target=self.target_, hparams=hparams, seed=context.seed
        )

    def _train(self, trainer: TableTrainer, context: FitContext, train_loop: TrainLoop | None) -> None:
        pretrained, budget = context.pretrained, TimeBudget(context.seconds, context.started)
        probe_history = None if pretrained is None else self._fit_probe(pretrained, trainer, budget)
        if train_loop is not None:
            self.history_ = train_loop(trainer, budget)
        elif probe_history is not None:
            self.history_ = probe_history
        else:
            with progress_printer(self.verbose) as callback:
                self.history_ = trainer.train(budget, context.options.callback(trainer, callback))
        # set last, so that an interrupted fit does not count as fitted
        self.model_, self.hyperparameters_, self.n_iter_ = trainer.model, trainer.hparams, len(self.history_)
        self.retrieval_, self.ensemble_ = trainer.retrieval, None
        self._store_validation_residuals(trainer.validation)
        self._store_importances(sample_rows(trainer.train_rows, IMPORTANCE_ROWS, make_generator(trainer.seed, 0)))

    def _select_hyperparameters(self) -> Hyperparameters:
        check_parameters(self)
        return select_hyperparameters(self.family, self.preset, self.get_params(deep=False))

    def _resolve_hyperparameters(self, context: FitContext, rows: int) -> Hyperparameters:
        """The hyperparameters with all automatic choices; on a warm start with the sizes of the existing model."""
        hparams = context.hparams
        if context.pretrained is not None:
            return self._finetuning_hyperparameters(context.pretrained, hparams)
        if context.is_warm:
            self._check_warm_start(hparams)
            hparams = replace(hparams, **{name: getattr(self.hyperparameters_, name) for name in AUTO_SIZES})
        training = TrainingContext(
            rows,
            tokens=1 + len(self.preprocessor_.token_columns),
            device=context.device.type,
            is_regression=not is_classifier(self),
            seconds=context.seconds,
        )
        # only categories attend in a TabTransformer
        tokens = 1 + len(self.preprocessor_.cardinalities) if self.family == "tab" else training.tokens
        is_open = hparams.attention_dropout is None
        resolved = resolve_hyperparameters(hparams, training)
        return limit_step_cost(resolved, replace(training, tokens=tokens), may_drop_dropout=is_open)

    def _check_warm_start(self, hparams: Hyperparameters) -> None:
        """Raise an error if a parameter changed that the existing model cannot follow."""
        if self._get_pretrained() is None:  # which determines sizes itself
            check_same_model(self.hyperparameters_, hparams)
        names = self.encoder_.names
        overrides = ColumnOverrides.of(names, self.column_types, self.ordinal_categories)  # pyright: ignore[reportArgumentType]
        check_same_column_types(self.encoder_.column_types, overrides.column_types)

    def _split_keys(self, X: Any, y: np.ndarray, options: FitOptions) -> SplitKeys:
        codes = np.unique(y, return_inverse=True)[1] if is_classifier(self) and y.ndim == 1 else None
        return SplitKeys.of(X, codes=codes, groups=options.groups, time_column=self.time_column)

    def _validation_mask(self, keys: SplitKeys, rows: int, eval_set: Any, seed: int) -> np.ndarray:
        """True for the rows held out for validation: none if there is an eval_set, or few rows."""
        least = MIN_ROWS_TO_SPLIT if self._get_pretrained() is None else FEW_LABELS
        if eval_set is not None or not self.validation_fraction or rows < least:
            return np.zeros(rows, dtype=bool)
        return keys.mask(rows, self.validation_fraction, seed)

    def _fit_preprocessor(
        self, X: Any, hparams: Hyperparameters, seed: int, encoder: TableEncoder | None = None
    ) -> TableTensors:
        """Fit the preprocessing on a table; returns its rows, so that the table is encoded only once."""
        if encoder is None:
            types, orders = self.column_types, self.ordinal_categories
            encoder = TableEncoder.fit(X, column_types=types, ordinal_categories=orders, seed=seed)  # pyright: ignore[reportArgumentType]
        encoded = encoder.encode(X)
        self.preprocessor_ = TablePreprocessor.fit(encoded, encoder, hparams, seed=seed)
        if self.verbose:
            sys.stderr.write("".join(f"{line}\n" for line in self.preprocessor_.describe()))
        return self.preprocessor_.transform_encoded(encoded)

    def _to_rows(
        self,
        X: Any,
        y: np.ndarray,
        weight: np.ndarray,
        class_weights: np.ndarray | None,
        features: TableTensors | None = None,
    ) -> TableTensors | None:
        """Rows with targets and weights; None if no row has a positive weight. `features`: X, already transformed."""
        if not len(y):
            return None
        codes = self.target_.encode(y)
        weight = weight if class_weights is None else weight * class_weights[codes]
        if not weight.any():
            return None
        rows = self.preprocessor_.transform(X) if features is None else features
        return replace(rows, targets=torch.from_numpy(codes), weight=torch.tensor(weight, dtype=torch.float))

    def _eval_set_rows(self, X: Any, y: Any, class_weights: np.ndarray | None) -> TableTensors | None:
        if is_chunked(X):
            chunks = ChunkedTable.of(X).split(TargetColumns.of(y, None))
            parts = [self._eval_set_rows(self._select_features(X), y, class_weights) for X, y, _ in chunks]
            return concat_rows([rows for rows in parts if rows is not None])
        X = validate_features(self, X, reset=False)
        y = self._validate_y(X, y)
        return self._to_rows(X, y, np.ones(len(y)), class_weights)

    # --- state -------------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = cast(Any, super()).__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the model on the CPU, so that any machine can load it."""
        state = dict(cast(dict[str, Any], super().__getstate__()))
        if "model_" in state and next(state["model_"].parameters()).device.type != "cpu":
            state["model_"] = copy.deepcopy(state["model_"]).cpu()
            if self.ensemble_ is not None:
                state["ensemble_"] = copy.deepcopy(self.ensemble_).to(torch.device("cpu"))
        return state

    def save(self, folder: str | Path) -> Path:
        """Save to a new folder: JSON, safetensors and a digest of each file; nothing is pickled."""
        from softlook.tabular.serialization import save  # noqa: PLC0415  (circular import)

        check_is_fitted(self, ["model_", "pretrained_"], all_or_any=any)
        return save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Any:
        """Load an estimator from a folder written by `save`, after verifying all digests."""
        from softlook.tabular.serialization import load  # noqa: PLC0415  (circular import)

        return load(Path(folder), cls)
