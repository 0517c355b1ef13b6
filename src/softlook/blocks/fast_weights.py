"""Fast-weight layers: linear attention, and the delta rule."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.blocks.attention import MultiHeadAttention
from softlook.ops.delta_rule import delta_rule
from softlook.ops.fast_weights import LinearAttentionState, fast_weights


class FastWeightCache:
    """The states of a model's fast-weight layers: one matrix per head, whatever the length. The caller owns it.

    >>> cache, layer = FastWeightCache(), LinearAttention(16, heads=4)
    >>> for _ in range(3):
    ...     _ = layer(torch.randn(2, 5, 16), state=cache.allocate(1)[0])
    >>> cache.layers[0].weights.shape
    torch.Size([2, 4, 4, 4])
    """

    def __init__(self) -> None:
        self.layers: list[LinearAttentionState] = []
        self.length = 0
        """Number of positions seen so far."""

    def allocate(self, depth: int) -> list[LinearAttentionState]:
        """The states of the first `depth` layers; those that do not exist yet are created."""
        while len(self.layers) < depth:
            self.layers.append(LinearAttentionState())
        return self.layers[:depth]

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        """Select rows of the batch, in this order; a row may occur several times or not at all."""
        for layer in self.layers:
            layer.reorder(rows)


class LinearAttention(MultiHeadAttention):
    """Causal linear attention with the feature map elu + 1 (Katharopoulos et al. 2020): the sum rule of fast weights.

    `chunk` steps are computed at once. Padding is not written to the state.

    >>> layer, x = LinearAttention(16, heads=4), torch.randn(2, 5, 16)
    >>> state = LinearAttentionState()
    >>> steps = [layer(x[:, t : t + 1], state=state) for t in range(5)]
    >>> torch.allclose(torch.cat(steps, 1), layer(x), atol=1e-5)
    True
    """

    def __init__(self, dim: int, heads: int, *, head_dim: int | None = None, chunk: int = 64) -> None:
        super().__init__(dim, heads, head_dim=head_dim, qkv_bias=False)
        self.chunk = chunk

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        state: LinearAttentionState | None = None,
    ) -> Float[Tensor, "B T C"]:
        query, key, value = self.project_qkv(x)
        query, key = F.elu(query) + 1, F.elu(key) + 1
        if padding_mask is not None:
            key = key * padding_mask[:, None, :, None]
        output = fast_weights(query, key, value, normalize=True, chunk=self.chunk, state=state)
        return self.merge_heads(output)


class DeltaRuleAttention(MultiHeadAttention):
    """Fast weights by the delta rule (Schlag et al. 2021), with a learned rate of writing per step and head.

    Queries and keys have length 1. `chunk` steps are computed at once. Padding is not written to the state.

    >>> layer, x = DeltaRuleAttention(16, heads=4), torch.randn(2, 5, 16)
    >>> state = LinearAttentionState()
    >>> steps = [layer(x[:, t : t + 1], state=state) for t in range(5)]
    >>> torch.allclose(torch.cat(steps, 1), layer(x), atol=1e-5)
    True
    """

    def __init__(self, dim: int, heads: int, *, head_dim: int | None = None, chunk: int = 64) -> None:
        super().__init__(dim, heads, head_dim=head_dim, qkv_bias=False)
        self.to_rate = nn.Linear(dim, heads)
        self.chunk = chunk

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        state: LinearAttentionState | None = None,
    ) -> Float[Tensor, "B T C"]:
        query, key, value = self.project_qkv(x)
        query, key = F.normalize(F.silu(query), dim=-1), F.normalize(F.silu(key), dim=-1)
        rate = torch.sigmoid(self.to_rate(x)).mT
        if padding_mask is not None:
            rate = rate * padding_mask[:, None]
        return self.merge_heads(delta_rule(query, key, value, rate, chunk=self.chunk, state=state))
