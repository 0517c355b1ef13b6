"""Fused attention and decoder blocks for decoding on a CPU.

They replace `SelfAttention`, `CrossAttention` and decoder blocks in an inference-only copy of a model. With few rows,
calling modules takes longer than their computation: one token of several beams skips them. Other inputs (a mask other
than causal, a bias, several tokens, forward hooks on the attention core) take the standard path. Hooks on a block and
its attention cores are called as usual; those on its other submodules are not called in the fused step.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.blocks.attention import AttentionCore, CrossAttention, SelfAttention
from softlook.blocks.beam_cache import BeamLayerCache, beam_attention, fold_beams, unfold_beams
from softlook.blocks.block import PostNormBlock, PostNormDecoderBlock, PreNormBlock, PreNormDecoderBlock
from softlook.blocks.feed_forward import FeedForward
from softlook.blocks.kv_cache import KeyValue, LayerCache
from softlook.embed.positions import SinusoidalPositions
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask, causal
from softlook.ops.masks.base import DenseMask
from softlook.ops.positions.rotary import RotaryAngles
from softlook.ops.positions.rotary import rotary as apply_rotary

CAUSAL = causal()
NUM_CACHED_POSITIONS = 512


class FusedSelfAttention(nn.Module):
    """Self-attention with one projection for queries, keys and values."""

    def __init__(self, source: SelfAttention, to_qkv: nn.Module, to_out: nn.Module) -> None:
        super().__init__()
        self.head_dim, self.core = source.head_dim, source.core
        self.heads = source.to_query.out_features // self.head_dim
        self.kv_heads = source.to_key.out_features // self.head_dim
        self.scale, self.to_qkv, self.to_out = attention_scale(source.core, self.head_dim), to_qkv, to_out

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        qkv = self.to_qkv(x)
        if isinstance(cache, BeamLayerCache) and self._is_beam_step(x, mask, bias, rotary, cache):
            heads = qkv.view(-1, cache.beams.num_beams, self.heads + 2 * self.kv_heads, self.head_dim)
            return self.to_out(cache.attend(heads, self.kv_heads, self.scale).unsqueeze(1))
        qkv = qkv.unflatten(-1, (-1, self.head_dim))  # (B, T, H + 2G, D)
        query, key, value = qkv.transpose(1, 2).split((self.heads, self.kv_heads, self.kv_heads), 1)
        if rotary is not None:
            query, key = apply_rotary(query, rotary), apply_rotary(key, rotary)
        if cache is not None:
            key, value = cache.update(key, value)
        return self.to_out(self.core(query, key, value, mask, bias).transpose(1, 2).flatten(-2))

    def _is_beam_step(
        self,
        x: Tensor,
        mask: Mask | Tensor | None,
        bias: Bias | Tensor | None,
        rotary: RotaryAngles | None,
        cache: BeamLayerCache,
    ) -> bool:
        """One token of several beams, with a causal mask."""
        if rotary is not None or cache.beams.columns is None or x.shape[1] != 1 or has_hooks(self.core):
            return False
        return bias is None and (mask is None or mask == CAUSAL)


class FusedCrossAttention(nn.Module):
    """Cross-attention with one projection for keys and values, which several beams may share."""

    def __init__(self, source: CrossAttention, to_kv: nn.Module, to_query: nn.Module, to_out: nn.Module) -> None:
        super().__init__()
        self.head_dim, self.core = source.head_dim, source.core
        self.heads = source.to_query.out_features // self.head_dim
        self.scale = attention_scale(source.core, self.head_dim)
        self.to_kv, self.to_query, self.to_out = to_kv, to_query, to_out

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        encoder_states: Float[Tensor, "N S _"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        if cache is None:
            key, value = self._project_kv(encoder_states)
        else:
            key, value = cache.cross_kv(lambda: self._project_kv(encoder_states))
        query = self.to_query(x)
        if x.shape[1] == 1 and mask is None and bias is None and not has_hooks(self.core):
            beams = query.view(len(key), len(query) // len(key), -1, self.head_dim).transpose(1, 2)
            return self.to_out(beam_attention(beams, key, value, mask=None, scale=self.scale).unsqueeze(1))
        query = query.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        if len(key) == len(query):
            output = self.core(query, key, value, mask, bias)
        else:
            output = unfold_beams(self.core(fold_beams(query, len(key)), key, value, mask, bias), len(query))
        return self.to_out(output.transpose(1, 2).flatten(-2))

    def _project_kv(self, encoder_states: Tensor) -> KeyValue:
        """Keys and values are read at every step, which is faster if they are contiguous."""
        key, value = self.to_kv(encoder_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2).chunk(2, 1)
        return key.contiguous(), value.contiguous()


class CachedSinusoidalPositions(nn.Module):
    """Sinusoidal positions from a precomputed table."""

    def __init__(self, source: SinusoidalPositions) -> None:
        super().__init__()
        self.source, self.table = source, source(torch.arange(NUM_CACHED_POSITIONS))

    def forward(self, positions: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions C"]:
        is_empty = positions.numel() == 0
        if is_empty or int(positions.max()) >= NUM_CACHED_POSITIONS or int(positions.min()) < 0:
            return self.source(positions)
        return self.table[positions]


class FusedResidual:
    """A residual connection with a layer norm, before the layer (pre-norm) or after the sum (post-norm)."""

    def __init__(self, norm: nn.Module, *, pre_norm: bool) -> None:
        assert isinstance(norm, nn.LayerNorm)
        self.pre_norm = pre_norm
        self.norm_args = norm.normalized_shape, norm.weight, norm.bias, norm.eps

    def before(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self.norm_args) if self.pre_norm else x

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        return x + output if self.pre_norm else torch.layer_norm(x + output, *self.norm_args)


class FusedDecoderBlock(nn.Module):
    """A decoder block that computes one token of several beams without calling its submodules."""

    attn: Any
    cross_attn: Any
    ffn: Any

    def __init__(self, source: PreNormBlock | PostNormBlock | PreNormDecoderBlock | PostNormDecoderBlock) -> None:
        super().__init__()
        self.source, self.attn, self.ffn = source, source.attn, source.ffn
        pre_norm = isinstance(source, PreNormBlock | PreNormDecoderBlock)
        self.attn_residual = FusedResidual(source.attn_norm, pre_norm=pre_norm)
        self.ffn_residual = FusedResidual(source.ffn_norm, pre_norm=pre_norm)
        self.cross_attn = self.cross_attn_residual = None
        if isinstance(source, PreNormDecoderBlock | PostNormDecoderBlock):
            self.cross_attn = source.cross_attn
            self.cross_attn_residual = FusedResidual(source.cross_attn_norm, pre_norm=pre_norm)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        encoder_states: Float[Tensor, "N S C"] | None = None,
        *,
        mask: Mask | Tensor | None = None,
        encoder_mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cross_bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        is_causal = rotary is None and (mask is None or mask == CAUSAL)
        is_padding = isinstance(encoder_mask, DenseMask) and encoder_mask.visible.shape[1:3] == (1, 1)
        is_unbiased = bias is None and cross_bias is None
        is_simple = is_causal and is_unbiased and (encoder_mask is None or is_padding) and x.shape[1] == 1
        if is_simple and isinstance(cache, BeamLayerCache) and self._is_ready(cache):
            additive = cache.beams.additive_mask(encoder_mask)  # pyright: ignore[reportArgumentType]  (None or dense)
            return self._beam_step(x.squeeze(1), cache, additive).unsqueeze(1)
        if self.cross_attn is None:
            return self.source(x, mask=mask, bias=bias, rotary=rotary, cache=cache)
        masks = {"mask": mask, "encoder_mask": encoder_mask, "bias": bias, "cross_bias": cross_bias}
        return self.source(x, encoder_states, **masks, cache=cache)

    def _is_ready(self, cache: BeamLayerCache) -> bool:
        if cache.beams.columns is None or has_hooks(self.attn.core):
            return False
        return self.cross_attn is None or (cache.cross is not None and not has_hooks(self.cross_attn.core))

    def _beam_step(
        self, x: Float[Tensor, "B C"], cache: BeamLayerCache, encoder_mask: Tensor | None
    ) -> Float[Tensor, "B C"]:
        attn, residual, beams = self.attn, self.attn_residual, cache.beams.num_beams
        qkv = attn.to_qkv.forward(residual.before(x))
        heads = qkv.view(-1, beams, attn.heads + 2 * attn.kv_heads, attn.head_dim)
        x = residual.after(x, attn.to_out.forward(cache.attend(heads, attn.kv_heads, attn.scale)))
        cross, residual = self.cross_attn, self.cross_attn_residual
        if cross is not None and residual is not None and cache.cross is not None:
            query = cross.to_query.forward(residual.before(x))
            query = query.view(-1, beams, cross.heads, cross.head_dim).transpose(1, 2)
            output = beam_attention(query, *cache.cross, mask=encoder_mask, scale=cross.scale)
            x = residual.after(x, cross.to_out.forward(output))
        ffn, residual = self.ffn, self.ffn_residual
        return residual.after(x, ffn.to_out.forward(ffn.activation(ffn.to_up.forward(residual.before(x)))))


def can_fuse(block: nn.Module) -> bool:
    """Whether all submodules of a block are those that `FusedDecoderBlock` supports."""
    is_decoder = type(block) in (PreNormDecoderBlock, PostNormDecoderBlock)
    if not is_decoder and type(block) not in (PreNormBlock, PostNormBlock):
        return False
    if type(block.ffn) is not FeedForward or type(block.attn) is not FusedSelfAttention:
        return False
    norms = [module for name, module in block.named_children() if name.endswith("_norm")]
    is_fused = not is_decoder or type(block.cross_attn) is FusedCrossAttention
    return is_fused and all(type(norm) is nn.LayerNorm for norm in norms)


def attention_scale(core: nn.Module, head_dim: int) -> float:
    assert isinstance(core, AttentionCore)
    return head_dim**-0.5 if core.scale is None else core.scale


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has forward hooks or pre-hooks."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
