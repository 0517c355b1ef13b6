"""Decoder weights as plain tensors, views of the model's parameters.

Nothing is copied: changes of the parameters take effect at once. Only GPT, Llama and the Transformer's decoder with
their standard parts are supported; for other models there is a reason why not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.blocks.attention import AttentionCore, CrossAttention, SelfAttention
from softlook.blocks.block import PostNormBlock, PostNormDecoderBlock, PreNormBlock, PreNormDecoderBlock
from softlook.blocks.feed_forward import FeedForward, GatedFeedForward, gelu_tanh
from softlook.blocks.norms import RMSNorm
from softlook.decode.cpu import attention_scale, has_hooks
from softlook.embed.positions import LearnedPositions, SinusoidalPositions
from softlook.models import GPT, Llama, Transformer
from softlook.ops.positions.rotary import rotary_angles

ActivationName = Literal["none", "relu", "gelu", "gelu_tanh", "silu"]
ACTIVATION_NAMES: dict[Callable[[Tensor], Tensor], ActivationName] = {
    F.relu: "relu",
    F.gelu: "gelu",
    gelu_tanh: "gelu_tanh",
    F.silu: "silu",
}
Concat = Callable[..., Tensor]
"""Concatenates the weights of several layers along their rows."""


class UnsupportedModelError(Exception):
    """Why the weights of a model cannot be extracted."""


@dataclass(frozen=True)
class LinearWeights:
    """y = activation(W x + b); if gated, the activation of the first half of the rows times the second half."""

    weight: Tensor
    """(M, C), contiguous."""
    bias: Tensor | None
    activation: ActivationName = "none"
    gated: bool = False


@dataclass(frozen=True)
class NormWeights:
    """Layer norm or RMS norm."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    is_rms: bool = False


@dataclass(frozen=True)
class AttentionWeights:
    """Attention: `qkv` projects queries, keys and values; in cross-attention, only queries."""

    qkv: LinearWeights
    out: LinearWeights
    heads: int
    kv_heads: int
    head_dim: int
    scale: float


@dataclass(frozen=True)
class LayerWeights:
    """A decoder block: each sublayer with its norm, before it (pre-norm) or after the residual (post-norm)."""

    pre_norm: bool
    attn: AttentionWeights
    attn_norm: NormWeights
    cross_attn: AttentionWeights | None
    cross_attn_norm: NormWeights | None
    up: LinearWeights
    down: LinearWeights
    mlp_norm: NormWeights


@dataclass(frozen=True)
class DecoderWeights:
    """All weights of a decoder."""

    token_embedding: Tensor
    """(V, C)"""
    embedding_scale: float
    positions: Callable[[int], Tensor | None]
    """Number of positions -> position embeddings, if the model adds them."""
    rotary: Callable[[int], tuple[Tensor, Tensor] | None]
    """Number of positions P -> rotary cos and sin, (P, D / 2) each, if the model uses them."""
    embedding_norm: NormWeights | None
    layers: tuple[LayerWeights, ...]
    final_norm: NormWeights | None
    lm_head: LinearWeights


def shared_weights(model: nn.Module) -> DecoderWeights:
    """Weights as views of the model's parameters, whose storage is made adjacent where it is not."""
    extract_weights(model, concat_views)
    return extract_weights(model, _concat_adjacent)  # a weight shared by two layers cannot be adjacent to both


def _concat_adjacent(*weights: Tensor) -> Tensor:
    if not are_adjacent(*weights):
        raise UnsupportedModelError("some layers share their weights")
    return concat_views(*weights)


@torch.no_grad()
def extract_weights(model: nn.Module, concat: Concat) -> DecoderWeights:
    """The weights of a model, concatenated by `concat`; UnsupportedModelError for unknown parts."""
    extract = {GPT: _gpt, Llama: _llama, Transformer: _transformer}.get(type(model))  # pyright: ignore[reportArgumentType]
    if extract is None:
        raise UnsupportedModelError(f"{type(model).__name__} is not a GPT, Llama or Transformer")
    if getattr(model, "mode", "") == "encoder-only":
        raise UnsupportedModelError("the model is bidirectional and does not generate")
    for name, module in model.named_modules():
        if has_hooks(module):
            raise UnsupportedModelError(f"{name or 'the model'} has hooks, which a CUDA graph does not call")
    return extract(model, concat)


def _gpt(model: Any, concat: Concat) -> DecoderWeights:
    if type(model.position_embedding) is not LearnedPositions:
        raise UnsupportedModelError(f"its positions are {model.config.positions}, not learned")
    if any(type(module) is not nn.Identity for module in (model.project_in, model.project_out)):
        raise UnsupportedModelError("its embeddings have another width than its blocks")
    norms = model.embedding_norm, model.final_norm
    return _decoder(model, model.token_embedding, norms, model.blocks, concat, positions=model.position_embedding)


def _llama(model: Any, concat: Concat) -> DecoderWeights:
    if model.config.sliding_window is not None:
        raise UnsupportedModelError("some layers use sliding-window attention")
    if model.rotary_dim != model.head_dim:
        raise UnsupportedModelError("only a part of each head is rotated")
    device, head_dim = _embedding(model.token_embedding).device, model.head_dim
    theta, scaling = model.config.rope_theta, model.frequency_scaling

    def rotary(count: int) -> tuple[Tensor, Tensor]:
        angles = rotary_angles(torch.arange(count, device=device), head_dim, theta=theta, scaling=scaling)
        return angles.cos.contiguous(), angles.sin.contiguous()

    norms = nn.Identity(), model.final_norm
    return _decoder(model, model.token_embedding, norms, model.blocks, concat, rotary=rotary)


def _transformer(model: Any, concat: Concat) -> DecoderWeights:
    embedding = model.decoder.embedding
    norms, positions = (embedding.norm, model.decoder.final_norm), embedding.position_embedding
    return _decoder(model, embedding.token_embedding, norms, model.decoder.blocks, concat, positions=positions)


def _decoder(
    model: Any,
    embedding: Any,
    norms: tuple[nn.Module, nn.Module],
    blocks: Any,
    concat: Concat,
    *,
    positions: Any = None,
    rotary: Callable[[int], tuple[Tensor, Tensor] | None] = lambda count: None,
) -> DecoderWeights:
    """The weights of a decoder with these norms, behind its embedding and behind its blocks."""
    if getattr(model.config, "head", "causal_lm") != "causal_lm":
        raise UnsupportedModelError("it has no language-modeling head")
    first, last = (None if type(norm) is nn.Identity else _norm(norm) for norm in norms)
    table, layers = _embedding(embedding), tuple(_layer(block, concat) for block in blocks)
    positions = _positions(positions, table)
    return DecoderWeights(
        table, embedding.scale, positions, rotary, first, layers, last, _linear(concat, model.lm_head)
    )


def _positions(encoding: Any, like: Tensor) -> Callable[[int], Tensor | None]:
    if encoding is None:
        return lambda count: None
    if type(encoding) is LearnedPositions:
        table = _embedding(encoding)[encoding.offset :]
        return lambda count: table[:count]
    if type(encoding) is not SinusoidalPositions:
        raise UnsupportedModelError(f"{type(encoding).__name__} is an unknown position embedding")
    return lambda count: encoding(torch.arange(count, device=like.device)).to(like.dtype).contiguous()


def _layer(block: Any, concat: Concat) -> LayerWeights:
    if type(block) not in (PreNormBlock, PostNormBlock, PreNormDecoderBlock, PostNormDecoderBlock):
        raise UnsupportedModelError(f"{type(block).__name__} is an unknown block")
    cross = getattr(block, "cross_attn", None)
    return LayerWeights(
        pre_norm=type(block) in (PreNormBlock, PreNormDecoderBlock),
        attn=_attention(block.attn, SelfAttention, concat),
        attn_norm=_norm(block.attn_norm),
        cross_attn=None if cross is None else _attention(cross, CrossAttention, concat),
        cross_attn_norm=None if cross is None else _norm(block.cross_attn_norm),
        up=_up_projection(block.ffn, concat),
        down=_linear(concat, block.ffn.to_out),
        mlp_norm=_norm(block.ffn_norm),
    )


def _attention(module: Any, expected: type[nn.Module], concat: Concat) -> AttentionWeights:
    if type(module) is not expected or type(module.core) is not AttentionCore:
        raise UnsupportedModelError(f"{type(module).__name__} is an unknown attention")
    core: Any = module.core
    head_dim: int = module.head_dim  # pyright: ignore[reportAssignmentType]  (nn.Module hides attribute types)
    if (core.softcap, core.sink, core.score) != (None, None, None):
        raise UnsupportedModelError("its attention has a softcap, a sink or a custom score")
    query, key, value, out = (getattr(module, f"to_{name}") for name in ("query", "key", "value", "out"))
    layers = (query, key, value) if expected is SelfAttention else (query,)
    heads, kv_heads = query.out_features // head_dim, key.out_features // head_dim
    scale = attention_scale(core, head_dim)
    return AttentionWeights(_linear(concat, *layers), _linear(concat, out), heads, kv_heads, head_dim, scale)


def _up_projection(module: Any, concat: Concat) -> LinearWeights:
    if type(module) not in (FeedForward, GatedFeedForward):
        raise UnsupportedModelError(f"{type(module).__name__} is an unknown feed-forward layer")
    if module.activation not in ACTIVATION_NAMES:
        raise UnsupportedModelError(
            f"{getattr(module.activation, '__name__', module.activation)} is an unknown activation"
        )
    gated = type(module) is GatedFeedForward
    layers = (module.to_gate, module.to_up) if gated else (module.to_up,)
    return replace(_linear(concat, *layers), activation=ACTIVATION_NAMES[module.activation], gated=gated)


def _norm(module: Any) -> NormWeights:
    if type(module) is nn.LayerNorm and module.weight is not None:
        return NormWeights(module.weight.detach(), None if module.bias is None else module.bias.detach(), module.eps)
    if type(module) is RMSNorm:
        return NormWeights(module.weight.detach(), None, module.eps, is_rms=True)
    raise UnsupportedModelError(f"{type(module).__name__} is an unknown norm")


def _linear(concat: Concat, *layers: Any) -> LinearWeights:
    """Several linear layers with the same input, as one."""
    if any(type(layer) is not nn.Linear for layer in layers):
        raise UnsupportedModelError("some linear layers are not plain nn.Linear")
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers if layer.bias is not None]
    if biases and len(biases) < len(weights):
        raise UnsupportedModelError("only some of the projections with the same input have a bias")
    return LinearWeights(concat(*weights), concat(*biases) if biases else None)


def _embedding(table: Any) -> Tensor:
    if not isinstance(table, nn.Embedding):
        raise UnsupportedModelError(f"{type(table).__name__} is not an nn.Embedding")
    return table.weight.detach()


def concat_views(*weights: Tensor) -> Tensor:
    """The weights, concatenated along their rows, as one tensor that shares its storage with all of them.

    Weights that are not adjacent are moved once: a parameter stays the same object with the same values, and whatever
    is written into it, by an optimizer, by `copy_` or through `.data`, is written into the tensor as well.

    >>> one, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 1)
    >>> both = concat_views(one.weight, other.weight)
    >>> other.weight.data.fill_(7.0)
    tensor([[7., 7.]])
    >>> both[3]
    tensor([7., 7.])
    """
    if not are_adjacent(*weights):
        storage, start = torch.cat([weight.detach() for weight in weights]), 0
        for weight in weights:
            weight.data = storage[start : start + len(weight)]
            start += len(weight)
    first = weights[0].detach()
    shape = sum(map(len, weights)), *first.shape[1:]
    return first.as_strided(shape, first.stride(), first.storage_offset())


def are_adjacent(*weights: Tensor) -> bool:
    """Whether the weights follow each other in one storage."""
    first = weights[0]
    expected = first.storage_offset()
    for weight in weights:
        same = weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (same and weight.is_contiguous() and weight.storage_offset() == expected):
            return False
        expected += weight.numel()
    return True
