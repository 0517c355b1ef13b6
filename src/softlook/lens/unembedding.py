"""The unembedding of a model: its final norm and head, and the norm as a linear map with frozen statistics."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.norms import RMSNorm, ZeroCenteredRMSNorm


@dataclass(frozen=True, eq=False)
class Unembedding:
    """What follows the last block of a model: final norm, projection, head."""

    norm: nn.Module
    projection: nn.Module
    scale: float
    """A factor before the head, as in T5."""
    head: nn.Module

    def logits(self, residual: Float[Tensor, "B T C"]) -> Tensor:
        """The output of the model for this residual stream."""
        return self.head(self.projection(self.norm(residual)) * self.scale)

    def directions(self, tokens: Int[Tensor, "*n"]) -> Float[Tensor, "*n C"]:
        """The direction of the normed residual stream whose product with it is the logit of a token."""
        if not isinstance(self.head, nn.Linear):
            raise ConfigError(
                f"expected a head that is one linear layer to the vocabulary, got {type(self.head).__name__}"
            )
        rows = at_least_float32(self.head.weight[tokens]) * self.scale
        return rows @ self.projection.weight.to(rows.dtype) if isinstance(self.projection, nn.Linear) else rows

    def bias(self, tokens: Int[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """The bias of the head for a token."""
        bias = getattr(self.head, "bias", None)
        return torch.zeros(tokens.shape, device=tokens.device) if bias is None else bias[tokens]


@dataclass(frozen=True, eq=False)
class FrozenNorm:
    """A norm as a linear map: x times `gain`, of x minus its mean if `centered`, plus `bias`."""

    gain: Float[Tensor, "*B C"]
    centered: bool
    bias: Float[Tensor, " C"] | None

    def pull_back(self, direction: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """The direction of the input whose product with it is that of `direction` with the output, less the bias."""
        scaled = direction * self.gain
        return scaled - scaled.mean(-1, keepdim=True) if self.centered else scaled

    def offset(self, direction: Float[Tensor, "*B C"]) -> Float[Tensor, "*B"]:
        """What the bias adds to the product of `direction` with the output."""
        return torch.zeros_like(direction[..., 0]) if self.bias is None else direction @ self.bias.to(direction.dtype)


def find_unembedding(model: nn.Module) -> Unembedding:
    """The unembedding of a language model, an encoder or the decoder of an encoder-decoder.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4))
    >>> find_unembedding(model).norm is model.final_norm
    True
    """
    stack = find_stack(model)
    head = getattr(model, "lm_head", getattr(model, "head", None))
    if not isinstance(head, nn.Module):
        raise ConfigError(f"{type(model).__name__} has no lm_head or head after its blocks")
    norm, projection = getattr(stack, "final_norm", nn.Identity()), getattr(stack, "project_out", nn.Identity())
    return Unembedding(norm, projection, float(getattr(model, "output_scale", 1.0)), head)


def find_stack(model: nn.Module) -> nn.Module:
    """The module that holds the blocks before the head: the decoder of an encoder-decoder, or else the model."""
    stack = getattr(model, "decoder", model)
    if not isinstance(getattr(stack, "blocks", None), nn.ModuleList):
        raise ConfigError(f"{type(model).__name__} has no list of blocks")
    return stack


def freeze_norm(norm: nn.Module, x: Float[Tensor, "*B C"] | None = None) -> FrozenNorm:
    """A norm as a linear map, with the statistics of the input `x`; without `x`, those of an input of variance 1.

    >>> norm, x = nn.LayerNorm(4), torch.randn(2, 4)
    >>> frozen, direction = freeze_norm(norm, x), torch.randn(2, 4)
    >>> torch.allclose((frozen.pull_back(direction) * x).sum(-1), (direction * norm(x)).sum(-1), atol=1e-6)
    True
    """
    weight = getattr(norm, "weight", None)
    if isinstance(norm, nn.LayerNorm):
        power = None if x is None else at_least_float32(x).var(-1, correction=0, keepdim=True)
    elif isinstance(norm, RMSNorm | ZeroCenteredRMSNorm):
        power = None if x is None else at_least_float32(x).square().mean(-1, keepdim=True)
    else:
        raise ConfigError(f"expected LayerNorm or RMSNorm, got {type(norm).__name__}")
    gain = torch.ones(()) if weight is None else at_least_float32(weight) + isinstance(norm, ZeroCenteredRMSNorm)
    gain = gain if power is None else gain * (power + norm.eps).rsqrt()  # pyright: ignore[reportOperatorIssue]
    return FrozenNorm(gain, isinstance(norm, nn.LayerNorm), getattr(norm, "bias", None))


def at_least_float32(x: Float[Tensor, "*dims"]) -> Float[Tensor, "*dims"]:
    """The tensor in float32, or in float64 as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
