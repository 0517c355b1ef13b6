"""BERT; RoBERTa, DistilBERT, MPNet and ELECTRA are configurations of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore, MakeAttention, SelfAttention, add_bias, with_padding_mask
from softlook.blocks.block import PostNormBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.init import init_normal
from softlook.blocks.kv_cache import token_positions
from softlook.embed.positions import LearnedPositions, RelativePositionBias
from softlook.embed.tokens import TokenEmbedding, TokenTypeEmbedding, add_token_types
from softlook.heads.classification import (
    ClassificationHead,
    HiddenStates,
    Problem,
    ReplacedTokenHead,
    SpanHead,
    TokenClassificationHead,
)
from softlook.heads.lm import MaskedLMHead, PretrainingHead, PretrainingLogits
from softlook.heads.ngram_lm import NeighborLM, NeighborLMConfig
from softlook.heads.ngrams import NGramClassifier, NGramConfig
from softlook.heads.pooling import L2Normalize, Pooler, PoolName, build_pool
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask

BertHead = Literal[
    "hidden_states",
    "pooled",
    "embedding",
    "masked_lm",
    "next_sentence",
    "pretraining",
    "replaced_token",
    "classification",
    "multiple_choice",
    "token_classification",
    "question_answering",
]


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Hyperparameters of a BERT, and its head. The defaults are those of BERT-base."""

    vocab_size: int = 30522
    """Vocabulary size."""
    context: int = 512
    """Maximum sequence length."""
    position_offset: int = 0
    """Unused rows at the start of the position embedding; RoBERTa has 2."""
    token_types: int = 2
    """Number of token types (sentences of a pair); 0: none, as in DistilBERT."""
    buckets: int = 0
    """Buckets of the relative position bias; 0: none, 32 in MPNet."""
    dim: int = 768
    """Width of the hidden states."""
    embedding_dim: int | None = None
    """Width of the embedding, projected to `dim`, as in ELECTRA; default: dim."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    """Number of attention heads."""
    hidden: int | None = None
    """Width inside the feed-forward layers; default: 4 * dim."""
    activation: ActivationName = "gelu"
    """Activation of the feed-forward layers and of the masked LM head."""
    dropout: float = 0.1
    """Dropout probability of embeddings, attention weights, layer outputs and the head."""
    eps: float = 1e-12
    """Epsilon of the layer norms."""
    head: BertHead = "masked_lm"
    """What the model returns: hidden states, a pooled vector, a unit-length embedding, or the logits of a task."""
    tie_embeddings: bool = True
    """Whether the masked LM head shares the weight of the token embedding."""
    classes: int = 2
    """Number of classes."""
    problem: Problem | None = None
    """What the classification logits stand for; default: single_label, or for one class its probability."""
    pooling: PoolName = "cls"
    """Pooling by the [CLS] token or by the mean."""
    pooler: ActivationName | None = "tanh"
    """Activation of the pooler's dense layer; None: no pooler."""
    ngrams: NGramConfig | None = None
    """A linear classifier on n-grams beside the attention; with the classification head only."""
    neighbors: NeighborLMConfig | None = None
    """A model of a token by its neighbors beside the attention; with the masked LM head only."""


class Bert(nn.Module):
    """BERT (Devlin et al. 2019): a bidirectional encoder. Ids in, the output of the head out.

    `attention(layer)` builds the self-attention of each layer; default: `SelfAttention` with the sizes of the config.

    >>> import torch
    >>> config = BertConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2, head="classification", classes=3)
    >>> Bert(config)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: BertConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        width = c.dim if c.embedding_dim is None else c.embedding_dim
        self.token_embedding = TokenEmbedding(c.vocab_size, width)
        self.position_embedding = LearnedPositions(c.context, width, offset=c.position_offset)
        self.type_embedding = TokenTypeEmbedding(c.token_types, width) if c.token_types else None
        self.embedding_norm = nn.LayerNorm(width, c.eps)
        self.dropout = Dropout(c.dropout)
        self.project_in = nn.Identity() if width == c.dim else nn.Linear(width, c.dim)
        self.relative_bias = RelativePositionBias(c.buckets, c.heads) if c.buckets else None
        self.blocks = nn.ModuleList(self._block(layer, attention) for layer in range(c.depth))
        self.head = build_head(c, self.token_embedding)
        self.ngrams: NGramClassifier | NeighborLM | None = None
        if c.ngrams is not None and c.head == "classification":
            self.ngrams = NGramClassifier(c.ngrams, c.vocab_size, c.classes, problem=c.problem)
        if c.neighbors is not None and c.head == "masked_lm":
            self.ngrams = NeighborLM(c.neighbors, c.vocab_size)
        init_normal(self)

    def _block(self, layer: int, attention: MakeAttention | None) -> PostNormBlock:
        c = self.config
        if attention is None:
            attn: nn.Module = SelfAttention(c.dim, c.heads, core=AttentionCore(dropout=c.dropout))
        else:
            attn = attention(layer)
        ffn = FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])
        return PostNormBlock(attn, ffn, lambda: nn.LayerNorm(c.dim, c.eps), dropout=c.dropout)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        token_types: Int[Tensor, "B T"] | None = None,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
    ) -> Float[Tensor, "B *logits"] | PretrainingLogits:
        """`padding_mask` is True where there is a token; `mask` and `positions` are for packed or left-padded rows;
        `bias` is added to the attention logits of every layer."""
        x = self.token_embedding(ids) + self.position_embedding(token_positions(ids, positions, None))
        x = self.embedding_norm(add_token_types(x, self.type_embedding, token_types))
        x = self.project_in(self.dropout(x))
        mask = with_padding_mask(padding_mask, mask)
        bias = add_bias(None if self.relative_bias is None else self.relative_bias(x), bias)
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias)
        output = self.head(x, padding_mask)
        if self.ngrams is None or self.training or not self.ngrams.enabled:  # its weights are fitted beforehand
            return output
        return self.ngrams.mix(output, ids, padding_mask)


def build_head(config: BertConfig, embedding: nn.Embedding) -> nn.Module:
    """The head that the config names."""
    c = config

    def pool() -> nn.Module:
        plain = build_pool(c.pooling)
        return plain if c.pooler is None else Pooler(plain, c.dim, ACTIVATIONS[c.pooler])

    def masked_lm() -> nn.Module:
        activation = ACTIVATIONS[c.activation]
        return MaskedLMHead(embedding, activation, dim=c.dim, eps=c.eps, tie_embeddings=c.tie_embeddings)

    heads: dict[BertHead, Callable[[], nn.Module]] = {
        "hidden_states": HiddenStates,
        "pooled": pool,
        "embedding": lambda: L2Normalize(pool()),
        "masked_lm": masked_lm,
        "next_sentence": lambda: ClassificationHead(pool(), c.dim, 2),
        "pretraining": lambda: PretrainingHead(masked_lm(), ClassificationHead(pool(), c.dim, 2)),
        "replaced_token": lambda: ReplacedTokenHead(c.dim, ACTIVATIONS[c.activation]),
        "classification": lambda: ClassificationHead(pool(), c.dim, c.classes, dropout=c.dropout),
        "multiple_choice": lambda: ClassificationHead(pool(), c.dim, 1, dropout=c.dropout),
        "token_classification": lambda: TokenClassificationHead(c.dim, c.classes, dropout=c.dropout),
        "question_answering": lambda: SpanHead(c.dim, dropout=c.dropout),
    }
    if c.head not in heads:
        raise ConfigError(f"expected a head of BERT ({', '.join(heads)}), got {c.head!r}")
    return heads[c.head]()
