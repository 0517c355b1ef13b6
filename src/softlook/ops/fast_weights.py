"""Fast weights, the ancestor of attention: one network writes the weights of another.

Each step writes the outer product of a key and a value into a matrix, and a query reads it: linear
attention. What is written can be kept as a matrix that grows no larger (recurrent), or worked
out for many steps at once (chunked). Both are the same sum.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops.question import check_pair, check_tensor

Feature = Callable[[Tensor], Tensor]


class FastMemory:
    """A matrix per head that is written to and read from, one step after another.

    >>> memory = FastMemory()
    >>> key, value = torch.eye(2).view(1, 1, 2, 2), torch.tensor([[[[5.0], [7.0]]]])
    >>> memory.write(key, value)
    >>> memory.read(key).flatten()
    tensor([5., 7.])
    """

    def __init__(self) -> None:
        self.weights: Tensor | None = None
        """(B, H, D, E): what the slow network wrote."""
        self.keys: Tensor | None = None
        """(B, H, D): the sum of the keys, for an average instead of a sum."""

    def write(self, key: Float[Tensor, "B H T D"], value: Float[Tensor, "B H T E"]) -> None:
        """Add the outer products of keys and values."""
        weights, keys = key.mT @ value, key.sum(2)
        self.weights = weights if self.weights is None else self.weights + weights
        self.keys = keys if self.keys is None else self.keys + keys

    def read(self, query: Float[Tensor, "B H T D"]) -> Float[Tensor, "B H T E"]:
        """What the fast network answers; an empty memory answers nothing."""
        if self.weights is None:
            raise ValueError("nothing has been written to this memory yet")
        return query @ self.weights


def fast_weights(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T E"],
    *,
    feature: Feature | None = None,
    average: bool = False,
    chunk: int = 64,
) -> Float[Tensor, "B H T E"]:
    """Causal linear attention: y_t = sum over s <= t of (q_t . k_s) v_s.

    `feature` is applied to queries and keys first (elu + 1, say); `average` divides by the sum of the
    weights. `chunk` steps are worked out at once; `chunk=1` is the recurrence itself. The answer is the same.

    >>> query, key, value = torch.randn(3, 1, 2, 10, 4)
    >>> torch.allclose(fast_weights(query, key, value), fast_weights(query, key, value, chunk=1), atol=1e-5)
    True
    """
    _check(query, key, value, chunk)
    query, key = (query, key) if feature is None else (feature(query), feature(key))
    memory, answers = FastMemory(), []
    for start in range(0, query.shape[2], chunk):
        steps = slice(start, start + chunk)
        answers.append(_read_then_write(memory, query[:, :, steps], key[:, :, steps], value[:, :, steps], average))
    return torch.cat(answers, 2) if answers else torch.zeros_like(value)


def _read_then_write(memory: FastMemory, query: Tensor, key: Tensor, value: Tensor, average: bool) -> Tensor:
    """One chunk: what was written before it, and what it writes itself up to each step."""
    within = (query @ key.mT).tril()
    answer, total = within @ value, within.sum(-1)
    if memory.keys is not None:
        answer = answer + memory.read(query)
        total = total + (query @ memory.keys[..., None])[..., 0]
    memory.write(key, value)
    return answer / total[..., None] if average else answer


def _check(query: Tensor, key: Tensor, value: Tensor, chunk: int) -> None:
    check_tensor("query", query)
    check_tensor("key", key, like=query)
    check_tensor("value", value, like=query)
    check_pair(query.shape, key.shape)
    if key.shape[:3] != query.shape[:3] or value.shape[:3] != query.shape[:3]:
        shapes = [tuple(tensor.shape) for tensor in (query, key, value)]
        raise ShapeError(f"fast_weights wants a query, a key and a value for every step of every head; {shapes} came")
    if chunk < 1:
        raise ValueError(f"chunk wants a whole number from 1 up; {chunk} came")
