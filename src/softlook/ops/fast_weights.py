"""Fast weights: causal linear attention, recurrent and chunked.

Each step adds the outer product of a key and a value to a matrix (Schmidhuber, 1992), which a query reads: linear
attention (Katharopoulos et al., 2020; Schlag et al., 2021). The recurrent form keeps the matrix as its state; the
chunked form computes many steps at once. Both are the same sum.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops.arguments import check_query_key, check_tensor

FeatureMap = Callable[[Tensor], Tensor]


class LinearAttentionState:
    """The recurrent state of linear attention: a matrix per head.

    >>> state = LinearAttentionState()
    >>> key, value = torch.eye(2).view(1, 1, 2, 2), torch.tensor([[[[5.0], [7.0]]]])
    >>> state.write(key, value)
    >>> state.read(key).flatten()
    tensor([5., 7.])
    """

    def __init__(self) -> None:
        self.weights: Tensor | None = None
        """(B, H, D, E): the sum of outer products."""
        self.keys: Tensor | None = None
        """(B, H, D): the sum of the keys, the normalizer; the delta rule has none."""

    def write(self, key: Float[Tensor, "B H T D"], value: Float[Tensor, "B H T E"]) -> None:
        """Add the outer products of keys and values."""
        weights, keys = key.mT @ value, key.sum(2)
        self.weights = weights if self.weights is None else self.weights + weights
        self.keys = keys if self.keys is None else self.keys + keys

    def read(self, query: Float[Tensor, "B H T D"]) -> Float[Tensor, "B H T E"]:
        """Multiply queries with the state."""
        if self.weights is None:
            raise ValueError("the state is empty: call write() first")
        return query @ self.weights

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        """Select rows of the batch, in this order; a row may occur several times or not at all."""
        self.weights = None if self.weights is None else self.weights.index_select(0, rows)
        self.keys = None if self.keys is None else self.keys.index_select(0, rows)


def fast_weights(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T E"],
    *,
    feature_map: FeatureMap | None = None,
    normalize: bool = False,
    chunk: int = 64,
    state: LinearAttentionState | None = None,
) -> Float[Tensor, "B H T E"]:
    """Causal linear attention: y_t = sum over s <= t of (q_t . k_s) v_s.

    `feature_map` is applied to queries and keys first (elu + 1, for example); `normalize` divides by the sum of the
    weights, and gives zeros where that is zero. `chunk` steps are computed at once; `chunk=1` is the recurrence. The
    result is the same. A `state` is read first and holds all steps afterwards.

    >>> query, key, value = torch.randn(3, 1, 2, 10, 4)
    >>> torch.allclose(fast_weights(query, key, value), fast_weights(query, key, value, chunk=1), atol=1e-5)
    True
    """
    check_steps(query, key, value, chunk)
    query, key = (query, key) if feature_map is None else (feature_map(query), feature_map(key))
    state, outputs = LinearAttentionState() if state is None else state, []
    for start in range(0, query.shape[2], chunk):
        steps = slice(start, start + chunk)
        outputs.append(_attend_chunk(state, query[:, :, steps], key[:, :, steps], value[:, :, steps], normalize))
    return torch.cat(outputs, 2) if outputs else torch.zeros_like(value)


def _attend_chunk(state: LinearAttentionState, query: Tensor, key: Tensor, value: Tensor, normalize: bool) -> Tensor:
    """One chunk: read the state of earlier chunks, add causal attention within the chunk, update the state."""
    within = (query @ key.mT).tril()
    output, total = within @ value, within.sum(-1)
    if state.keys is not None:
        output = output + state.read(query)
        total = total + (query @ state.keys[..., None])[..., 0]
    state.write(key, value)
    return output / total.masked_fill(total == 0, 1.0)[..., None] if normalize else output


def check_steps(query: Tensor, key: Tensor, value: Tensor, chunk: int) -> None:
    """Raise an error unless there are a query, a key and a value for each step and head."""
    check_tensor("query", query)
    check_tensor("key", key, like=query)
    check_tensor("value", value, like=query)
    check_query_key(query.shape, key.shape)
    if key.shape[:3] != query.shape[:3] or value.shape[:3] != query.shape[:3]:
        shapes = [tuple(tensor.shape) for tensor in (query, key, value)]
        raise ShapeError(f"fast_weights expects a query, a key and a value for each step and head, got {shapes}")
    if chunk < 1:
        raise ValueError(f"chunk expects an integer >= 1, got {chunk}")
