"""Attention for one word at a time: what the plain modules do, with fewer steps where nothing else is asked for.

They take the places of `SelfAttention` and `CrossAttention` in a copy of a model. Whenever more is asked for (a mask
beyond the past, a bias, several words at once, someone who watches the look-up) they do all that the plain ones do.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.blocks.attention import CrossAttention, Mixing, SelfAttention
from softlook.blocks.branches import Branch
from softlook.blocks.memory import KeyValue, LayerMemory
from softlook.blocks.sharing import folded, look_together, unfolded
from softlook.embed.places import SinusoidalPlaces
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask, causal
from softlook.ops.positions.rotary import Phases, rotary

CAUSAL = causal()
KEPT = 512
"""Positions that are worked out beforehand."""


class LeanSelf(nn.Module):
    """A sequence looks at itself; queries, keys and values come out of one layer."""

    def __init__(self, plain: SelfAttention, joined: nn.Module, to_out: nn.Module) -> None:
        super().__init__()
        self.width, self.mix = plain.head_width, plain.mix
        self.heads = plain.to_query.out_features // self.width
        self.kv_heads = plain.to_key.out_features // self.width
        self.scale, self.joined, self.to_out = scale_of(plain.mix, self.width), joined, to_out

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        phases: Phases | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        several = self.joined(x)
        if isinstance(memory, Branch) and self._is_simple(x, mask, bias, phases, memory):
            heads = several.view(-1, memory.whole.ways, self.heads + 2 * self.kv_heads, self.width)
            return self.to_out(memory.look(heads, self.kv_heads, self.scale).unsqueeze(1))
        several = several.unflatten(-1, (-1, self.width))  # (B, T, H + 2G, D)
        query, key, value = several.transpose(1, 2).split((self.heads, self.kv_heads, self.kv_heads), 1)
        if phases is not None:
            query, key = rotary(query, phases), rotary(key, phases)
        if memory is not None:
            key, value = memory.extend(key, value)
        return self.to_out(self.mix(query, key, value, mask, bias).transpose(1, 2).flatten(-2))

    def _is_simple(
        self,
        x: Tensor,
        mask: Mask | Tensor | None,
        bias: Bias | Tensor | None,
        phases: Phases | None,
        memory: Branch,
    ) -> bool:
        """One more word of several ways, which see all of their past."""
        if phases is not None or memory.whole.paths is None or x.shape[1] != 1 or watched(self.mix):
            return False
        return bias is None and (mask is None or mask == CAUSAL)


class LeanCross(nn.Module):
    """A sequence looks at another one, which several may share; the other's keys and values come out of one layer."""

    def __init__(self, plain: CrossAttention, joined: nn.Module, to_query: nn.Module, to_out: nn.Module) -> None:
        super().__init__()
        self.width, self.mix = plain.head_width, plain.mix
        self.heads = plain.to_query.out_features // self.width
        self.scale, self.joined, self.to_query, self.to_out = scale_of(plain.mix, self.width), joined, to_query, to_out

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        other: Float[Tensor, "N S _"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        key, value = self._keys_values(other) if memory is None else memory.recall(lambda: self._keys_values(other))
        query = self.to_query(x)
        if x.shape[1] == 1 and mask is None and bias is None and not watched(self.mix):
            rows = query.view(len(key), len(query) // len(key), -1, self.width).transpose(1, 2)
            return self.to_out(look_together(rows, key, value, allowed=None, scale=self.scale).unsqueeze(1))
        query = query.unflatten(-1, (-1, self.width)).transpose(1, 2)
        if len(key) == len(query):
            mixed = self.mix(query, key, value, mask, bias)
        else:
            mixed = unfolded(self.mix(folded(query, len(key)), key, value, mask, bias), len(query))
        return self.to_out(mixed.transpose(1, 2).flatten(-2))

    def _keys_values(self, other: Tensor) -> KeyValue:
        """They are looked at again and again: once laid out one after the other, every look is faster."""
        key, value = self.joined(other).unflatten(-1, (-1, self.width)).transpose(1, 2).chunk(2, 1)
        return key.contiguous(), value.contiguous()


class KeptPlaces(nn.Module):
    """Positions that are worked out once, and looked up from then on."""

    def __init__(self, plain: SinusoidalPlaces) -> None:
        super().__init__()
        self.plain, self.table = plain, plain(torch.arange(KEPT))

    def forward(self, places: Int[Tensor, "*places"]) -> Float[Tensor, "*places C"]:
        known = places.numel() > 0 and int(places.max()) < KEPT and int(places.min()) >= 0
        return self.table[places] if known else self.plain(places)


def scale_of(mix: nn.Module, width: int) -> float:
    assert isinstance(mix, Mixing)
    return width**-0.5 if mix.scale is None else mix.scale


def watched(mix: nn.Module) -> bool:
    """Does anybody want to see or change what goes in or comes out?"""
    return bool(mix._forward_hooks or mix._forward_pre_hooks)
