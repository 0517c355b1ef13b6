"""SoftDict: attention as a soft dictionary look-up."""

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops import scores
from softlook.ops.attention import attention, attention_weights
from softlook.ops.scores import Score


class SoftDict:
    """A differentiable dictionary: a query returns every value, weighted by how well its key matches.

    A Python dict returns the value whose key equals the query. With a `temperature` towards 0, a SoftDict does too:

    >>> hard = {(0.0, 0.0): 1.0, (0.0, 3.0): 2.0, (4.0, 0.0): 3.0}
    >>> keys, values = torch.tensor(list(hard)), torch.tensor(list(hard.values()))[:, None]
    >>> cold = SoftDict(keys, values, temperature=1e-3)
    >>> all(cold[torch.tensor(key)].item() == hard[key] for key in hard)
    True

    It also answers between the keys, and a higher temperature averages more values:

    >>> cold[torch.tensor([0.1, 2.8])]
    tensor([2.])
    >>> SoftDict(keys, values, temperature=100.0)[torch.tensor([0.0, 3.0])]
    tensor([1.9741])

    The default score is the squared distance, so that no key matches better than the query itself. Another `score`
    brings its own temperature.
    """

    def __init__(
        self,
        keys: Float[Tensor, "S D"],
        values: Float[Tensor, "S E"],
        *,
        temperature: float = 1.0,
        score: Score | None = None,
    ) -> None:
        if keys.ndim != 2 or values.ndim != 2 or len(keys) != len(values):
            raise ShapeError(
                f"SoftDict expects keys (S, D) and values (S, E), got {tuple(keys.shape)} and {tuple(values.shape)}"
            )
        self.keys, self.values = keys, values
        self.score = scores.squared_distance(temperature) if score is None else score

    def __getitem__(self, query: Float[Tensor, "*T D"]) -> Float[Tensor, "*T E"]:
        """Return the weighted average of the values, for one query (D,) or several (T, D)."""
        queries = self._queries(query)
        output = attention(queries, self.keys[None, None], self.values[None, None], score=self.score)[0, 0]
        return output if query.ndim == 2 else output[0]

    def weights(self, query: Float[Tensor, "*T D"]) -> Float[Tensor, "*T S"]:
        """Return the weight of each key."""
        weights = attention_weights(self._queries(query), self.keys[None, None], score=self.score)[0, 0]
        return weights if query.ndim == 2 else weights[0]

    def __len__(self) -> int:
        return len(self.keys)

    def _queries(self, query: Tensor) -> Tensor:
        if query.ndim not in (1, 2):
            raise ShapeError(f"SoftDict expects one query (D,) or several (T, D), got {tuple(query.shape)}")
        return torch.atleast_2d(query)[None, None]
