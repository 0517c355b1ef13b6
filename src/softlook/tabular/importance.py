"""Feature importance: by attention, and by permutation."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr
from torch import Tensor, nn

from softlook.base.errors import ConfigError, escape_control
from softlook.lens.trace import trace
from softlook.models.tab_transformer import TabTransformer
from softlook.tabular.prediction import BaseTableEstimator
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.training.autosize import macs_per_row
from softlook.tabular.training.metrics import compute_loss
from softlook.train.rng import make_generator

CPU_MACS, GPU_MACS = 5e10, 1e13
"""Cost of `estimate_importances` on a CPU, some seconds, and on other devices."""
MIN_ROWS, MAX_ROWS = 256, 2_000
"""Rows that it uses: fewer would be too noisy, more hardly more precise."""
MAP_ROWS, MAP_VALUES = 512, 1 << 27
"""Rows whose attention maps are in memory at a time, and the values of all maps of a block: half a gigabyte."""


@dataclass(frozen=True, eq=False)
class FeatureImportances:
    """Attention and permutation importance of every column."""

    names: tuple[str, ...]
    attention: np.ndarray
    """(columns,) fraction of the attention on a column; NaN for columns that no block attends to."""
    permutation: np.ndarray
    """(columns,) mean increase of the loss when the column is permuted; NaN for columns that were not tried."""
    permutation_std: np.ndarray
    """(columns,) its standard deviation over repeats."""
    rows: int
    """How many rows were used."""

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation between both; NaN if one of them is constant."""
        return rank_correlation(self.attention, self.permutation)

    def ranking(self) -> np.ndarray:
        """Column indices, the most important first; those that were not permuted last, by attention."""
        return np.lexsort((-np.nan_to_num(self.attention), -np.nan_to_num(self.permutation, nan=-np.inf)))

    @property
    def disagreement(self) -> np.ndarray:
        """(columns,) whether attention and permutation rank a column differently, by more than half of the ranks.

        A permutation importance within its standard deviation counts as 0. False for columns without either.
        """
        known = ~(np.isnan(self.attention) | np.isnan(self.permutation))
        effect = np.where(np.abs(self.permutation) <= self.permutation_std, 0, self.permutation)
        distance = np.abs(rankdata(self.attention[known]) - rankdata(effect[known]))
        flags = np.zeros(len(self.names), dtype=bool)
        flags[known] = distance > known.sum() / 2
        return flags

    def __str__(self) -> str:
        """A line per column, the most important first; `!` where attention and permutation disagree."""
        flags, width = self.disagreement, max(map(len, (*self.names, "column")))
        lines = [f"{'column':{width}}  attention  permutation"]
        for index in self.ranking():
            values = f"{self.attention[index]:9.4f}  {self.permutation[index]:11.4f}"
            lines.append(f"{escape_control(self.names[index]):{width}}  {values}{'  !' if flags[index] else ''}")
        return "\n".join([*lines, f"rank correlation {self.correlation:.2f}; ! where the ranks disagree"])


class ExplainableEstimator(BaseTableEstimator):
    """Feature importance of a fitted estimator."""

    feature_importances_: np.ndarray

    def attention_importance(self, X: Any) -> np.ndarray:
        """(columns,): attention of [CLS] to each column, the mean over heads, blocks and rows.

        The importance of the FT-Transformer paper (section 5.3), of which only the ranks are meaningful: compare
        `importances`. The sum is 1 minus the attention of [CLS] to itself. A TabTransformer has no [CLS]: there it is
        the attention of all categories, and NaN for numbers, which no block attends to.
        """
        return self.explain_rows(X).mean(0)

    def explain_rows(self, X: Any) -> np.ndarray:
        """(N, columns): the same for each row."""
        return self._explain(self._to_device_rows(X))

    def _explain(self, rows: TableTensors) -> np.ndarray:
        _check_has_attention(self.model_)
        return _to_columns(attention_to_tokens(self.model_, rows).cpu().numpy(), self)

    def _mean_attention(self, rows: TableTensors) -> np.ndarray:
        """The mean over rows; NaN for every column if the model has no blocks."""
        if not _depth(self.model_):
            return np.full(len(self.preprocessor_.encoder.names), np.nan)
        return self._explain(rows).mean(0)

    def _store_importances(self, rows: TableTensors) -> None:
        attention = np.nan_to_num(self._mean_attention(rows))
        self.feature_importances_ = attention / attention.sum() if attention.sum() else attention

    def attention_maps(self, X: Any) -> np.ndarray:
        """(columns, columns): attention between columns, the mean over rows, heads and blocks.

        Only [CLS] attends in the last block of an FT-Transformer, so that block is left out.
        """
        rows = self._to_device_rows(X)
        _check_has_attention(self.model_)
        if not isinstance(self.model_, TabTransformer) and _depth(self.model_) == 1:
            raise ConfigError("only [CLS] attends in the last block, and this model has no other. Use depth=2 or more.")
        by_key = _to_columns(mean_attention_map(self.model_, rows).cpu().numpy(), self)
        return _to_columns(by_key.T, self, mean=True).T

    def importances(self, X: Any, y: Any, *, repeats: int = 5, random_state: int = 0) -> FeatureImportances:
        """Attention and permutation importance, and their rank correlation.

        Permutation importance is the decrease of `score` when a column is permuted, the mean over `repeats`. One-hot
        columns that form a group (`preprocessor_.one_hot`) share its importance evenly. y is a column name if X is
        chunked.
        """
        if repeats < 1:
            raise ConfigError(f"repeats: expected an integer >= 1; got {repeats!r}")
        X, y = self._load(X, y)
        rows, y, names = self._to_device_rows(X), self._validate_y(X, y), self.preprocessor_.encoder.names
        generator = torch.Generator().manual_seed(random_state)

        def loss(permuted: TableTensors) -> float:
            return -self._score_predictions(self._predict_rows(permuted), y)

        increase = permutation_losses(
            rows, self.preprocessor_, range(len(names)), loss=loss, generator=generator, repeats=repeats
        )
        attention = self._mean_attention(rows)
        return FeatureImportances(names, attention, increase.mean(1), increase.std(1), len(rows))


def estimate_importances(estimator: ExplainableEstimator, rows: TableTensors, *, seed: int) -> FeatureImportances:
    """Importances within a few seconds, by the log loss or RMSE of a sample of rows with targets.

    Every column is permuted once; of very many columns, only those with the most attention.
    """
    device = next(estimator.model_.parameters()).device
    hparams, tokens = estimator.hyperparameters_, 1 + len(estimator.preprocessor_.token_columns)
    names, cost = estimator.preprocessor_.encoder.names, hparams.n_members * macs_per_row(hparams, tokens)
    budget = CPU_MACS if device.type == "cpu" else GPU_MACS
    count = min(len(rows), int(np.clip(budget / cost / len(names), MIN_ROWS, MAX_ROWS)))
    generator = make_generator(seed)
    sample = rows.take(torch.randperm(len(rows), generator=generator)[:count].to(rows.numbers.device)).to(device)

    def loss(permuted: TableTensors) -> float:
        assert permuted.targets is not None
        predictions = estimator._predict_rows_with(estimator.model_, permuted)
        return compute_loss(estimator.target_, predictions, permuted.targets.cpu().numpy())

    attention = estimator._mean_attention(sample)
    by_attention = np.argsort(-np.nan_to_num(attention, nan=np.inf), kind="stable")
    columns = by_attention[: max(1, int(budget / cost / count))].tolist()
    increase = permutation_losses(sample, estimator.preprocessor_, columns, loss=loss, generator=generator)
    return FeatureImportances(names, attention, increase.mean(1), increase.std(1), count)


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation where both are known; NaN if there is nothing to rank.

    >>> rank_correlation(np.array([0.1, 0.5, np.nan, 0.3]), np.array([1.0, 9.0, 2.0, 3.0]))
    1.0
    """
    known = ~(np.isnan(one) | np.isnan(other))
    if not known.any() or np.ptp(one[known]) == 0 or np.ptp(other[known]) == 0:
        return float("nan")
    return float(spearmanr(one[known], other[known]).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def permutation_losses(
    rows: TableTensors,
    preprocessor: TablePreprocessor,
    columns: Iterable[int],
    *,
    loss: Callable[[TableTensors], float],
    generator: torch.Generator,
    repeats: int = 1,
) -> np.ndarray:
    """(all columns, repeats): increase of the loss when a column is permuted; NaN for other columns.

    All features of a column are permuted together. One-hot columns of a group share its increase evenly.
    """
    token_columns, baseline, device = preprocessor.token_columns, loss(rows), rows.numbers.device
    increase = np.full((token_columns.shape[1], repeats), np.nan)
    for column in columns:
        mask = torch.from_numpy(token_columns[:, column] > 0).to(device)
        for repeat in range(repeats):
            others = rows.take(torch.randperm(len(rows), generator=generator).to(device))
            increase[column, repeat] = loss(rows.replace_cells(mask, others)) - baseline
    return increase * token_columns.max(0)[:, None]


# --- attention maps --------------------------------------------------------------------------------------------------


def iter_attention_maps(model: nn.Module, rows: TableTensors, *, cls_only: bool = False) -> Iterator[list[Tensor]]:
    """The attention maps of every block, (n, H, T, S), for a batch of rows at a time.

    With `cls_only`, only the row of [CLS]: the first one, and the only one in the last block.
    """
    queries = slice(1) if cls_only else slice(None)
    model.eval()
    for batch in rows.split(_map_batch_size(model, rows, cls_only=cls_only)):
        with torch.inference_mode(), trace(model) as recorded:
            model(batch.numbers, batch.categories)
        maps = [layer.weights(rows=queries) for layer in recorded.values()]
        maps = [one.double() if one.device.type != "mps" else one for one in maps]
        yield [one.unflatten(0, (len(batch), -1)).mean(1) for one in maps]  # the mean over ensemble members


def attention_to_tokens(model: nn.Module, rows: TableTensors) -> Tensor:
    """(N, tokens): attention to each token, the mean over heads and blocks.

    That of [CLS] as in the FT-Transformer paper (section 5.3), without its attention to itself. A TabTransformer has
    none: there it is the mean attention of all categories.
    """
    has_cls = not isinstance(model, TabTransformer)
    parts = [
        torch.stack([one.mean((1, 2)) for one in maps]).mean(0)
        for maps in iter_attention_maps(model, rows, cls_only=has_cls)
    ]
    return torch.cat(parts)[:, 1:] if has_cls else torch.cat(parts)


def mean_attention_map(model: nn.Module, rows: TableTensors) -> Tensor:
    """(tokens, tokens): attention between tokens, the mean over rows, heads and all blocks in which tokens attend."""
    total, count = torch.zeros(()), 0
    for maps in iter_attention_maps(model, rows):
        between = maps if isinstance(model, TabTransformer) else [one[:, :, 1:, 1:] for one in maps[:-1]]
        for one in between:
            total, count = total.to(one.device) + one.mean(1).sum(0), count + len(one)
    return total / count


def _map_batch_size(model: Any, rows: TableTensors, *, cls_only: bool) -> int:
    """Fewer rows if there are many columns: a map grows with their square."""
    tokens = 1 + rows.numbers.shape[1] + rows.categories.shape[1]
    values = 8 * model.config.dim if cls_only else model.config.heads * tokens
    return max(1, min(MAP_ROWS, MAP_VALUES // (getattr(model.config, "ensemble_size", 1) * tokens * values)))


def _to_columns(tokens: np.ndarray, estimator: ExplainableEstimator, *, mean: bool = False) -> np.ndarray:
    """(…, tokens) to (…, columns): the sum, or the mean, over the tokens of a column."""
    preprocessor = estimator.preprocessor_
    first = preprocessor.n_numbers if isinstance(estimator.model_, TabTransformer) else 0
    token_columns = preprocessor.token_columns[first:]
    total = token_columns.sum(0)
    columns = tokens @ (token_columns / np.where(total > 0, total, 1) if mean else token_columns)
    columns[..., total == 0] = np.nan
    return columns


def _depth(model: nn.Module) -> int:
    return len(model.blocks)  # pyright: ignore[reportArgumentType]


def _check_has_attention(model: nn.Module) -> None:
    if not _depth(model):
        raise ConfigError("a TabTransformer attends to categories, and this table has none. Use importances(X, y).")
