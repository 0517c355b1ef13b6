"""Multi-head attention: self-attention, cross-attention, QK-norm."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.blocks.beam_cache import fold_beams, unfold_beams
from softlook.blocks.kv_cache import KeyValue, LayerCache
from softlook.ops.attention import attention, attention_weights
from softlook.ops.backends.plan import Backend
from softlook.ops.bias import Bias, as_bias
from softlook.ops.look import Look, look
from softlook.ops.masks import Mask, dense
from softlook.ops.positions.rotary import RotaryAngles
from softlook.ops.positions.rotary import rotary as apply_rotary
from softlook.ops.scores import Score

MakeAttention = Callable[[int], nn.Module]
"""Builds the attention of one layer from its index; every model takes one as `attention=`."""


class AttentionCore(nn.Module):
    """Scaled dot-product attention as a module without parameters: queries, keys and values in, each head's output out.

    It is the place for forward hooks, which see and may change what every head does; `weights` and `look` give the
    attention map with the scale, softcap, sink and score of this module.

    - `sink`: the logit of a key with a value of zeros (attention sink): a number, or one for each head.
    - `dropout`: probability of dropping an attention weight while training.
    """

    def __init__(
        self,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        sink: Tensor | float | None = None,
        dropout: float = 0.0,
        score: Score | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self.scale, self.softcap, self.sink, self.dropout, self.score = scale, softcap, sink, dropout, score
        self.backend: Backend = backend

    def forward(
        self,
        query: Float[Tensor, "B H T D"],
        key: Float[Tensor, "B G S D"],
        value: Float[Tensor, "B G S E"],
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B H T E"]:
        return attention(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            scale=self.scale,
            softcap=self.softcap,
            sink=self.sink,
            dropout=self.dropout if self.training else 0.0,
            score=self.score,
            backend=self.backend,
        )

    def weights(
        self,
        query: Float[Tensor, "B H T D"],
        key: Float[Tensor, "B G S _"],
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B H T S"]:
        """Attention weights of a call, before dropout, from the arguments that a forward hook receives.

        >>> import torch
        >>> core, maps = AttentionCore(scale=1.0, sink=0.0), []
        >>> hook = lambda core, args, output: maps.append(core.weights(*args[:2], *args[3:]))
        >>> _ = core.register_forward_hook(hook)
        >>> query, key, value = torch.randn(3, 2, 4, 6, 8)
        >>> torch.testing.assert_close(core(query, key, value), maps[0] @ value)
        """
        return attention_weights(query, key, mask=mask, bias=bias, **self._arguments())

    def look(
        self,
        query: Float[Tensor, "B H T D"],
        key: Float[Tensor, "B G S _"],
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        **options: Any,
    ) -> Look:
        """Exact statistics of the attention map without computing it; `options` are those of `softlook.look`.

        >>> import torch
        >>> query, key = torch.randn(2, 1, 4, 6, 8)
        >>> AttentionCore(scale=1.0).look(query, key).entropy.shape
        torch.Size([1, 4, 6])
        """
        return look(query, key, mask=mask, bias=bias, **self._arguments(), **options)

    def _arguments(self) -> dict[str, Any]:
        return {"scale": self.scale, "softcap": self.softcap, "sink": self.sink, "score": self.score}


class MultiHeadAttention(nn.Module):
    """Projections of multi-head attention, shared by self- and cross-attention.

    - `kv_heads`: number of key and value heads (grouped-query attention); default: `heads`.
    - `head_dim`: width of one head; default: dim / heads.
    - `kv_dim`: width of the vectors that keys and values are made from; default: `dim`.
    - `qkv_bias`, `out_bias`: biases of the input and output projections; `out_bias` defaults to `qkv_bias`.
    - `core`: the attention function as a module; default: `AttentionCore()`.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        kv_dim: int | None = None,
        qkv_bias: bool = True,
        out_bias: bool | None = None,
        core: nn.Module | None = None,
    ) -> None:
        super().__init__()
        kv_heads, kv_dim = heads if kv_heads is None else kv_heads, dim if kv_dim is None else kv_dim
        self.head_dim = default_head_dim(dim, heads) if head_dim is None else head_dim
        if kv_heads < 1 or heads % kv_heads:
            raise ConfigError(f"heads must be a multiple of kv_heads, got heads={heads} and kv_heads={kv_heads}")
        self.to_query = nn.Linear(dim, heads * self.head_dim, bias=qkv_bias)
        self.to_key = nn.Linear(kv_dim, kv_heads * self.head_dim, bias=qkv_bias)
        self.to_value = nn.Linear(kv_dim, kv_heads * self.head_dim, bias=qkv_bias)
        self.core = AttentionCore() if core is None else core
        self.to_out = nn.Linear(heads * self.head_dim, dim, bias=qkv_bias if out_bias is None else out_bias)

    def split_heads(self, x: Float[Tensor, "B T HD"]) -> Float[Tensor, "B H T D"]:
        """Split the last axis into heads."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def merge_heads(self, x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T C"]:
        """Concatenate the heads and apply the output projection."""
        return self.to_out(x.transpose(1, 2).flatten(-2))

    def project_q(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T D"]:
        """Queries of `x`."""
        return self.split_heads(self.to_query(x))

    def project_kv(self, x: Float[Tensor, "B S C"]) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        """Keys and values of `x`."""
        return self.split_heads(self.to_key(x)), self.split_heads(self.to_value(x))

    def project_qkv(self, x: Float[Tensor, "B T C"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of `x`; in a compiled graph on a GPU by one matrix product.

        The compiler concatenates the weights while it casts them, which is free.
        """
        layers = [self.to_query, self.to_key, self.to_value]
        if torch.compiler.is_compiling() and x.is_cuda and all(type(layer) is nn.Linear for layer in layers):
            query, key, value = project_jointly(x, layers)
            return self.split_heads(query), self.split_heads(key), self.split_heads(value)
        return self.project_q(x), *self.project_kv(x)


class SelfAttention(MultiHeadAttention):
    """Multi-head self-attention.

    >>> import torch
    >>> from softlook import masks
    >>> attn = SelfAttention(16, heads=4, kv_heads=2)
    >>> attn(torch.randn(2, 5, 16), mask=masks.causal()).shape
    torch.Size([2, 5, 16])
    """

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        query, key, value = self.project_qkv(x)
        if rotary is not None:
            query, key = apply_rotary(query, rotary), apply_rotary(key, rotary)
        if cache is not None:
            key, value = cache.update(key, value)
        return self.merge_heads(self.core(query, key, value, mask, bias))


class QKNormAttention(SelfAttention):
    """Self-attention with QK-norm: queries and keys are normalized per head, before RoPE, as in Qwen3 and Gemma 3.

    `norm` builds each of the two norms from the width of a head; all other arguments are those of `SelfAttention`.

    >>> import torch
    >>> from softlook.blocks import RMSNorm
    >>> QKNormAttention(16, heads=4, norm=RMSNorm)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, dim: int, heads: int, *, norm: Callable[[int], nn.Module], **arguments: Any) -> None:
        super().__init__(dim, heads, **arguments)
        self.query_norm, self.key_norm = norm(self.head_dim), norm(self.head_dim)

    def project_q(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T D"]:
        return self.query_norm(super().project_q(x))

    def project_kv(self, x: Float[Tensor, "B S C"]) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        key, value = super().project_kv(x)
        return self.key_norm(key), value

    def project_qkv(self, x: Float[Tensor, "B T C"]) -> tuple[Tensor, Tensor, Tensor]:
        return self.project_q(x), *self.project_kv(x)


class CrossAttention(MultiHeadAttention):
    """Multi-head cross-attention: queries from `x`, keys and values from `encoder_states`.

    The batch of `x` may be a multiple of that of `encoder_states`: consecutive rows (beams) then share one encoded
    sequence, whose keys and values are not copied.

    >>> import torch
    >>> attn = CrossAttention(16, heads=4)
    >>> attn(torch.randn(2, 5, 16), torch.randn(2, 9, 16)).shape
    torch.Size([2, 5, 16])
    """

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        encoder_states: Float[Tensor, "N S _"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        query, (key, value) = self.project_q(x), self._cached_kv(encoder_states, cache)
        batch, sources = query.shape[0], key.shape[0]  # unlike len, shape stays symbolic in torch.export
        if sources == batch:
            return self.merge_heads(self.core(query, key, value, mask, bias))
        return self.merge_heads(unfold_beams(self.core(fold_beams(query, sources), key, value, mask, bias), batch))

    def _cached_kv(self, encoder_states: Tensor, cache: LayerCache | None) -> KeyValue:
        if cache is None:
            return self.project_kv(encoder_states)
        return cache.cross_kv(lambda: self.project_kv(encoder_states))


def project_jointly(x: Float[Tensor, "*B C"], layers: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """The outputs of several linear layers of the same input, by one matrix product.

    >>> layers = [nn.Linear(4, 2), nn.Linear(4, 3)]
    >>> x = torch.randn(5, 4)
    >>> all(torch.allclose(one, layer(x)) for one, layer in zip(project_jointly(x, layers), layers))
    True
    """
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    joint = F.linear(x, torch.cat([layer.weight for layer in layers]), bias)
    return joint.split([layer.out_features for layer in layers], -1)


def default_head_dim(dim: int, heads: int) -> int:
    """Width of one head: dim / heads."""
    if heads < 1 or dim % heads:
        raise ConfigError(f"dim must be a multiple of heads, got dim={dim} and heads={heads}")
    return dim // heads


def with_padding_mask(
    padding_mask: Bool[Tensor, "B S"] | None, mask: Mask | Tensor | None = None
) -> Mask | Tensor | None:
    """A mask that also hides padding; `padding_mask` is True where there is a token.

    >>> import torch
    >>> print(with_padding_mask(torch.tensor([[True, False]])))
    dense(1x1x1x2)
    """
    if padding_mask is None:
        return mask
    return dense(padding_mask[:, None, None]) if mask is None else dense(padding_mask[:, None, None]) & mask


def add_bias(own: Bias | Tensor | None, bias: Bias | Tensor | None) -> Bias | Tensor | None:
    """The sum of two attention biases, either of which may be None."""
    if own is None or bias is None:
        return bias if own is None else own
    return as_bias(own) + bias
