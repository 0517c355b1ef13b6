"""Fit to a chunked table: loaded if it fits in memory, otherwise read twice and stored in a folder."""

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from softlook.tabular.fit_context import FitOptions, TrainLoop
from softlook.tabular.io.chunked import ChunkedTable, TargetColumns, locate_in_files
from softlook.tabular.preprocessing.reservoir import Reservoir
from softlook.tabular.preprocessing.table_encoder import TableEncoder
from softlook.tabular.preprocessing.target import Target
from softlook.tabular.preprocessing.target_stats import ClassCounts, TargetStats
from softlook.tabular.training.row_store import MemoryBudget, RowStore, TwoPassLoader
from softlook.tabular.training.runtime import forked_rng, limit_threads
from softlook.tabular.validation import check_parameters, validate_features, validate_sample_weight


class ChunkedFitMixin:
    """Fits an estimator to a chunked table."""

    @abstractmethod
    def _target_stats(self: Any) -> TargetStats:
        """Statistics to fit the target encoding on chunks of y."""

    def _chunked_target(self: Any, stats: TargetStats) -> Target:
        """The target encoding, given these statistics."""
        return stats.target()

    def _fit_chunks(
        self: Any,
        X: Any,
        roles: TargetColumns,
        eval_set: tuple[Any, Any] | None,
        train_loop: TrainLoop | None,
        options: FitOptions,
    ) -> None:
        """A chunked table: loaded as a whole, if it fits in memory."""
        check_parameters(self)
        with TemporaryDirectory(prefix="softlook-") as folder, locate_in_files(X):
            chunks = ChunkedTable.of(X, Path(folder))
            table = chunks.load(MemoryBudget.of(self.memory_limit).table)
            if table is None:
                fraction = 0.0 if eval_set else self.validation_fraction
                loader = TwoPassLoader(chunks, roles, self._validate_chunk, fraction)
                self._fit_two_pass(loader, Path(folder), eval_set, train_loop, options)
            else:
                self._fit(*roles.split(table, is_text=chunks.is_text), eval_set, train_loop, options=options)

    def _fit_two_pass(
        self: Any,
        loader: TwoPassLoader,
        folder: Path,
        eval_set: tuple[Any, Any] | None,
        train_loop: TrainLoop | None,
        options: FitOptions,
    ) -> None:
        """A table that does not fit in memory: its rows are stored in a folder."""
        context = replace(self._begin_fit(), options=options)
        if context.is_new:
            vars(self).pop("n_features_in_", None)
        seed = context.seed
        with forked_rng(seed, context.device), limit_threads(self.n_jobs):
            stats = self._target_stats()
            reservoir = Reservoir(self.column_types, self.ordinal_categories, seed=seed)
            count = loader.collect_stats(reservoir, stats, seed=seed)
            sample = reservoir.sample()
            if not context.is_warm:
                self.target_ = self._chunked_target(stats)
            if context.pretrained is not None:
                self.preprocessor_ = context.pretrained.preprocessor
            elif context.is_new:
                encoder = TableEncoder(reservoir.fit_columns(), reservoir.has_names)
                self._fit_preprocessor(sample, context.hparams, seed, encoder)
            is_class = isinstance(stats, ClassCounts)
            class_weights = self._class_weights(stats.target().values, stats.counts) if is_class else None
            store = RowStore(
                folder,
                expected_rows=count,
                budget=MemoryBudget.of(self.memory_limit),
                max_code=max(self.preprocessor_.cardinalities, default=1),
                seed=seed,
            )
            validation = loader.store(
                lambda X, y, weight: self._to_rows(X, y, weight, class_weights), store, rows=count, seed=seed
            )
            validation = validation if eval_set is None else self._eval_set_rows(*eval_set, class_weights)
            sample_rows = self.preprocessor_.transform(sample)
            self._train(self._build_trainer(store.rows(), validation, sample_rows, context), context, train_loop)

    def _validate_chunk(self: Any, X: Any, y: Any, weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        X = validate_features(self, X, reset=not hasattr(self, "n_features_in_"))
        return X, self._validate_y(X, y), validate_sample_weight(weight, X)
