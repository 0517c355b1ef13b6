"""Disentangled attention (DeBERTa)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore, SelfAttention, add_bias, default_head_dim
from softlook.blocks.kv_cache import LayerCache
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask
from softlook.ops.positions.rotary import RotaryAngles


class RelativePositionEmbedding(nn.Module):
    """DeBERTa's relative position embedding: a vector per signed distance, shared by all layers.

    Distances are clamped to `max_distance`. With `buckets`, near distances have a vector each, and far ones share the
    remaining buckets in logarithmic steps.

    >>> RelativePositionEmbedding(8, max_distance=4).bucket_index(3, torch.device("cpu"))
    tensor([[4, 3, 2],
            [5, 4, 3],
            [6, 5, 4]])
    """

    def __init__(self, dim: int, *, max_distance: int, buckets: int = 0, norm: nn.Module | None = None) -> None:
        super().__init__()
        if buckets and not 1 <= buckets // 2 < max_distance - 1:
            raise ConfigError(
                f"half of the buckets must be from 1 to max_distance - 2, got buckets={buckets}, "
                f"max_distance={max_distance}"
            )
        self.max_distance, self.buckets = max_distance, buckets
        self.embedding = nn.Embedding(2 * (buckets or max_distance), dim)
        self.norm = nn.Identity() if norm is None else norm

    def forward(self) -> Float[Tensor, "P C"]:
        return self.norm(self.embedding.weight)

    def bucket_index(self, length: int, device: torch.device) -> Int[Tensor, "T T"]:
        """The row of the embedding for the distance from each query to each key."""
        positions = torch.arange(length, device=device)
        distances = positions[:, None] - positions
        half = self.embedding.num_embeddings // 2
        return ((self.log_bucket(distances) if self.buckets else distances) + half).clamp(0, 2 * half - 1)

    def log_bucket(self, distances: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """Distances up to half of the buckets unchanged; beyond, in logarithmic steps."""
        half = self.buckets // 2
        far = distances.abs().clamp(min=half) / half
        steps = far.log() / torch.tensor((self.max_distance - 1) / half).log() * (half - 1)  # as DeBERTa's code rounds
        return torch.where(distances.abs() <= half, distances, (steps.ceil() + half).long() * distances.sign())


class DisentangledAttention(SelfAttention):
    """Disentangled attention (He et al. 2021): content-to-content, content-to-position and position-to-content scores.

    Scores are divided by sqrt(head_dim * number of parts). Takes neither a cache nor rotary positions. With
    `share_projections`, positions are projected by the query and key layers; otherwise by layers of their own.

    >>> attn = DisentangledAttention(16, 4, RelativePositionEmbedding(16, max_distance=8))
    >>> attn(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        positions: RelativePositionEmbedding,
        *,
        c2p: bool = True,
        p2c: bool = True,
        share_projections: bool = True,
        dropout: float = 0.0,
    ) -> None:
        scale = (default_head_dim(dim, heads) * (1 + c2p + p2c)) ** -0.5
        super().__init__(dim, heads, core=AttentionCore(scale=scale, dropout=dropout))
        self.positions, self.scale, self.dropout = positions, scale, Dropout(dropout)
        self.c2p, self.p2c = c2p, p2c
        self.to_position_key = nn.Linear(dim, dim) if c2p and not share_projections else None
        self.to_position_query = nn.Linear(dim, dim) if p2c and not share_projections else None

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        query, (key, value) = self.project_q(x), self.project_kv(x)
        bias = add_bias(self.position_scores(query, key), bias)
        return self.merge_heads(self.core(query, key, value, mask, bias))

    def position_scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B H T D"]
    ) -> Float[Tensor, "B H T T"]:
        """The scores that depend on relative positions."""
        vectors = self.dropout(self.positions())[None]
        index = self.positions.bucket_index(query.shape[2], query.device).expand(*query.shape[:2], -1, -1)
        scores = query.new_zeros(())
        if self.c2p:
            to_key = self.to_key if self.to_position_key is None else self.to_position_key
            scores = scores + (query @ self.split_heads(to_key(vectors)).mT).gather(-1, index)
        if self.p2c:
            to_query = self.to_query if self.to_position_query is None else self.to_position_query
            scores = scores + (key @ self.split_heads(to_query(vectors)).mT).gather(-1, index.mT).mT
        return scores * self.scale
