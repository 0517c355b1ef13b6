"""Base models: the models that an ensemble combines."""

from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from softlook.tabular.preprocessing.rows import TableTensors

State = tuple[dict[str, Any], dict[str, Tensor]]
"""JSON values and tensors from which a base model is restored."""


class BaseModel(Protocol):
    """A fitted model of an ensemble."""

    kind: ClassVar[str]

    def predict(self, rows: TableTensors) -> Tensor:
        """(N, C) in double precision: probabilities, or standardized numbers."""
        ...

    def to(self, device: torch.device) -> "BaseModel":
        """The model on a device."""
        ...

    def state(self) -> State:
        """JSON values and tensors; nothing is pickled."""
        ...


def class_probabilities(scores: Tensor, classes: Tensor, n_classes: int) -> Tensor:
    """(N, n_classes) from logits of the classes that the training rows had; the others have probability 0.

    >>> class_probabilities(torch.zeros(1, 1), torch.tensor([0, 2]), 3)
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    if scores.shape[1] == 1 and len(classes) == 2:  # one logit for two classes
        scores = torch.cat([-scores / 2, scores / 2], 1)
    full = scores.new_zeros(len(scores), n_classes)
    full[:, classes] = scores.softmax(1)
    return full
