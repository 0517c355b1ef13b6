"""Places that look on: a block worked out for some places alone, which look at a sequence that is left as it is.

What a model reads off one place needs no more of its last block than that place.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.tracing import can_read
from softlook.blocks.attention import Mixing, MultiHead, SelfAttention
from softlook.blocks.block import Block


def look_on(block: Block, own: Float[Tensor, "B T C"], others: Float[Tensor, "B S C"]) -> Float[Tensor, "B T C"]:
    """What a pre-norm block makes of `own`, which look at `others`. With places of a sequence and the whole of it,
    that is what the block makes of those places, and nothing is worked out for the rest.

    >>> from softlook.blocks import FeedForward, PreNorm, SelfAttention
    >>> block = Block(SelfAttention(16, heads=4), FeedForward(16), lambda: PreNorm(nn.LayerNorm(16)))
    >>> x = torch.randn(2, 5, 16)
    >>> torch.testing.assert_close(look_on(block, x[:, :1], x), block(x)[:, :1])
    """
    attend: Any = block.attend
    around: Any = block.around_attend
    look = _from_afar if _is_worth_it(attend, own, others) else _as_ever
    looked = look(attend, around.norm(own), around.norm(others))
    return block.around_feed(own + around.drop(looked), block.feed)


def _as_ever(attend: MultiHead, own: Tensor, others: Tensor) -> Tensor:
    query, (key, value) = attend.queries(own), attend.keys_values(others)
    return attend.join(attend.mix(query, key, value))


def _from_afar(attend: MultiHead, own: Tensor, others: Tensor) -> Tensor:
    """The same without a key or a value for any of the others: q.(W x) is (W'q).x, and a mean of V x is V of the mean.

    A query is taken to where the others are, sees them there as one head that all share, and what it saw comes back.
    A key's bias adds one number to all scores of a query, which a softmax does not see. That of the values counts as
    often as weights are left by dropout: a one beside each of the others counts along.
    """
    D = attend.head_width
    query = attend.split(attend.to_query(own))  # (B, H, T, D)
    (B, H, T, _), C = query.shape, others.shape[-1]
    to_key, to_value = (layer.weight.view(H, D, C) for layer in (attend.to_key, attend.to_value))
    seen_by = (query.transpose(0, 1).reshape(H, B * T, D) * (C / D) ** 0.5) @ to_key  # as wide as C, scaled as D wide
    counted = F.pad(others, (0, 1), value=1.0)[:, None]
    mixed = attend.mix(seen_by.view(H, B, T, C).transpose(0, 1), others[:, None], counted)  # (B, H, T, C + 1)
    seen, count = mixed.transpose(0, 1).reshape(H, B * T, C + 1).split([C, 1], -1)
    # Whole, for where each row begins at another distance from a multiple of 64 bytes, the last bits depend on it.
    value = seen.contiguous() @ to_value.mT
    if attend.to_value.bias is not None:
        value = torch.addcmul(value, count, attend.to_value.bias.view(H, 1, D))
    return attend.join(value.view(H, B, T, D).transpose(0, 1))


def _is_worth_it(attend: nn.Module, own: Tensor, others: Tensor) -> bool:
    """On a CPU, where fewer products are less time; few onlookers; and nothing between queries and keys but a dot."""
    if not can_read(own) or not own.shape[1] or type(attend) is not SelfAttention:
        return False
    layers, mix, (T, C), S = (attend.to_key, attend.to_value), attend.mix, own.shape[1:], others.shape[1]
    plain = type(mix) is Mixing and mix.scale is None and mix.score is None and mix.sink is None
    square = all(type(layer) is nn.Linear and layer.weight.shape == (C, C) for layer in layers)
    heads = C // attend.head_width
    return plain and square and T * (C + heads * S) < S * C
