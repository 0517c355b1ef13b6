"""A dictionary that answers softly: every value, to the extent that its key matches."""

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops import scores
from softlook.ops.operation import attention, attention_weights
from softlook.ops.scores import Score


class SoftDict:
    """Keys and values, looked up by resemblance.

    A hard dictionary returns the value whose key equals the query, or nothing. A soft one returns every
    value to the extent that its key matches. `temperature` is how soft it is; towards 0 it is a Python dict:

    >>> hard = {(0.0, 0.0): 1.0, (0.0, 3.0): 2.0, (4.0, 0.0): 3.0}
    >>> keys, values = torch.tensor(list(hard)), torch.tensor(list(hard.values()))[:, None]
    >>> cold = SoftDict(keys, values, temperature=1e-3)
    >>> all(cold[torch.tensor(key)].item() == hard[key] for key in hard)
    True

    Between the keys it answers too, and the warmer it is, the more every value has a say:

    >>> cold[torch.tensor([0.1, 2.8])]
    tensor([2.])
    >>> SoftDict(keys, values, temperature=100.0)[torch.tensor([0.0, 3.0])]
    tensor([1.9741])

    Keys match by their distance, so that no key matches better than the query itself; any other
    score is handed in as `score`, and brings its own temperature.
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
                f"a SoftDict wants keys (S, width) and as many values (S, width); "
                f"{tuple(keys.shape)} and {tuple(values.shape)} came"
            )
        self.keys, self.values = keys, values
        self.score = scores.distance(temperature) if score is None else score

    def __getitem__(self, query: Float[Tensor, "*T D"]) -> Float[Tensor, "*T E"]:
        """Every value, to the extent that its key matches: for one query (D,) or several (T, D)."""
        queries = self._queries(query)
        answer = attention(queries, self.keys[None, None], self.values[None, None], score=self.score)[0, 0]
        return answer if query.ndim == 2 else answer[0]

    def weights(self, query: Float[Tensor, "*T D"]) -> Float[Tensor, "*T S"]:
        """To what extent each key matches."""
        found = attention_weights(self._queries(query), self.keys[None, None], score=self.score)[0, 0]
        return found if query.ndim == 2 else found[0]

    def __len__(self) -> int:
        return len(self.keys)

    def _queries(self, query: Tensor) -> Tensor:
        if query.ndim not in (1, 2):
            raise ShapeError(f"look up one query (width,) or several (T, width); {tuple(query.shape)} came")
        return torch.atleast_2d(query)[None, None]
