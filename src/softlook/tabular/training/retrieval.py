"""Retrieval: kernel regression over training rows.

Each stored row is a key, the state from which the model predicts, and a value, its target. A new row's state is the
query: values are averaged with a softmax over negative squared distances (Nadaraya 1964, Watson 1964), and the result
is mixed with the model's prediction. Validation rows determine the bandwidth and the mixing weight.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from softlook.tabular.preprocessing.rows import RowSource, TableTensors, sample_rows
from softlook.tabular.preprocessing.target import Target
from softlook.tabular.training.runtime import best_time
from softlook.train.rng import make_generator

NUM_NEIGHBORS = 128
"""Rows that are averaged: farther ones would have no weight."""
MIN_VALIDATION_ROWS, MAX_VALIDATION_ROWS = 2_000, 20_000
"""With fewer validation rows there is no retrieval: they could not determine the mixing weight. More are not needed."""
BANDWIDTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Candidates, relative to the typical squared distance of neighbors."""
MIX_WEIGHTS = tuple(number / 10 for number in range(11))
"""Candidate weights of the retrieval in the prediction."""
MIN_IMPROVEMENT = 0.01
"""Fraction of the validation loss that retrieval must save: stored rows cost memory and time."""
DISTANCE_ROWS = 512
"""Rows whose distances are in memory at a time."""


@dataclass(frozen=True, eq=False)
class RowRetrieval:
    """Stored rows with their targets. Keys are in half precision, in memory and on disk."""

    keys: Tensor
    """(M, C) states."""
    values: Tensor
    """(M, K) targets as predictions."""
    weight: Tensor
    """(M,) sample weights."""
    bandwidth: float
    """Squared distance at which a row's weight falls to 1/e."""
    mix: float
    """Weight of the retrieval in the prediction; the rest is the model's."""

    def combine(self, predictions: Tensor, states: Tensor) -> Tensor:
        """(N, K): the model's predictions mixed with those of the neighbors."""
        retrieved = self.nearest(states).mean(self.bandwidth)
        return predictions + self.mix * (retrieved.to(predictions) - predictions)

    def nearest(self, states: Tensor) -> "Neighbors":
        """The nearest stored rows of each state."""
        keys = self.keys.to(states)
        center = keys.mean(0)  # centered, numbers are small and their differences exact
        keys, squared_norms = keys - center, (keys - center).square().sum(1)
        parts = [_nearest(part - center, keys, squared_norms) for part in states.split(DISTANCE_ROWS)]
        distance, index = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        weight, values = self.weight.to(states)[index], self.values.to(states.device)[index]
        return Neighbors(distance, weight, values.double())

    def to(self, device: torch.device) -> "RowRetrieval":
        return replace(self, keys=self.keys.to(device), values=self.values.to(device), weight=self.weight.to(device))

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """JSON values and tensors, the arguments of `RowRetrieval(**values, **tensors)`."""
        tensors = {"keys": self.keys.cpu(), "values": self.values.cpu(), "weight": self.weight.cpu()}
        return {"bandwidth": self.bandwidth, "mix": self.mix}, tensors


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest stored rows of N rows: squared distances (N, M), sample weights (N, M) and values (N, M, K)."""

    distance: Tensor
    weight: Tensor
    values: Tensor

    def mean(self, bandwidth: float) -> Tensor:
        """(N, K): the kernel-weighted mean of the values."""
        attention = (self.weight.double().log() - self.distance.double() / bandwidth).softmax(1)
        return (attention[:, None] @ self.values)[:, 0]


@torch.no_grad()
def fit_retrieval(
    model: nn.Module, train: RowSource, validation: TableTensors, *, target: Target, max_rows: int, seed: int
) -> RowRetrieval | None:
    """Store at most `max_rows` training rows, if that improves the validation loss enough."""
    if len(validation) < MIN_VALIDATION_ROWS:
        return None
    rows, validation = (
        sample_rows(train, max_rows, make_generator(seed, 0)),
        validation.take(slice(MAX_VALIDATION_ROWS)),
    )
    assert rows.targets is not None and rows.weight is not None
    keys = mean_states(model, rows).half()
    retrieval = RowRetrieval(keys, target.as_prediction(rows.targets), rows.weight, bandwidth=1.0, mix=0.0)
    return _tune(model, retrieval, validation, target)


@torch.no_grad()
def retrieval_seconds(model: nn.Module, n_train: int, validation: TableTensors, target: Target, max_rows: int) -> float:
    """How long `fit_retrieval` would take, measured on a few validation rows with as many keys."""
    if len(validation) < MIN_VALIDATION_ROWS or not max_rows:
        return 0.0
    sample, n_keys = validation.take(slice(DISTANCE_ROWS)), min(n_train, max_rows)
    assert sample.targets is not None and sample.weight is not None
    repeated = torch.arange(n_keys, device=sample.numbers.device) % len(sample)
    values = target.as_prediction(sample.targets)[repeated]
    keys = mean_states(model, sample).half()[repeated]
    retrieval = RowRetrieval(keys, values, sample.weight[repeated], bandwidth=1.0, mix=0.0)
    states = best_time(lambda: mean_states(model, sample).sum().item())
    tuning = best_time(lambda: _tune(model, retrieval, sample, target), repeats=1)  # long enough to need no warmup
    return (states * n_keys + tuning * min(len(validation), MAX_VALIDATION_ROWS)) / len(sample)


def _tune(model: Any, retrieval: RowRetrieval, validation: TableTensors, target: Target) -> RowRetrieval | None:
    """The retrieval with the best bandwidth and mixing weight; None if it does not improve the loss enough."""
    states = mean_states(model, validation)
    predictions = torch.cat([target.predict(model.classify(part)) for part in _member_states(model, validation)])
    assert validation.targets is not None and validation.weight is not None
    targets, weight = validation.targets, validation.weight.double() / validation.weight.double().sum()

    def loss(candidate: Tensor) -> float:
        return (target.evaluate(candidate, targets)[0] * weight).sum().item()

    neighbors = retrieval.nearest(states)
    typical = neighbors.distance[:, : min(10, neighbors.distance.shape[1])].sqrt().mean().square().item()
    best = (loss(predictions) * (1 - MIN_IMPROVEMENT), 1.0, 0.0)
    for bandwidth in BANDWIDTHS:
        difference = neighbors.mean(max(bandwidth * typical, 1e-12)) - predictions
        candidates = ((loss(predictions + mix * difference), bandwidth * typical, mix) for mix in MIX_WEIGHTS[1:])
        best = min(best, *candidates)
    if not best[2]:
        return None
    return replace(retrieval, bandwidth=max(best[1], 1e-12), mix=best[2])


@torch.no_grad()
def mean_states(model: nn.Module, rows: TableTensors) -> Tensor:
    """(N, C): the mean over members of the states from which they predict."""
    return torch.cat([part.mean(1) for part in _member_states(model, rows)])


@torch.no_grad()
def _member_states(model: Any, rows: TableTensors) -> list[Tensor]:
    model.eval()
    batches = rows.split(rows.inference_batch_size(model))
    return [model.states(batch.numbers, batch.categories) for batch in batches]


def _nearest(states: Tensor, keys: Tensor, squared_norms: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances and indices of the nearest keys."""
    distance = torch.addmm(squared_norms, states, keys.T, alpha=-2) + states.square().sum(1, keepdim=True)
    nearest = distance.clamp(min=0).topk(min(NUM_NEIGHBORS, len(keys)), largest=False)
    return nearest.values, nearest.indices
