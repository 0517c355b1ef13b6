"""Disentangled attention, as in DeBERTa: what a token is and how far away it stands are scored apart."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import Mixing, SelfAttention, head_width_of
from softlook.blocks.memory import LayerMemory
from softlook.ops.bias import Bias
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask
from softlook.ops.positions.rotary import Phases


class RelativePositions(nn.Module):
    """A learned vector for each distance, both ways, the same for all layers of a stack.

    Distances beyond `reach` are one. With `buckets`, near distances have a vector each, and far ones share the rest of
    the buckets in steps that grow.

    >>> RelativePositions(8, reach=4).rows(3, torch.device("cpu"))
    tensor([[4, 3, 2],
            [5, 4, 3],
            [6, 5, 4]])
    """

    def __init__(self, dim: int, *, reach: int, buckets: int = 0, norm: nn.Module | None = None) -> None:
        super().__init__()
        if buckets and not 1 <= buckets // 2 < reach - 1:
            raise ConfigError(
                f"half of the buckets should be at least 1 and below reach - 1; {buckets=}, {reach=} came"
            )
        self.reach, self.buckets = reach, buckets
        self.table = nn.Embedding(2 * (buckets or reach), dim)
        self.norm = nn.Identity() if norm is None else norm

    def forward(self) -> Float[Tensor, "P C"]:
        return self.norm(self.table.weight)

    def rows(self, length: int, device: torch.device) -> Int[Tensor, "T T"]:
        """Which vector stands for the distance from each query to each key."""
        places = torch.arange(length, device=device)
        distances = places[:, None] - places
        half = self.table.num_embeddings // 2
        return ((self.bucketed(distances) if self.buckets else distances) + half).clamp(0, 2 * half - 1)

    def bucketed(self, distances: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """Distances up to half of the buckets as they are; beyond, in logarithmic steps."""
        half = self.buckets // 2
        far = distances.abs().clamp(min=half) / half
        steps = (
            far.log() / torch.tensor((self.reach - 1) / half).log() * (half - 1)
        )  # rounded as DeBERTa's own code has it
        return torch.where(distances.abs() <= half, distances, (steps.ceil() + half).long() * distances.sign())


class DisentangledAttention(SelfAttention):
    """Self-attention with up to three parts of scores: content to content, content to position (`c2p`) and position to
    content (`p2c`), divided by the root of the head's width times their number. It takes no memory and no phases.

    `shared`: positions are projected by the layers for content; otherwise by layers of their own.

    >>> attend = DisentangledAttention(16, 4, RelativePositions(16, reach=8))
    >>> attend(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        positions: RelativePositions,
        *,
        c2p: bool = True,
        p2c: bool = True,
        shared: bool = True,
        dropout: float = 0.0,
    ) -> None:
        scale = (head_width_of(dim, heads) * (1 + c2p + p2c)) ** -0.5
        super().__init__(dim, heads, mix=Mixing(scale=scale, dropout=dropout))
        self.positions, self.scale, self.drop = positions, scale, Dropout(dropout)
        self.c2p, self.p2c = c2p, p2c
        self.to_position_key = nn.Linear(dim, dim) if c2p and not shared else None
        self.to_position_query = nn.Linear(dim, dim) if p2c and not shared else None

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        phases: Phases | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        query, (key, value) = self.split(self.to_query(x)), self.keys_values(x)
        return self.join(self.mix(query, key, value, mask, self.by_position(query, key)))

    def by_position(self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B H T D"]) -> Float[Tensor, "B H T T"]:
        """The parts of the scores that positions have a share in."""
        vectors = self.drop(self.positions())[None]
        rows = self.positions.rows(query.shape[2], query.device).expand(*query.shape[:2], -1, -1)
        scores = query.new_zeros(())
        if self.c2p:
            to_key = self.to_key if self.to_position_key is None else self.to_position_key
            scores = scores + (query @ self.split(to_key(vectors)).mT).gather(-1, rows)
        if self.p2c:
            to_query = self.to_query if self.to_position_query is None else self.to_position_query
            scores = scores + (key @ self.split(to_query(vectors)).mT).gather(-1, rows.mT).mT
        return scores * self.scale
