"""A decoder as a list of plain sums: its weights side by side as few operations want them, and nothing else.

Nothing is copied: a plan holds views of the model's parameters, so whatever is written into those, it says at once.

Only what is known to the last detail becomes a plan: GPT, Llama and the Transformer's decoder as they are built here.
For everything else there is a reason why not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.blocks.attention import CrossAttention, Mixing, SelfAttention
from softlook.blocks.block import Block, DecoderBlock
from softlook.blocks.feed_forward import FeedForward, GatedFeedForward, gelu_tanh
from softlook.blocks.norms import RMSNorm
from softlook.blocks.residual import PostNorm, PreNorm
from softlook.decode.captured.adjoining import adjoined, are_adjoined
from softlook.decode.lean import scale_of, watched
from softlook.embed.places import LearnedPlaces, SinusoidalPlaces
from softlook.models import GPT, Llama, Transformer
from softlook.ops.positions.rotary import phases

Bend = Literal["none", "relu", "gelu", "gelu_tanh", "silu"]
BENDS: dict[Callable[[Tensor], Tensor], Bend] = {F.relu: "relu", F.gelu: "gelu", gelu_tanh: "gelu_tanh", F.silu: "silu"}


class NotPlainError(Exception):
    """Why a model is no list of plain sums."""


@dataclass(frozen=True)
class Sum:
    """y = W x + b."""

    weight: Tensor
    """(M, C), rows one after the other."""
    bias: Tensor | None


@dataclass(frozen=True)
class Norm:
    """A layer norm, or one by the mean square where there is no bias to it."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    by_square: bool = False


@dataclass(frozen=True)
class Looking:
    """An attention: `into` makes queries, keys and values; across, only queries."""

    into: Sum
    out: Sum
    heads: int
    kv_heads: int
    width: int
    scale: float


@dataclass(frozen=True)
class Thinking:
    """A feed-forward layer; where it is gated, the gate's rows come first."""

    into: Sum
    out: Sum
    bend: Bend
    gated: bool


@dataclass(frozen=True)
class Layer:
    """A block: each part with its norm, before or behind."""

    before: bool
    attend: Looking
    attend_norm: Norm
    cross: Looking | None
    cross_norm: Norm | None
    feed: Thinking
    feed_norm: Norm


@dataclass(frozen=True)
class Plan:
    """All that one more word takes."""

    tokens: Tensor
    """(V, C)"""
    factor: float
    """What vectors of words are multiplied with."""
    places: Callable[[int], Tensor | None]
    """Vectors of the first so many positions, where they are added."""
    turns: Callable[[int], tuple[Tensor, Tensor] | None]
    """Cosines and sines of the first so many positions, (P, D / 2) each, where heads are turned."""
    first_norm: Norm | None
    layers: tuple[Layer, ...]
    last_norm: Norm | None
    head: Sum


def why_not(model: nn.Module) -> str | None:
    """Why a model cannot be planned; None where it can.

    >>> from softlook.models import GPTConfig
    >>> why_not(GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval())
    >>> why_not(nn.Linear(2, 2))
    'a Linear is neither a GPT, a Llama nor a Transformer'
    """
    try:
        plan_of(model, stack=lambda *weights: weights[0].detach())
    except NotPlainError as reason:
        return str(reason)
    return None


def live_plan_of(model: nn.Module) -> Plan:
    """The plan of a model as views of its parameters, which are moved side by side where they do not lie so yet."""
    plan_of(model, adjoined)
    return plan_of(model, _still_adjoined)  # a weight that two layers share cannot lie beside both


def _still_adjoined(*weights: Tensor) -> Tensor:
    if not are_adjoined(*weights):
        raise NotPlainError("some of its layers share their weights")
    return adjoined(*weights)


@torch.no_grad()
def plan_of(model: nn.Module, stack: Callable[..., Tensor]) -> Plan:
    """The plan of a model, with weights side by side as `stack` says; NotPlainError where it has unknown parts."""
    make = {GPT: _gpt, Llama: _llama, Transformer: _transformer}.get(type(model))  # pyright: ignore[reportArgumentType]
    if make is None:
        raise NotPlainError(f"a {type(model).__name__} is neither a GPT, a Llama nor a Transformer")
    if getattr(model, "mode", "") == "encoder-only":
        raise NotPlainError("it looks both ways, and generates nothing")
    for name, part in model.named_modules():
        if watched(part):
            raise NotPlainError(f"somebody watches {name or 'it'}, and a captured step calls no hooks")
    return make(model, stack)


def _gpt(model: Any, stack: Callable[..., Tensor]) -> Plan:
    if model.config.head != "words":
        raise NotPlainError("it gives vectors or classes, not words")
    if type(model.places) is not LearnedPlaces:
        raise NotPlainError(f"its positions are {model.config.positions}, not learned")
    if any(type(part) is not nn.Identity for part in (model.project_in, model.project_out)):
        raise NotPlainError("its words have vectors of another width than its blocks")
    table = _weight(model.places.table)[model.places.offset :]

    def places(count: int) -> Tensor:
        return table[:count]

    first, last = (None if type(norm) is nn.Identity else _norm(norm) for norm in (model.embedding_norm, model.norm))
    return Plan(
        _weight(model.tokens.table), model.tokens.scale, places, lambda count: None, first,
        _layers(model.blocks, stack), last, _sum(stack, model.head),
    )  # fmt: skip


def _llama(model: Any, stack: Callable[..., Tensor]) -> Plan:
    if model.config.window is not None:
        raise NotPlainError("some layers look through a window")
    if model.config.head != "words":
        raise NotPlainError("it gives vectors or classes, not words")
    if model.rotary_width != model.head_width:
        raise NotPlainError("only a part of each head is rotated")
    table, width, base, scaling = _weight(model.tokens.table), model.head_width, model.config.base, model.scaling

    def turns(count: int) -> tuple[Tensor, Tensor]:
        made = phases(torch.arange(count, device=table.device), width, base=base, scaling=scaling)
        return made.cos.contiguous(), made.sin.contiguous()

    return Plan(
        table, model.tokens.scale, lambda count: None, turns, None,
        _layers(model.blocks, stack), _norm(model.norm), _sum(stack, model.head),
    )  # fmt: skip


def _transformer(model: Any, stack: Callable[..., Tensor]) -> Plan:
    entrance, table = model.decoder.entrance, _weight(model.decoder.entrance.tokens.table)
    where = entrance.places
    learned = _weight(where.table)[where.offset :] if type(where) is LearnedPlaces else None
    if learned is None and type(where) is not SinusoidalPlaces:
        raise NotPlainError(f"a {type(where).__name__} says where words stand in a way of its own")

    def places(count: int) -> Tensor:
        if learned is not None:
            return learned[:count]
        return where(torch.arange(count, device=table.device)).to(table.dtype).contiguous()

    first, last = (None if type(norm) is nn.Identity else _norm(norm) for norm in (entrance.norm, model.decoder.norm))
    return Plan(
        table, entrance.tokens.scale, places, lambda count: None, first,
        _layers(model.decoder.blocks, stack), last, _sum(stack, model.head),
    )  # fmt: skip


def _layers(blocks: Any, stack: Callable[..., Tensor]) -> tuple[Layer, ...]:
    return tuple(_layer(block, stack) for block in blocks)


def _layer(block: Any, stack: Callable[..., Tensor]) -> Layer:
    if type(block) not in (Block, DecoderBlock):
        raise NotPlainError(f"a {type(block).__name__} is among its blocks")
    arounds = [part for name, part in block.named_children() if name.startswith("around")]
    if any(type(around) not in (PreNorm, PostNorm) for around in arounds):
        raise NotPlainError("its norms stand neither before nor behind its layers")
    cross = block.cross if type(block) is DecoderBlock else None
    return Layer(
        before=type(block.around_attend) is PreNorm,
        attend=_looking(block.attend, SelfAttention, stack),
        attend_norm=_norm(block.around_attend.norm),
        cross=None if cross is None else _looking(cross, CrossAttention, stack),
        cross_norm=None if cross is None else _norm(block.around_cross.norm),
        feed=_thinking(block.feed, stack),
        feed_norm=_norm(block.around_feed.norm),
    )


def _looking(module: Any, kind: type[nn.Module], stack: Callable[..., Tensor]) -> Looking:
    if type(module) is not kind or type(module.mix) is not Mixing:
        raise NotPlainError(f"a {type(module).__name__} looks in a way of its own")
    mix: Any = module.mix
    width: int = module.head_width  # pyright: ignore[reportAssignmentType]  (nn.Module hides what its parts are)
    if (mix.softcap, mix.sink, mix.score) != (None, None, None):
        raise NotPlainError("its look-up has a soft cap, a sink or a score of its own")
    query, key, value, out = (getattr(module, f"to_{name}") for name in ("query", "key", "value", "out"))
    layers = (query, key, value) if kind is SelfAttention else (query,)
    heads, kv_heads = query.out_features // width, key.out_features // width
    return Looking(_sum(stack, *layers), _sum(stack, out), heads, kv_heads, width, scale_of(mix, width))


def _thinking(module: Any, stack: Callable[..., Tensor]) -> Thinking:
    if type(module) not in (FeedForward, GatedFeedForward):
        raise NotPlainError(f"a {type(module).__name__} thinks in a way of its own")
    if module.act not in BENDS:
        raise NotPlainError(f"its layers bend by {getattr(module.act, '__name__', module.act)}")
    gated = type(module) is GatedFeedForward
    into = (module.to_gate, module.to_hidden) if gated else (module.to_hidden,)
    return Thinking(_sum(stack, *into), _sum(stack, module.to_out), BENDS[module.act], gated)


def _norm(module: Any) -> Norm:
    if type(module) is nn.LayerNorm and module.weight is not None:
        return Norm(module.weight.detach(), None if module.bias is None else module.bias.detach(), module.eps)
    if type(module) is RMSNorm:
        return Norm(module.weight.detach(), None, module.eps, by_square=True)
    raise NotPlainError(f"a {type(module).__name__} is no norm that is known")


def _sum(stack: Callable[..., Tensor], *layers: Any) -> Sum:
    """Several linear layers that read the same as one."""
    if any(type(layer) is not nn.Linear for layer in layers):
        raise NotPlainError("some of its linear layers are more than that")
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers if layer.bias is not None]
    if biases and len(biases) < len(weights):
        raise NotPlainError("only some of the layers that read the same have a bias")
    return Sum(stack(*weights), stack(*biases) if biases else None)


def _weight(table: Any) -> Tensor:
    if type(table) is not nn.Embedding:
        raise NotPlainError(f"a {type(table).__name__} is no table of words")
    return table.weight.detach()
