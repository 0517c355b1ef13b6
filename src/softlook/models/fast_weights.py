"""Language model of fast weights."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.blocks.fast_weights import DeltaRuleAttention, FastWeightCache, LinearAttention
from softlook.blocks.feed_forward import FeedForward
from softlook.blocks.init import init_normal, init_residual_projections
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.lm import build_lm_head
from softlook.ops.dropout import Dropout
from softlook.ops.fast_weights import LinearAttentionState

RULES = {"sum": LinearAttention, "delta": DeltaRuleAttention}


@dataclass(frozen=True, kw_only=True)
class FastWeightLMConfig:
    """Hyperparameters of a language model of fast weights."""

    vocab_size: int
    """Vocabulary size."""
    dim: int = 256
    """Width of the hidden states."""
    depth: int = 6
    """Number of blocks."""
    heads: int = 4
    """Number of heads, each with its own matrix of fast weights."""
    hidden: int | None = None
    """Width inside the feed-forward layers; default: 4 * dim."""
    rule: Literal["sum", "delta"] = "delta"
    """Whether a value is added to the fast weights (linear attention), or replaces what its key returns."""
    dropout: float = 0.1
    """Dropout probability of embeddings and layer outputs."""
    eps: float = 1e-5
    """Epsilon of the layer norms."""
    tie_embeddings: bool = True
    """Whether the LM head shares the weight of the token embedding."""


class FastWeightLM(nn.Module):
    """Language model whose attention is a recurrence of fast weights: ids in, logits out, in constant memory per token.

    It needs no positions, and there is no longest sequence.

    >>> import torch
    >>> model = FastWeightLM(FastWeightLMConfig(vocab_size=10, dim=16, depth=2, heads=2)).eval()
    >>> ids, cache = torch.tensor([[3, 1, 4]]), FastWeightCache()
    >>> steps = [model(ids[:, t : t + 1], cache=cache) for t in range(3)]
    >>> torch.allclose(torch.cat(steps, 1), model(ids), atol=1e-5)
    True
    """

    mode: ClassVar = "decoder-only"

    def __init__(self, config: FastWeightLMConfig) -> None:
        super().__init__()
        self.config = c = config
        self.token_embedding = TokenEmbedding(c.vocab_size, c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(FastWeightBlock(c) for _ in range(c.depth))
        self.final_norm = nn.LayerNorm(c.dim, c.eps)
        self.lm_head = build_lm_head(c.dim, c.vocab_size, tie_to=self.token_embedding if c.tie_embeddings else None)
        init_normal(self)
        init_residual_projections(self, c.depth)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        cache: FastWeightCache | None = None,
        logits_to_keep: int | None = None,
    ) -> Float[Tensor, "B _ V"]:
        """Logits (B, T, vocab), or those of the last `logits_to_keep` positions only.

        - `padding_mask`: True where there is a token.
        - `cache`: the state of the tokens before; it holds all tokens afterwards.
        """
        x = self.dropout(self.token_embedding(ids))
        states = [None] * len(self.blocks) if cache is None else cache.allocate(len(self.blocks))
        for block, state in zip(self.blocks, states, strict=True):
            x = block(x, padding_mask=padding_mask, state=state)
        if cache is not None:
            cache.length += ids.shape[1]
        return self.lm_head(self.final_norm(x if logits_to_keep is None else x[:, -logits_to_keep:]))


class FastWeightBlock(nn.Module):
    """Pre-norm block of fast weights and a feed-forward layer."""

    def __init__(self, config: FastWeightLMConfig) -> None:
        super().__init__()
        c = config
        self.attn, self.attn_norm = RULES[c.rule](c.dim, c.heads), nn.LayerNorm(c.dim, c.eps)
        self.ffn, self.ffn_norm = FeedForward(c.dim, c.hidden), nn.LayerNorm(c.dim, c.eps)
        self.dropout = Dropout(c.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        state: LinearAttentionState | None = None,
    ) -> Float[Tensor, "B T C"]:
        x = x + self.dropout(self.attn(self.attn_norm(x), padding_mask=padding_mask, state=state))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))
