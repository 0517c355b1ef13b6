"""Targets as tensors and back: classes, labels, numbers, and quantiles of numbers."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import DataError

Problem = Literal["classification", "multilabel", "regression", "quantiles"]
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

    def to_labels(self, prediction: np.ndarray) -> np.ndarray:
        """(N,): the most probable class."""
        return self.values[prediction.argmax(1)]

    def state(self) -> State:
        """JSON values from which `target_from_state` restores the target."""
        plain = self.values.view(np.int64) if self.values.dtype.kind in TIME_KINDS else self.values
        return {"problem": self.problem, "dtype": self.values.dtype.str, "values": plain.tolist()}


class MultilabelTarget:
    """Several labels per row, each present (1) or absent (0).

    >>> target = MultilabelTarget.fit(np.array([[0, 1, 1], [1, 0, 1]]))
    >>> target.outputs, target.to_labels(np.array([[0.2, 0.9, 0.5]]))
    (3, array([[0, 1, 1]]))
    """

    problem: Problem = "multilabel"

    def __init__(self, labels: int) -> None:
        self.values = np.arange(labels)

    @staticmethod
    def fit(y: np.ndarray) -> "MultilabelTarget":
        return MultilabelTarget(y.shape[1])

    @property
    def outputs(self) -> int:
        return len(self.values)

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Targets for the loss."""
        if y.shape[1:] != (self.outputs,):
            raise DataError(f"expected {self.outputs} labels per row; got targets of shape {y.shape}")
        return y.astype(np.float32)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(N, E): the mean binary cross-entropy of the labels."""
        labels = targets[:, None].to(outputs.dtype).expand_as(outputs)
        return F.binary_cross_entropy_with_logits(outputs, labels, reduction="none").mean(2)

    def predict(self, outputs: Tensor) -> Tensor:
        """(N, K) in double precision: the probability of each label."""
        return outputs.double().sigmoid().mean(1)

    def as_prediction(self, targets: Tensor) -> Tensor:
        return targets

    def evaluate(self, prediction: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) each: the mean log loss of the labels, and whether all of them are predicted correctly."""
        probability = torch.where(targets > 0.5, prediction, 1 - prediction)
        return -probability.clamp(min=1e-15).log().mean(1), (probability >= 0.5).all(1).double()

    def to_labels(self, prediction: np.ndarray) -> np.ndarray:
        """(N, K): 1 for labels of a probability of at least a half."""
        return (prediction >= 0.5).astype(np.int64)

    def state(self) -> State:
        return {"problem": self.problem, "labels": self.outputs}


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
            raise DataError(f"expected {len(self.mean)} targets per row, of shape {self.shape}; got {y.shape[1:]}")
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


class QuantileTarget(RegressionTarget):
    """Quantiles of one or several numbers per row, trained with the pinball loss (Koenker and Bassett 1978).

    >>> target = QuantileTarget(np.zeros(1), np.ones(1), (), (0.1, 0.9))
    >>> target.loss(torch.zeros(1, 1, 2), torch.ones(1, 1))
    tensor([[0.5000]])
    >>> target.inverse_transform(np.array([[1.0, 2.0]]))
    array([[1., 2.]])
    """

    problem: Problem = "quantiles"

    def __init__(self, mean: np.ndarray, std: np.ndarray, shape: tuple[int, ...], quantiles: tuple[float, ...]) -> None:
        super().__init__(mean, std, shape)
        self.quantiles = quantiles

    @property
    def outputs(self) -> int:
        """The quantiles of each number, one number after another."""
        return len(self.mean) * len(self.quantiles)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._pinball(outputs, targets[:, None]).mean(2)

    def as_prediction(self, targets: Tensor) -> Tensor:
        return targets.repeat_interleave(len(self.quantiles), 1)

    def evaluate(self, prediction: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        loss = self._pinball(prediction, targets).mean(1)
        return loss, -loss

    def inverse_transform(self, prediction: np.ndarray) -> np.ndarray:
        """(N, quantiles) or (N, K, quantiles) in the units of y, sorted, because independent quantiles may cross."""
        by_number = np.sort(prediction.reshape(len(prediction), len(self.mean), len(self.quantiles)))
        values = by_number * self.std[:, None] + self.mean[:, None]
        return values.reshape(len(prediction), *self.shape, len(self.quantiles))

    def state(self) -> State:
        return super().state() | {"quantiles": self.quantiles}

    def _pinball(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Pinball loss of outputs (..., K * quantiles) for targets (..., K)."""
        levels = torch.tensor(self.quantiles, dtype=outputs.dtype, device=outputs.device).repeat(len(self.mean))
        error = targets.repeat_interleave(len(self.quantiles), -1) - outputs
        return torch.maximum(levels * error, (levels - 1) * error)


Target = ClassTarget | MultilabelTarget | RegressionTarget
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
    if state["problem"] == "multilabel":
        return MultilabelTarget(int(state["labels"]))
    moments = np.array(state["mean"]), np.array(state["std"]), tuple(state["shape"])
    if state["problem"] == "quantiles":
        return QuantileTarget(*moments, tuple(state["quantiles"]))
    return RegressionTarget(*moments)
