"""Linear models: ridge and logistic regression with the L2 penalty of the lowest validation loss."""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from softlook.base.errors import DataError
from softlook.tabular.ensemble.base_model import State, class_probabilities
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import ClassTarget, Target

PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01)
"""L2 penalties, the strongest first."""
MAX_ROWS, MAX_ITERATIONS = 50_000, 100


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear model of numbers, missing cells and categories: a base model."""

    numbers: Tensor
    """(J, outputs) weights; a missing number is 0."""
    missing: Tensor
    """(J, outputs) weights of missing numbers."""
    categories: Tensor
    """(all categories, outputs) weights, column after column."""
    offsets: Tensor
    """(columns,) where the categories of a column begin."""
    bias: Tensor
    """(outputs,)"""
    classes: Tensor | None = None
    """The classes of the training rows."""
    n_classes: int = 0

    kind: ClassVar[str] = "linear"

    def predict(self, rows: TableTensors) -> Tensor:
        numbers, bias = rows.numbers.double(), self.bias
        scores = numbers.nan_to_num() @ self.numbers + numbers.isnan().double() @ self.missing + bias
        if rows.categories.shape[1]:
            scores = scores + self.categories[rows.categories + self.offsets].sum(1)
        return scores if self.classes is None else class_probabilities(scores, self.classes, self.n_classes)

    def to(self, device: torch.device) -> "LinearModel":
        return replace(self, **{name: tensor.to(device) for name, tensor in self._tensors().items()})

    def state(self) -> State:
        return {"n_classes": self.n_classes}, {name: tensor.cpu() for name, tensor in self._tensors().items()}

    @staticmethod
    def from_state(values: dict[str, Any], tensors: dict[str, Tensor]) -> "LinearModel":
        return LinearModel(**tensors, **values)

    def _tensors(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in vars(self).items() if isinstance(tensor, Tensor)}


def fit_linear(
    train: TableTensors, validation: TableTensors, target: Target, *, cardinalities: tuple[int, ...], deadline: float
) -> LinearModel:
    """The model with the best validation loss of several penalties, as many as there is time for."""
    device, cpu = train.numbers.device, torch.device("cpu")
    train, validation = train.take(slice(MAX_ROWS)).to(cpu), validation.to(cpu)
    is_class = isinstance(target, ClassTarget)
    offsets = torch.tensor([0, *cardinalities[:-1]][: len(cardinalities)]).cumsum(0).long()
    assert train.targets is not None and train.weight is not None and validation.targets is not None
    if is_class and len(train.targets.unique()) < 2:
        raise DataError("the training rows have one class only")
    best: tuple[float, LinearModel] | None = None
    for model in _fits(_features(train, offsets, sum(cardinalities)), train, is_class):
        candidate = _to_model(model, offsets, train.numbers.shape[1], target)
        loss = target.evaluate(candidate.predict(validation), validation.targets)[0].clamp(max=1e3)
        assert validation.weight is not None
        total = float((loss * validation.weight).sum())
        if best is not None and total > best[0]:
            break
        best = (total, candidate)
        if time.monotonic() > deadline:
            break
    assert best is not None
    return best[1].to(device)


def _fits(features: Any, train: TableTensors, is_class: bool) -> Iterator[Any]:
    """A fitted model for every penalty."""
    assert train.targets is not None and train.weight is not None
    weight = train.weight.double().numpy()
    model = LogisticRegression(max_iter=MAX_ITERATIONS, warm_start=True) if is_class else Ridge()
    for penalty in PENALTIES:
        model.set_params(**({"C": 1 / penalty} if is_class else {"alpha": penalty}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not converged: fewer steps regularize too
            yield model.fit(features, train.targets.numpy(), weight)


def _features(rows: TableTensors, offsets: Tensor, size: int) -> Any:
    """Sparse features: numbers, missing indicators and one-hot categories."""
    numbers = rows.numbers.double()
    dense = torch.cat([numbers.nan_to_num(), numbers.isnan().double()], 1).numpy()
    columns = (rows.categories + offsets).numpy()
    pointers = np.arange(len(rows) + 1) * columns.shape[1]
    one_hot = csr_matrix((np.ones(columns.size), columns.ravel(), pointers), shape=(len(rows), size))
    return hstack([csr_matrix(dense), one_hot], format="csr")


def _to_model(model: Any, offsets: Tensor, n_numbers: int, target: Target) -> LinearModel:
    weights = torch.from_numpy(np.atleast_2d(model.coef_).T.copy())
    numbers, missing, categories = weights.tensor_split([n_numbers, 2 * n_numbers])
    bias = torch.from_numpy(np.atleast_1d(model.intercept_).astype(np.float64))
    parts = (numbers.clone(), missing.clone(), categories.clone(), offsets, bias)
    if not isinstance(target, ClassTarget):
        return LinearModel(*parts)
    return LinearModel(*parts, torch.from_numpy(model.classes_.astype(np.int64)), len(target.values))
