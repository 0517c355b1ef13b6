"""Targets: classes or regression values as tensors and back."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import DataError

Problem = Literal["classification", "regression"]
State = dict[str, Any]
LABEL_KINDS, TIME_KINDS = "biufUO", "mM"
"""numpy's dtype letters of labels: booleans, integers, floats, strings; and times."""


class ClassTarget:
    """Class labels as indices into the sorted distinct labels.

    >>> target = ClassTarget(np.array(["no", "yes"]))
    >>> target.encode(np.array(["yes", "no", "yes"]))
    array([1, 0, 1])
    >>> target.outputs, target.predict(torch.zeros(1, 4, 1))
    (1, tensor([[0.5000, 0.5000]], dtype=torch.float64))
    """

    problem: Problem = "classification"

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    @staticmethod
    def fit(y: np.ndarray) -> "ClassTarget":
        return ClassTarget(np.unique(y))

    @property
    def outputs(self) -> int:
        """Two classes share one logit."""
        return 1 if len(self.values) <= 2 else len(self.values)

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Targets for the loss."""
        indices = np.searchsorted(self.values, y).clip(max=len(self.values) - 1)
        unknown = self.values[indices] != y
        if np.any(unknown):
            raise DataError(f"{y[unknown].tolist()[0]!r:.80} is not one of the {len(self.values)} classes of the fit")
        return indices.astype(np.int64)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(N, E): the loss of each row and member."""
        N, E, K = outputs.shape
        if len(self.values) < 2:
            return outputs.sum(2) * 0
        if K == 1:
            labels = targets[:, None].to(outputs.dtype).expand(N, E)
            return F.binary_cross_entropy_with_logits(outputs[..., 0], labels, reduction="none")
        return F.cross_entropy(outputs.flatten(0, 1), targets.repeat_interleave(E), reduction="none").view(N, E)

    def predict(self, outputs: Tensor) -> Tensor:
        """(N, C) in double precision: the ensemble's prediction."""
        outputs = outputs.double()
        if len(self.values) < 2:
            return torch.ones(len(outputs), 1, dtype=outputs.dtype, device=outputs.device)
        if outputs.shape[2] > 1:
            return outputs.softmax(2).mean(1)
        return torch.cat([(-outputs).sigmoid(), outputs.sigmoid()], 2).mean(1)

    def as_prediction(self, targets: Tensor) -> Tensor:
        """(N, C): the prediction of a perfect model."""
        return F.one_hot(targets, len(self.values)).float()

    def evaluate(self, prediction: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) each: the loss of the ensemble's prediction, and a score (higher is better)."""
        smallest = torch.finfo(prediction.dtype).tiny
        probability = prediction.gather(1, targets[:, None])[:, 0]
        return -probability.clamp(min=smallest).log(), (prediction.argmax(1) == targets).double()

    def state(self) -> State:
        """JSON values from which `target_from_state` restores the target."""
        plain = self.values.view(np.int64) if self.values.dtype.kind in TIME_KINDS else self.values
        return {"problem": self.problem, "dtype": self.values.dtype.str, "values": plain.tolist()}


class RegressionTarget:
    """One or several numbers per row, standardized to mean 0 and standard deviation 1 for training.

    `shape` is that of one row's targets: () for y of shape (N,), (K,) for (N, K). Constants are reproduced exactly.

    >>> target = RegressionTarget.fit(np.array([1.0, 3.0]))
    >>> target.encode(np.array([1.0, 2.0, 3.0]))[:, 0]
    array([-1.,  0.,  1.], dtype=float32)
    >>> target.inverse_transform(np.array([[1.0]]))
    array([3.])
    """

    problem: Problem = "regression"

    def __init__(self, mean: np.ndarray, std: np.ndarray, shape: tuple[int, ...]) -> None:
        self.mean, self.std, self.shape = mean, std, shape

    @staticmethod
    def fit(y: np.ndarray) -> "RegressionTarget":
        columns = y.reshape(len(y), -1).astype(np.float64)
        largest = np.abs(columns).max(0)
        largest[largest == 0] = 1.0
        scaled = columns / largest  # so that squares of very large numbers do not overflow
        mean, std = scaled.mean(0), scaled.std(0)
        is_constant = columns.max(0) == columns.min(0)
        mean[is_constant], std[is_constant] = scaled[0, is_constant], 0.0  # the mean may be off by the last bit
        return RegressionTarget(mean * largest, std * largest, y.shape[1:])

    @property
    def outputs(self) -> int:
        return len(self.mean)

    def encode(self, y: np.ndarray) -> np.ndarray:
        if y.shape[1:] != self.shape:
            raise DataError(f"expected {self.outputs} targets per row, of shape {self.shape}; got {y.shape[1:]}")
        columns = y.reshape(len(y), -1).astype(np.float64)
        std = np.where(self.std > 0, self.std, 1.0)
        half = columns / 2 - self.mean / 2  # the difference of very large numbers would overflow
        return (half / std * 2).astype(np.float32)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets[:, None]).square().mean(2)

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs.double().mean(1)

    def as_prediction(self, targets: Tensor) -> Tensor:
        return targets

    def evaluate(self, prediction: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        loss = (prediction - targets).square().mean(1)
        return loss, -loss

    def inverse_transform(self, prediction: np.ndarray) -> np.ndarray:
        """Predictions in the units of y."""
        return (prediction * self.std + self.mean).reshape(len(prediction), *self.shape)

    def state(self) -> State:
        return {"problem": self.problem, "mean": self.mean.tolist(), "std": self.std.tolist(), "shape": self.shape}


Target = ClassTarget | RegressionTarget
"""How model outputs (N, E, K) are compared with targets and decoded. E ensemble members, K outputs each."""


def target_from_state(state: State) -> Target:
    """The target with this `state`."""
    if state["problem"] == "classification":
        dtype = np.dtype(state["dtype"])
        if dtype.kind not in LABEL_KINDS + TIME_KINDS:
            raise DataError(f"labels must be strings, numbers, booleans or times; got dtype {state['dtype']!r:.40}")
        if dtype.kind in TIME_KINDS:
            return ClassTarget(np.array(state["values"], dtype=np.int64).view(dtype))
        return ClassTarget(np.array(state["values"], dtype=dtype))
    return RegressionTarget(np.array(state["mean"]), np.array(state["std"]), tuple(state["shape"]))


class ClassCounts:
    """Distinct labels and their counts, accumulated over chunks.

    >>> counts = ClassCounts()
    >>> for chunk in (["no", "yes"], ["maybe", "no"]):
    ...     counts.update(np.array(chunk), np.ones(2, dtype=bool))
    >>> counts.target().values.tolist(), counts.counts.tolist()
    (['maybe', 'no', 'yes'], [1, 2, 1])
    """

    def __init__(self) -> None:
        self.values: np.ndarray | None = None
        self.counts = np.zeros(0, np.int64)

    def update(self, y: np.ndarray, is_train: np.ndarray) -> None:
        """Add a chunk, validation rows included."""
        values, counts = np.unique(y, return_counts=True)
        if self.values is not None:
            values, indices = np.unique(np.concatenate([self.values, values]), return_inverse=True)
            counts = np.bincount(indices, np.concatenate([self.counts, counts])).astype(np.int64)
        self.values, self.counts = values, counts

    def target(self) -> ClassTarget:
        assert self.values is not None
        return ClassTarget(self.values)


class RunningMoments:
    """Mean and standard deviation of regression targets, accumulated over chunks.

    >>> moments = RunningMoments()
    >>> for chunk in ([1.0], [3.0]):
    ...     moments.update(np.array(chunk), np.ones(1, dtype=bool))
    >>> moments.target().mean, moments.target().std
    (array([2.]), array([1.]))
    """

    def __init__(self) -> None:
        self.rows, self.current = 0, RegressionTarget(np.zeros(0), np.zeros(0), ())

    def update(self, y: np.ndarray, is_train: np.ndarray) -> None:
        """Add the training rows of a chunk."""
        y = y[is_train]
        if not len(y):
            return
        chunk, before = RegressionTarget.fit(y), self.current
        rows, self.rows = self.rows, self.rows + len(y)
        if not rows:
            self.current = chunk
            return
        weight = len(y) / self.rows
        difference = chunk.mean - before.mean
        std = np.hypot(np.sqrt(1 - weight) * before.std, np.sqrt(weight) * chunk.std)
        std = np.hypot(std, np.sqrt(weight * (1 - weight)) * np.abs(difference))
        self.current = RegressionTarget(before.mean + weight * difference, std, chunk.shape)

    def target(self) -> RegressionTarget:
        return self.current


TargetStats = ClassCounts | RunningMoments
