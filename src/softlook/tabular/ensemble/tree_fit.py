"""Boosted trees fitted by scikit-learn's HistGradientBoosting with early stopping and a deadline."""

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits
from torch import Tensor

from softlook.base.errors import DataError
from softlook.tabular.ensemble.trees import NUMERIC, TreeNodes, TreesModel, tree_features
from softlook.tabular.preprocessing.categorical import MISSING
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import ClassTarget, MultilabelTarget, QuantileTarget, Target
from softlook.train.rng import make_generator

MAX_CATEGORIES = 254
"""Values of a column that the trees distinguish; the others count as missing."""
MAX_TREES, PATIENCE = 2000, 30
MIN_TREES, TREE_ROWS = 200, 2e8
"""Without a time limit: iterations times rows times outputs, within `MIN_TREES` and `MAX_TREES` iterations."""
MAX_VALIDATION_ROWS = 10_000
"""Rows that determine the number of trees: a random sample of more."""
FIRST_TREES, TREES_PER_FIT = 16, 60
"""Trees of the first call of `fit`, by which the time of the next ones is estimated; and iterations of later ones."""


Objective = Literal["class", "number"] | float
"""Log loss, squared error, or the pinball loss of a quantile."""


@dataclass(frozen=True)
class TreeSettings:
    """Hyperparameters of the trees."""

    learning_rate: float = 0.1
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 10
    max_features: float = 0.3
    """Fraction of the columns that a split may use."""


@dataclass(frozen=True)
class _Arrays:
    """Features, targets and weights of rows."""

    features: np.ndarray
    targets: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class _Booster:
    """A fitted model and its best number of iterations."""

    model: Any
    iterations: int

    @property
    def outputs(self) -> int:
        return len(self.model._predictors[0])

    @property
    def baseline(self) -> np.ndarray:
        """The scores without trees. A label that every row has is the model's class 0: its logit has the other sign."""
        baseline = np.ravel(self.model._baseline_prediction)
        return -baseline if list(getattr(self.model, "classes_", ())) == [1] else baseline


def fit_trees(
    train: TableTensors,
    validation: TableTensors,
    target: Target,
    *,
    settings: TreeSettings,
    seed: int,
    deadline: float,
) -> TreesModel:
    """Add trees as long as the validation loss improves and there is time; the best number of them is kept."""
    device, cpu = train.numbers.device, torch.device("cpu")
    order = torch.randperm(len(validation), generator=make_generator(seed))[:MAX_VALIDATION_ROWS]
    train, validation = train.to(cpu), validation.to(cpu).take(order.sort().values)
    ranks, offsets = category_ranks(train.categories, validation.categories)
    arrays = [_to_arrays(rows, tree_features(rows, ranks, offsets)) for rows in (train, validation)]
    columns = _used_columns(arrays[0].features)
    n_categories = int((columns < train.categories.shape[1]).sum())
    parts = [_Arrays(part.features[:, columns], part.targets, part.weight) for part in arrays]
    if isinstance(target, ClassTarget):
        booster = _Fit(settings, n_categories, seed, deadline, "class")(*parts)
        classes = torch.from_numpy(booster.model.classes_.astype(np.int64))
        return _to_model([booster], columns, ranks, offsets, classes, len(target.values)).to(device)
    boosters = list[_Booster]()
    for index, (column, objective) in enumerate(_objectives(target)):
        end = _fraction_of_time(deadline, 1 / (target.outputs - index))
        fit = _Fit(settings, n_categories, seed, end, objective)
        boosters.append(fit(*(_column(part, column) for part in parts)))
    model = _to_model(boosters, columns, ranks, offsets)
    return replace(model, is_multilabel=isinstance(target, MultilabelTarget)).to(device)


def _objectives(target: Target) -> list[tuple[int, "Objective"]]:
    """The target column and the loss of each output that has trees of its own."""
    if isinstance(target, QuantileTarget):
        return [(column, quantile) for column in range(len(target.mean)) for quantile in target.quantiles]
    return [(column, "class" if isinstance(target, MultilabelTarget) else "number") for column in range(target.outputs)]


def _fraction_of_time(deadline: float, fraction: float) -> float:
    """The end of a fraction of the time that is left."""
    now = time.monotonic()
    return now + (deadline - now) * fraction


def category_ranks(train: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """The rank of every category among those of the training rows, column after column, and where a column begins.

    NaN for missing cells, for categories without training rows, and for the rarest ones beyond `MAX_CATEGORIES`.

    >>> category_ranks(torch.tensor([[3], [1], [3]]))
    (tensor([nan, 0., nan, 1.], dtype=torch.float64), tensor([0]))
    """
    sizes = [max(int(part[:, j].max()) for part in (train, *others) if len(part)) + 1 for j in range(train.shape[1])]
    ranks = [_column_ranks(train[:, j], size) for j, size in enumerate(sizes)]
    offsets = torch.tensor([0, *sizes[:-1]][: len(sizes)]).cumsum(0)
    return torch.cat(ranks) if ranks else torch.zeros(1, dtype=torch.double), offsets.long()


def _column_ranks(codes: Tensor, size: int) -> Tensor:
    counts = torch.bincount(codes, minlength=size)
    counts[MISSING] = 0
    most_frequent = counts.argsort(descending=True, stable=True)[:MAX_CATEGORIES]
    kept = most_frequent[counts[most_frequent] > 0].sort().values
    ranks = torch.full((size,), torch.nan, dtype=torch.double)
    ranks[kept] = torch.arange(len(kept), dtype=torch.double)
    return ranks


def _to_arrays(rows: TableTensors, features: Tensor) -> _Arrays:
    assert rows.targets is not None and rows.weight is not None
    return _Arrays(features.numpy(), rows.targets.numpy(), rows.weight.double().numpy())


def _column(arrays: _Arrays, index: int) -> _Arrays:
    return _Arrays(arrays.features, arrays.targets[:, index], arrays.weight)


def _used_columns(features: np.ndarray) -> np.ndarray:
    """Columns with at least two values; scikit-learn rejects columns without one."""
    lowest, highest = np.nanmin(features, 0, initial=np.inf), np.nanmax(features, 0, initial=-np.inf)
    columns = np.flatnonzero(lowest < highest)
    if not len(columns):
        raise DataError("every column is constant: there is nothing to split")
    return columns


@dataclass(frozen=True)
class _Fit:
    """Fits trees to rows, given those for early stopping."""

    settings: TreeSettings
    n_categories: int
    """The first columns are categories."""
    seed: int
    deadline: float
    objective: Objective

    def __call__(self, train: _Arrays, validation: _Arrays) -> _Booster:
        is_class, loss = self.objective == "class", {}
        kind: Any = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
        if isinstance(self.objective, float):
            loss = {"loss": "quantile", "quantile": self.objective}
        model = kind(
            **loss,
            early_stopping=False,
            warm_start=True,
            categorical_features=np.arange(train.features.shape[1]) < self.n_categories,
            random_state=self.seed % 2**31,
            **vars(self.settings),
        )
        # scikit-learn takes seconds for quantiles of weighted rows
        weight = train.weight if np.ptp(train.weight) else None
        losses, scores = list[float](), None
        iterations = max(1, FIRST_TREES // len(np.unique(train.targets))) if is_class else FIRST_TREES
        while True:
            started, before = time.monotonic(), len(losses)
            with threadpool_limits(torch.get_num_threads()):
                model.set_params(max_iter=iterations).fit(train.features, train.targets, weight)
            scores, new = _validation_losses(model, validation, before, scores, self.objective)
            losses += new
            best = int(np.argmin(losses))
            left = (self.deadline - time.monotonic()) / (time.monotonic() - started) * len(new)
            if (
                len(losses) - best > PATIENCE
                or left < 1
                or len(losses) >= _max_trees(len(train.weight), scores.shape[1])
            ):
                return _Booster(model, best + 1)
            iterations = len(losses) + int(min(TREES_PER_FIT, max(1, left / 2)))


def _max_trees(rows: int, outputs: int) -> int:
    return int(min(MAX_TREES, max(MIN_TREES, TREE_ROWS / (rows * outputs))))


def _validation_losses(
    model: Any, validation: _Arrays, first: int, scores: Tensor | None, objective: Objective
) -> tuple[Tensor, list[float]]:
    """(N, outputs) the scores of all trees, and the loss after each iteration from `first` on."""
    trees = [tree for iteration in model._predictors[first:] for tree in iteration]
    nodes, depth = to_nodes(trees, np.arange(validation.features.shape[1]))
    leaves = nodes.leaves(torch.from_numpy(validation.features), depth)
    if scores is None:
        scores = torch.from_numpy(np.ravel(model._baseline_prediction)).expand(len(leaves), -1)
    staged = leaves.unflatten(1, (-1, scores.shape[1])).cumsum(1) + scores[:, None]  # (N, iterations, outputs)
    weight = torch.from_numpy(validation.weight / validation.weight.sum())
    if objective == "class":
        losses = _class_losses(staged, model.classes_, validation.targets)
    else:
        error = torch.from_numpy(validation.targets).double()[:, None] - staged[..., 0]
        is_mean = objective == "number"
        losses = error.square() if is_mean else torch.maximum(objective * error, (objective - 1) * error)
    return staged[:, -1], (weight @ losses).tolist()


def _class_losses(staged: Tensor, classes: np.ndarray, targets: np.ndarray) -> Tensor:
    """(N, iterations): log loss; the rows of a class without training rows do not count."""
    if staged.shape[2] == 1:
        staged = torch.cat([-staged / 2, staged / 2], 2)
    index = np.searchsorted(classes, targets).clip(max=len(classes) - 1)
    known = torch.from_numpy(classes[index] == targets)
    chosen = torch.from_numpy(index)[:, None, None].expand(-1, staged.shape[1], 1)
    return -staged.log_softmax(2).gather(2, chosen)[..., 0] * known[:, None]


def to_nodes(trees: list[Any], columns: np.ndarray) -> tuple[TreeNodes, int]:
    """The nodes of scikit-learn's trees, and their depth. `columns`: the column of each feature of the fit."""
    sizes = np.array([len(tree.nodes) for tree in trees])
    starts = np.cumsum(sizes) - sizes
    bitset_sizes = np.array([len(tree.raw_left_cat_bitsets) for tree in trees])
    nodes = np.concatenate([tree.nodes for tree in trees])
    own, is_leaf = np.repeat(starts, sizes), nodes["is_leaf"] == 1
    itself = np.arange(len(nodes))
    first_bitset = np.repeat(np.cumsum(bitset_sizes) - bitset_sizes, sizes)
    is_category = (nodes["is_categorical"] == 1) & ~is_leaf
    arrays: dict[str, np.ndarray] = {
        "roots": starts,
        "columns": columns[np.where(is_leaf, 0, nodes["feature_idx"])],
        "thresholds": nodes["num_threshold"],
        "left": np.where(is_leaf, itself, nodes["left"] + own),
        "right": np.where(is_leaf, itself, nodes["right"] + own),
        "missing_left": nodes["missing_go_to_left"] == 1,
        "values": nodes["value"],
        "bitset_indices": np.where(is_category, nodes["bitset_idx"] + first_bitset, NUMERIC),
        "bitsets": np.concatenate([tree.raw_left_cat_bitsets for tree in trees]).reshape(-1, 8).astype(np.int64),
    }
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    integers = {name: tensor.long() for name, tensor in tensors.items() if tensor.dtype in (torch.int64, torch.int32)}
    return TreeNodes(**tensors | integers), int(nodes["depth"].max())


def _to_model(
    boosters: list[_Booster],
    columns: np.ndarray,
    ranks: Tensor,
    offsets: Tensor,
    classes: Tensor | None = None,
    n_classes: int = 0,
) -> TreesModel:
    """The trees of all outputs, sorted by output."""
    by_output = [
        [iteration[output] for iteration in booster.model._predictors[: booster.iterations]]
        for booster in boosters
        for output in range(booster.outputs)
    ]
    nodes, depth = to_nodes([tree for trees in by_output for tree in trees], columns)
    baseline = np.concatenate([booster.baseline for booster in boosters])
    counts = tuple(map(len, by_output))
    return TreesModel(nodes, counts, depth, torch.from_numpy(baseline), ranks, offsets, classes, n_classes)
