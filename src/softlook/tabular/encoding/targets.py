"""What is to be predicted, as tensors and back: classes of any kind, or one or several numbers."""

from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import DataError

State = dict[str, Any]
KINDS, TIMES = "biufUO", "mM"
"""numpy's letters for the kinds of labels there are: truth values, whole and other numbers, words; and times."""


@runtime_checkable
class Targets(Protocol):
    """How a model's scores (N, E, K) are compared with what is wanted, and read. E members, K scores each."""

    kind: Literal["classes", "amounts"]

    @property
    def outputs(self) -> int:
        """K: scores that a member gives for a row."""
        ...

    def encode(self, y: np.ndarray) -> np.ndarray:
        """What the loss compares with."""
        ...

    def loss(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """(N, E): each member's own loss for each row."""
        ...

    def answer(self, scores: Tensor) -> Tensor:
        """(N, C) in double precision: what all members say together."""
        ...

    def as_answer(self, wanted: Tensor) -> Tensor:
        """(N, C): what an answer would be that knew it all."""
        ...

    def judged(self, answer: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) each: the loss of the common answer, and a score of which more is better."""
        ...

    def state(self) -> State:
        """All there is to know, for JSON."""
        ...


class Classes:
    """Labels of any one kind: each is the place among all of them, in order.

    >>> classes = Classes(np.array(["no", "yes"]))
    >>> classes.encode(np.array(["yes", "no", "yes"]))
    array([1, 0, 1])
    >>> classes.outputs, classes.answer(torch.zeros(1, 4, 1))
    (1, tensor([[0.5000, 0.5000]], dtype=torch.float64))
    """

    kind: Literal["classes", "amounts"] = "classes"

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    @staticmethod
    def of(y: np.ndarray) -> "Classes":
        return Classes(np.unique(y))

    @property
    def outputs(self) -> int:
        """Two classes share one score, as one probability says both."""
        return 1 if len(self.values) <= 2 else len(self.values)

    def encode(self, y: np.ndarray) -> np.ndarray:
        places = np.searchsorted(self.values, y).clip(max=len(self.values) - 1)
        strange = self.values[places] != y
        if np.any(strange):
            raise DataError(
                f"{y[strange].tolist()[0]!r:.80} is none of the {len(self.values)} classes that were learned first"
            )
        return places.astype(np.int64)

    def loss(self, scores: Tensor, wanted: Tensor) -> Tensor:
        N, E, K = scores.shape
        if len(self.values) < 2:
            return scores.sum(2) * 0
        if K == 1:
            signs = wanted[:, None].to(scores.dtype).expand(N, E)
            return F.binary_cross_entropy_with_logits(scores[..., 0], signs, reduction="none")
        return F.cross_entropy(scores.flatten(0, 1), wanted.repeat_interleave(E), reduction="none").view(N, E)

    def answer(self, scores: Tensor) -> Tensor:
        scores = scores.double()
        if len(self.values) < 2:
            return torch.ones(len(scores), 1, dtype=scores.dtype, device=scores.device)
        if scores.shape[2] > 1:
            return scores.softmax(2).mean(1)
        return torch.cat([(-scores).sigmoid(), scores.sigmoid()], 2).mean(1)

    def as_answer(self, wanted: Tensor) -> Tensor:
        return F.one_hot(wanted, len(self.values)).float()

    def judged(self, answer: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        least = torch.finfo(answer.dtype).tiny
        said = answer.gather(1, wanted[:, None])[:, 0]
        return -said.clamp(min=least).log(), (answer.argmax(1) == wanted).double()

    def state(self) -> State:
        plain = self.values.view(np.int64) if self.values.dtype.kind in TIMES else self.values
        return {"kind": self.kind, "type": self.values.dtype.str, "values": plain.tolist()}


class Amounts:
    """One or several numbers, each brought to mean 0 and deviation 1 while learning.

    `shape` is that of one row's numbers: () for y of shape (N,), (K,) for (N, K).
    A constant comes back as it is.

    >>> amounts = Amounts.of(np.array([1.0, 3.0]))
    >>> amounts.encode(np.array([1.0, 2.0, 3.0]))[:, 0]
    array([-1.,  0.,  1.], dtype=float32)
    >>> amounts.read(np.array([[1.0]]))
    array([3.])
    """

    kind: Literal["classes", "amounts"] = "amounts"

    def __init__(self, middle: np.ndarray, spread: np.ndarray, shape: tuple[int, ...]) -> None:
        self.middle, self.spread, self.shape = middle, spread, shape

    @staticmethod
    def of(y: np.ndarray) -> "Amounts":
        columns = y.reshape(len(y), -1).astype(np.float64)
        largest = np.abs(columns).max(0)
        largest[largest == 0] = 1.0
        shares = columns / largest  # so that squares of the very largest numbers stay numbers
        middle, spread = shares.mean(0), shares.std(0)
        same = columns.max(0) == columns.min(0)
        middle[same], spread[same] = shares[0, same], 0.0  # a mean of equal numbers may be off by the last bit
        return Amounts(middle * largest, spread * largest, y.shape[1:])

    @property
    def outputs(self) -> int:
        return len(self.middle)

    def encode(self, y: np.ndarray) -> np.ndarray:
        if y.shape[1:] != self.shape:
            raise DataError(f"a row has {self.outputs} targets of shape {self.shape}; {y.shape[1:]} came")
        columns = y.reshape(len(y), -1).astype(np.float64)
        spread = np.where(self.spread > 0, self.spread, 1.0)
        halves = columns / 2 - self.middle / 2  # the difference of the very largest numbers would be none
        return (halves / spread * 2).astype(np.float32)

    def loss(self, scores: Tensor, wanted: Tensor) -> Tensor:
        return (scores - wanted[:, None]).square().mean(2)

    def answer(self, scores: Tensor) -> Tensor:
        return scores.double().mean(1)

    def as_answer(self, wanted: Tensor) -> Tensor:
        return wanted

    def judged(self, answer: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        loss = (answer - wanted).square().mean(1)
        return loss, -loss

    def read(self, answer: np.ndarray) -> np.ndarray:
        """Answers in the units of y."""
        return (answer * self.spread + self.middle).reshape(len(answer), *self.shape)

    def state(self) -> State:
        return {"kind": self.kind, "middle": self.middle.tolist(), "spread": self.spread.tolist(), "shape": self.shape}


def targets_from(state: State) -> Classes | Amounts:
    """What `state` says, as it was."""
    if state["kind"] == "classes":
        kind = np.dtype(state["type"])
        if kind.kind not in KINDS + TIMES:
            raise DataError(
                f"labels are words, numbers, truth values or times; the type {state['type']!r:.40} is none of them"
            )
        if kind.kind in TIMES:
            return Classes(np.array(state["values"], dtype=np.int64).view(kind))
        return Classes(np.array(state["values"], dtype=kind))
    return Amounts(np.array(state["middle"]), np.array(state["spread"]), tuple(state["shape"]))
