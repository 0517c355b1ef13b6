"""All-attention layer with persistent keys and values."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore, MultiHeadAttention
from softlook.blocks.block import MakeNorm
from softlook.blocks.kv_cache import LayerCache
from softlook.blocks.memory_usage import SlotUsage
from softlook.blocks.prefix_keys import bias_with_prefix_keys, mask_with_prefix_keys
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask
from softlook.ops.positions.rotary import RotaryAngles
from softlook.ops.positions.rotary import rotary as apply_rotary


class AllAttention(MultiHeadAttention):
    """All-attention layer (Sukhbaatar et al. 2019): self-attention with learned persistent keys and values.

    One softmax covers the `persistent` vectors of each head and the context. They replace the feed-forward layer: never
    masked, at no position, and not part of the KV cache. They come first, so the first `persistent` columns of the map
    are theirs. `bias` applies to the context alone, and `rotary` rotates the queries and the keys of the context.

    >>> from softlook import masks
    >>> attn = AllAttention(16, heads=4, persistent=32)
    >>> attn(torch.randn(2, 5, 16), mask=masks.causal()).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        persistent: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        qkv_bias: bool = True,
        core: nn.Module | None = None,
    ) -> None:
        super().__init__(dim, heads, kv_heads=kv_heads, head_dim=head_dim, qkv_bias=qkv_bias, core=core)
        if persistent < 1:
            raise ConfigError(f"persistent must be at least 1, got {persistent}. Use SelfAttention for none.")
        shape = (heads if kv_heads is None else kv_heads, persistent, self.head_dim)
        self.persistent = persistent
        self.persistent_keys = nn.Parameter(torch.randn(shape) / math.sqrt(self.head_dim))
        self.persistent_values = nn.Parameter(torch.randn(shape) / math.sqrt(persistent))

    def persistent_kv(self, batch: int) -> tuple[Float[Tensor, "B G N D"], Float[Tensor, "B G N D"]]:
        """The persistent keys and values, scaled for use.

        The parameters are small, as other weights are. Keys are scaled to the size of projected keys, values so that
        uniform attention to all of them does not vanish in the average.
        """
        key = self.persistent_keys * math.sqrt(self.head_dim)
        value = self.persistent_values * math.sqrt(self.persistent)
        return key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)

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
        persistent_key, persistent_value = self.persistent_kv(x.shape[0])
        key, value = torch.cat([persistent_key, key], 2), torch.cat([persistent_value, value], 2)
        mask, bias = mask_with_prefix_keys(mask, self.persistent), bias_with_prefix_keys(bias, self.persistent)
        return self.merge_heads(self.core(query, key, value, mask, bias))


class AllAttentionBlock(nn.Module):
    """Post-norm block of one all-attention layer, norm(x + attn(x)).

    >>> block = AllAttentionBlock(AllAttention(16, heads=4, persistent=32), lambda: nn.LayerNorm(16))
    >>> block(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.attn_norm, self.dropout = attn, norm(), Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        return self.attn_norm(x + self.dropout(self.attn(x, mask=mask, bias=bias, rotary=rotary, cache=cache)))


class PreNormAllAttentionBlock(nn.Module):
    """Pre-norm block of one all-attention layer, x + attn(norm(x)). The model ends with a norm.

    >>> block = PreNormAllAttentionBlock(AllAttention(16, heads=4, persistent=32), lambda: nn.LayerNorm(16))
    >>> block(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.attn_norm, self.dropout = attn, norm(), Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        return x + self.dropout(self.attn(self.attn_norm(x), mask=mask, bias=bias, rotary=rotary, cache=cache))


@contextmanager
def watch_persistent(attn: AllAttention) -> Iterator[SlotUsage]:
    """Accumulate the attention weight of the persistent vectors within the `with` block: slot h * persistent + n.

    The weights are those before dropout, of every query, by a forward hook. The map is not computed.

    >>> attn = AllAttention(16, heads=4, persistent=32)
    >>> with watch_persistent(attn) as slot_usage:
    ...     output = attn(torch.randn(2, 5, 16))
    >>> len(slot_usage.weights), slot_usage.queries, 0 < slot_usage.weight_share < 1
    (128, 40, True)
    """
    slot_usage = SlotUsage(attn.to_query.out_features // attn.head_dim * attn.persistent)

    def record(core: AttentionCore, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, mask, bias = args
        with torch.no_grad():
            received = core.look(query, key, mask, bias, stats=("received",)).received
        slot_usage.add(received[..., : attn.persistent].double().sum(0).flatten(), query.shape[:-1].numel())

    hook = attn.core.register_forward_hook(record)  # pyright: ignore[reportArgumentType]
    try:
        yield slot_usage
    finally:
        hook.remove()
