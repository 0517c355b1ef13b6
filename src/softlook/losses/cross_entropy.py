"""Cross-entropy with label smoothing and ignored targets."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

IGNORE_INDEX = -100
"""The target of positions that do not count."""


def cross_entropy(
    logits: Float[Tensor, "*B K"], target: Int[Tensor, "*B"], *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Mean cross-entropy over the targets that are not `IGNORE_INDEX`; 0 if there are none.

    >>> import torch
    >>> cross_entropy(torch.zeros(1, 2, 4), torch.tensor([[3, IGNORE_INDEX]]))
    tensor(1.3863)
    """
    total = F.cross_entropy(
        logits.flatten(0, -2),
        target.flatten(),
        ignore_index=IGNORE_INDEX,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return total / (target != IGNORE_INDEX).sum().clamp(min=1)
