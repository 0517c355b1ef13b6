"""Fit of an ensemble: selection and order of the models, and their weights."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.tabular.ensemble.attention import AttentionModel
from softlook.tabular.ensemble.base_model import BaseModel
from softlook.tabular.ensemble.calibration import apply_temperature, fit_temperature
from softlook.tabular.ensemble.cross_fit import CrossFit, CrossFitter, FoldData, Recipe
from softlook.tabular.ensemble.ensemble import CrossFittedModel, TableEnsemble
from softlook.tabular.ensemble.linear import fit_linear
from softlook.tabular.ensemble.tree_fit import TreeSettings, fit_trees
from softlook.tabular.ensemble.weights import mean_loss, select_weights
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import ClassTarget, Target
from softlook.tabular.training.splits import Split
from softlook.train.rng import make_generator

FitAttention = Callable[[FoldData, dict[str, Any]], AttentionModel]
"""Fits an attention model with these hyperparameters changed."""
TREES = {"trees": TreeSettings(), "slow trees": TreeSettings(learning_rate=0.05, max_leaf_nodes=12, min_samples_leaf=5)}
ATTENTION: dict[str, dict[str, Any]] = {
    "attention": {},
    "attention, more dropout": {"attention_dropout": 0.3, "hidden_dropout": 0.3, "dropout": 0.1},
}
"""Attention models by name, and the hyperparameters in which they differ from the preset."""
LINEAR_PROBLEMS = ("classification", "regression")
"""Targets that linear models are fitted to: not several labels per row, and not quantiles."""
MAX_LOSS_RATIO = 1.5
"""A model whose loss in the first fold is more than this many times that of the best one is abandoned: its weight would
be 0 or close to it."""
MAX_ROUNDS = 8
"""Maximum number of times that all models are cross-fitted under a time limit, each time with other folds and seeds."""
FEW_ROWS = 5_000
"""With fewer rows, the validation rows of one fold are too few to determine weights: all folds of attention models are
trained, in equal shares of the time."""
RESERVED = 0.03
"""Fraction of the time limit for what follows the last fit."""
MAX_SELECTION_ROWS = 20_000
"""Maximum number of rows that determine the weights and the temperature: more would not be more precise."""


@dataclass(frozen=True)
class EnsembleData:
    """What an ensemble is fitted to."""

    rows: TableTensors
    splits: Callable[[int], list[Split]]
    """Training and validation rows of the folds of a round."""
    target: Target
    cardinalities: tuple[int, ...]
    seed: int
    started: float
    seconds: float | None
    """Time limit."""

    @property
    def targets(self) -> Tensor:
        """On the CPU, as `weight` is."""
        assert self.rows.targets is not None
        return self.rows.targets.cpu()

    @property
    def weight(self) -> Tensor:
        assert self.rows.weight is not None
        return self.rows.weight.cpu().double()

    @property
    def deadline(self) -> float:
        return math.inf if self.seconds is None else self.started + self.seconds * (1 - RESERVED)


def fit_ensemble(data: EnsembleData, fit_attention: FitAttention, *, attention_only: bool) -> TableEnsemble:
    """Cross-fit models until all are fitted or the time is up; their out-of-fold predictions determine the weights."""
    fitter, fits, abandoned = CrossFitter(data.rows, data.deadline, data.seed), list[CrossFit](), list[CrossFit]()
    plan = _plan(data, fit_attention, attention_only)
    for number in range(MAX_ROUNDS if data.seconds is not None else 1):
        splits = data.splits(number)
        fitter.seed = data.seed + 100 * number
        for recipe in plan(number):
            if recipe.kind in {fit.kind for fit in abandoned} or not _has_time(fits, recipe, fitter):
                continue
            fit = fitter.fit(recipe, splits, partial(_is_promising, fits, data))
            if fit is not None and fit.is_abandoned:
                abandoned.append(fit)
            elif fit is not None and _covers(fit, fits):
                fits.append(fit)
    if not fits:
        raise DataError("no model could be fitted to these rows. Use ensemble='single'.")
    return combine(fits, abandoned, data)


def _plan(data: EnsembleData, fit_attention: FitAttention, attention_only: bool) -> Callable[[int], Iterator[Recipe]]:
    """The recipes of a round, cheap ones first. Attention models get most of the time."""
    shares_time = len(data.rows) < FEW_ROWS

    def attention(fold: FoldData, name: str) -> BaseModel:
        return fit_attention(fold, ATTENTION[name])

    def linear(fold: FoldData) -> BaseModel:
        own = {"cardinalities": data.cardinalities, "deadline": fold.deadline}
        return fit_linear(fold.train, fold.validation, data.target, **own)

    def trees(fold: FoldData, name: str) -> BaseModel:
        own = {"settings": TREES[name], "seed": fold.seed, "deadline": fold.deadline}
        return fit_trees(fold.train, fold.validation, data.target, **own)

    def recipes(number: int) -> Iterator[Recipe]:
        suffix, first = f" {number + 1}" if number else "", next(iter(ATTENTION))
        if not attention_only:
            if not number and data.target.problem in LINEAR_PROBLEMS:
                yield Recipe("linear", "linear", linear, share=0.1)
            for name in TREES:
                yield Recipe(f"{name}{suffix}", "trees", partial(trees, name=name), share=0.2)
        for name in ATTENTION if data.seconds is not None else [first]:
            yield Recipe(f"{name}{suffix}", "attention", partial(attention, name=name), 0.9, shares_time)

    return recipes


def _has_time(fits: list[CrossFit], recipe: Recipe, fitter: CrossFitter) -> bool:
    """Whether there is as much time as another model of the kind took. The first attention model is always trained."""
    known = [fit.seconds for fit in fits if fit.kind == recipe.kind]
    if not known and recipe.kind == AttentionModel.kind:
        return True
    return fitter.seconds_left() > (1.1 * max(known) if known else 0)


def _covers(fit: CrossFit, fits: list[CrossFit]) -> bool:
    """Whether a fit predicted every row that all others did; the first attention models may have fewer folds."""
    is_first = fit.kind not in {other.kind for other in fits}
    return is_first or bool(fit.covered[_common(fits)].all())


def _is_promising(fits: list[CrossFit], data: EnsembleData, predictions: Tensor, index: np.ndarray) -> bool:
    """Whether the loss of a fold is not far above that of the best other model on the same rows."""
    validation = torch.from_numpy(index)
    targets, weight = data.targets[validation], data.weight[validation]
    others = [fit.predictions[validation] for fit in fits if fit.covered[validation].all()]
    losses = [mean_loss(one, targets, weight, data.target) for one in (predictions, *others)]
    return losses[0] <= MAX_LOSS_RATIO * min(losses)


def _common(fits: list[CrossFit]) -> Tensor:
    return torch.stack([fit.covered for fit in fits]).all(0)


def combine(fits: list[CrossFit], abandoned: list[CrossFit], data: EnsembleData) -> TableEnsemble:
    """Weights and temperature by the rows that all models predicted, except those that were abandoned."""
    target = data.target
    index = _common(fits).nonzero()[:, 0]
    order = torch.randperm(len(index), generator=make_generator(data.seed, 0))[:MAX_SELECTION_ROWS]
    index = index[order]
    targets, weight = data.targets[index], data.weight[index]
    weight = weight / weight.sum()
    predictions = torch.stack([fit.predictions[index] for fit in fits])
    weights = select_weights(predictions, targets, weight, target)
    mixed = torch.einsum("m,mnc->nc", torch.tensor(weights, dtype=torch.double), predictions)
    temperature = fit_temperature(mixed, targets, weight) if isinstance(target, ClassTarget) else 1.0
    losses = [mean_loss(one, targets, weight, target) for one in predictions]
    leaderboard = [_entry(*one) for one in zip(fits, weights, losses, strict=True)]
    leaderboard += [_entry(fit, 0.0, _own_loss(fit, data)) for fit in abandoned]
    calibrated = apply_temperature(mixed, temperature)
    loss = mean_loss(calibrated, targets, weight, target)
    whole = {"name": "ensemble", "kind": "ensemble", "weight": 1.0, "loss": loss, "folds": len(fits[0].folds)}
    leaderboard.append(whole | {"seconds": time.monotonic() - data.started})
    models = [CrossFittedModel(fit.name, fit.folds, w) for fit, w in zip(fits, weights, strict=True) if w]
    leaderboard.sort(key=lambda one: one["loss"])
    return TableEnsemble(tuple(models), temperature, leaderboard, calibrated, targets, index)


def _own_loss(fit: CrossFit, data: EnsembleData) -> float:
    """The loss on the rows that a model predicted."""
    index = fit.covered.nonzero()[:, 0]
    weight = data.weight[index]
    return mean_loss(fit.predictions[index], data.targets[index], weight / weight.sum(), data.target)


def _entry(fit: CrossFit, weight: float, loss: float) -> dict[str, Any]:
    own = {"name": fit.name, "kind": fit.kind, "weight": weight, "loss": loss}
    return own | {"folds": len(fit.folds), "seconds": fit.seconds}
