"""Direct logit attribution: what each head, layer and source token adds to a logit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.all_attention import PreNormAllAttentionBlock
from softlook.blocks.attention import MultiHeadAttention
from softlook.blocks.block import (
    ParallelBlock,
    PreNormBlock,
    PreNormDecoderBlock,
    SandwichNormBlock,
    SharedNormParallelBlock,
)
from softlook.lens.copying import head_weights
from softlook.lens.head_table import format_value
from softlook.lens.trace import Trace, trace
from softlook.lens.unembedding import Unembedding, find_stack, find_unembedding, freeze_norm
from softlook.lens.value_weighted import call_with_values

PRE_NORM = (
    *(PreNormBlock, ParallelBlock, SandwichNormBlock, SharedNormParallelBlock, PreNormDecoderBlock),
    PreNormAllAttentionBlock,
)
SUBLAYERS = ("attn", "cross_attn", "ffn")


@dataclass(frozen=True, eq=False)
class LogitContributions:
    """What each part of a model adds to a logit, or to the difference of two logits, at one position."""

    logit: Float[Tensor, " B"]
    """The logit of the model, before the softcap of its head."""
    embedding: Float[Tensor, " B"]
    """The input of the first block."""
    layers: Mapping[str, Float[Tensor, " B"]]
    """Each attention and feed-forward layer by its path."""
    heads: Mapping[str, Float[Tensor, "B H"]]
    """Each head of an attention layer. Their sum and the bias of the output projection are that of the layer."""
    sources: Mapping[str, Float[Tensor, "B H S"]]
    """Each source token through each head; the sum over the tokens is that of the head, less relative value vectors."""
    bias: Float[Tensor, " B"]
    """The biases of norms and head."""

    @property
    def total(self) -> Float[Tensor, " B"]:
        """The sum of embedding, layers and bias: the logit."""
        return self.embedding + self.bias + torch.stack(list(self.layers.values())).sum(0)

    def __str__(self) -> str:
        parts = {"embedding": self.embedding, **self.layers, "bias": self.bias, "total": self.total}
        width = max(map(len, parts))
        return "\n".join(f"{name:{width}}  {format_value(float(part.mean())):>8}" for name, part in parts.items())


@torch.no_grad()
def logit_contributions(
    model: nn.Module,
    *args: Any,
    token: int | Int[Tensor, " B"],
    other: int | Int[Tensor, " B"] | None = None,
    position: int = -1,
    **kwargs: Any,
) -> LogitContributions:
    """Direct logit attribution (Elhage et al. 2021): what each part of a pre-norm model adds to a logit.

    The residual stream is the sum of the embedding and of what each layer adds. With the statistics of the final norm
    frozen at those of this forward pass, the logit is linear in that sum, so the contributions add up to it. The
    model is called with the remaining arguments. What a part changes through later layers is not included.

    - `token`: the token whose logit is attributed; with `other`, its logit minus that of `other`.
    - `position`: the position whose logits are read.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> parts = logit_contributions(model, torch.tensor([[3, 1, 4]]), token=7)
    >>> torch.allclose(parts.total, parts.logit, atol=1e-5), parts.sources["blocks.1.attn"].shape
    (True, torch.Size([1, 4, 3]))
    """
    unembedding, blocks = find_unembedding(model), _check_blocks(model, find_stack(model))
    with trace(model, values=True) as recorded, _record_streams(unembedding, blocks) as streams:
        model(*args, **kwargs)
    last = streams[unembedding.norm].input[:, position]
    direction, bias, logit = _logit_direction(unembedding, last, token, other)
    layers: dict[str, Tensor] = {}
    heads: dict[str, Tensor] = {}
    sources: dict[str, Tensor] = {}
    for path, layer, post_norm in _sublayers(model, blocks):
        own = direction
        if post_norm is not None:
            frozen = freeze_norm(post_norm, streams[post_norm].input[:, position])
            own, bias = frozen.pull_back(direction), bias + frozen.offset(direction)
        layers[path] = (streams[layer].output[:, position] * own).sum(-1)
        if isinstance(layer, MultiHeadAttention):
            heads[path], sources[path] = _head_contributions(recorded, path, layer, own, position)
    embedding = (streams[blocks[0]].input[:, position] * direction).sum(-1)
    return LogitContributions(logit, embedding, layers, heads, sources, bias)


# --- parts of a forward pass -----------------------------------------------------------------------------------------


class _Stream(NamedTuple):
    input: Tensor
    output: Tensor


@contextmanager
def _record_streams(unembedding: Unembedding, blocks: Sequence[nn.Module]) -> Iterator[dict[nn.Module, _Stream]]:
    """Record input and output of each layer of the blocks, of the first block and of the final norm."""
    streams: dict[nn.Module, _Stream] = {}

    def record(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        streams[module] = _Stream(args[0], output)

    layers = {layer for block in blocks for layer in block.children()}
    with ExitStack() as hooks:
        for module in layers | {unembedding.norm, blocks[0]}:
            hooks.callback(module.register_forward_hook(record).remove)
        yield streams


def _sublayers(model: nn.Module, blocks: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Module, nn.Module | None]]:
    """Path and module of each attention and feed-forward layer, and the norm that follows it, as in Gemma 2."""
    paths = {module: path for path, module in model.named_modules()}
    for block in blocks:
        for name in SUBLAYERS:
            layer = getattr(block, name, None)
            if layer is not None:
                yield f"{paths[block]}.{name}", layer, getattr(block, f"{name}_post_norm", None)


def _check_blocks(model: nn.Module, stack: nn.Module) -> list[nn.Module]:
    blocks = list(stack.blocks)  # pyright: ignore[reportArgumentType]
    if bad := [block for block in blocks if not isinstance(block, PRE_NORM)]:
        raise ConfigError(
            f"logits are attributed through a residual stream that only the final norm changes: expected pre-norm "
            f"blocks, got {type(bad[0]).__name__}. In a post-norm model, every norm rescales what earlier layers added."
        )
    if model.training:
        raise ConfigError("contributions do not add up with dropout: call model.eval() first")
    return blocks


def _logit_direction(
    unembedding: Unembedding, last: Tensor, token: int | Tensor, other: int | Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The direction of the last residual stream, what biases add, and the logit itself. (B, C), (B), (B)"""

    def per_row(ids: int | Tensor) -> Tensor:
        return torch.as_tensor(ids, device=last.device).expand(len(last))

    direction, bias = unembedding.directions(per_row(token)), unembedding.bias(per_row(token))
    if other is not None:
        direction, bias = (
            direction - unembedding.directions(per_row(other)),
            bias - unembedding.bias(per_row(other)),
        )
    norm = freeze_norm(unembedding.norm, last)
    logit = (unembedding.norm(last) * direction).sum(-1) + bias
    return norm.pull_back(direction), norm.offset(direction) + bias, logit


def _head_contributions(
    recorded: Trace, path: str, attn: MultiHeadAttention, direction: Tensor, position: int
) -> tuple[Tensor, Tensor]:
    """What each head, and each source token through it, adds in a direction. (B, H), (B, H, S)"""
    call = call_with_values(recorded, path)
    assert call.value is not None and call.output is not None
    per_head = torch.einsum("bc,hce->bhe", direction, head_weights(attn)[1].to(direction.dtype))
    row = range(call.query.shape[2])[position]
    weights = recorded[path].weights(rows=slice(row, row + 1))[:, :, 0]
    grouped = per_head.unflatten(1, (call.value.shape[1], -1))
    values = torch.einsum("bgre,bgse->bgrs", grouped, call.value.to(grouped.dtype)).flatten(1, 2)
    return (call.output[:, :, row] * per_head).sum(-1), weights * values
