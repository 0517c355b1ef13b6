"""Masks, biases and scores as JSON: the name of a known kind, and its fields. A description names no code."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, WeightsError
from softlook.blocks.alignment import AdditiveScore
from softlook.blocks.prefix_keys import PrefixKeysBias, PrefixKeysMask
from softlook.ops.bias import BiasSum, DenseBias
from softlook.ops.masks import base, masks
from softlook.ops.positions import relative_bias
from softlook.ops.scores import Additive, Bilinear, Cosine, Dot, SquaredDistance

KINDS: dict[str, type] = {
    "window": masks.WindowMask,
    "prefix": masks.PrefixMask,
    "padding": masks.PaddingMask,
    "documents": masks.DocumentMask,
    "graph": masks.GraphMask,
    "and": base.And,
    "or": base.Or,
    "not": base.Not,
    "dense": base.DenseMask,
    "prefix_keys": PrefixKeysMask,
    "alibi": relative_bias.ALiBiBias,
    "t5": relative_bias.T5Bias,
    "shaw": relative_bias.ShawBias,
    "transformer_xl": relative_bias.TransformerXLBias,
    "bias_sum": BiasSum,
    "dense_bias": DenseBias,
    "prefix_keys_bias": PrefixKeysBias,
    "dot": Dot,
    "cosine": Cosine,
    "squared_distance": SquaredDistance,
    "bilinear": Bilinear,
    "additive": Additive,
    "additive_score": AdditiveScore,
}
"""Everything that a description may name."""
NAMES = {kind: name for name, kind in KINDS.items()}
Store = Callable[[Tensor], Any]
"""Keeps a tensor, and returns its reference as JSON."""
Fetch = Callable[[Any], Tensor]
"""Returns the tensor of a reference."""


def describe(value: Any, store: Store) -> Any:
    """The JSON description of a mask, a bias or a score; tensors are given to `store`.

    >>> from softlook import masks
    >>> describe(masks.causal() & masks.padding([3, 5]), lambda tensor: tensor.tolist())["other"]
    {'kind': 'padding', 'lengths': {'tensor': [3, 5]}, 'keys': None}
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Tensor):
        return {"tensor": store(value.detach())}
    if isinstance(value, tuple):
        return [describe(item, store) for item in value]
    if type(value) not in NAMES:
        raise ConfigError(
            f"a {type(value).__name__} cannot be saved with a trace: it is a function, and a file holds no code. "
            f"Known kinds are {', '.join(KINDS)}."
        )
    own = {name: describe(getattr(value, name), store) for name in _field_types(type(value))}
    return {"kind": NAMES[type(value)], **own}


def build(description: Any, fetch: Fetch) -> Any:
    """The mask, bias or score of a description; the inverse of `describe`.

    >>> from softlook import masks
    >>> print(build(describe(masks.causal() | masks.prefix(3), list), torch.tensor))
    (causal() | prefix(3))
    """
    if description is None or isinstance(description, bool | int | float):
        return description
    if isinstance(description, list):
        return tuple(build(item, fetch) for item in description)
    if not isinstance(description, Mapping):
        raise WeightsError(f"expected the description of a mask, a bias or a score, got {description!r:.200}")
    if set(description) == {"tensor"}:
        return fetch(description["tensor"])
    kind = KINDS.get(str(description.get("kind")))
    if kind is None:
        raise WeightsError(f"unknown kind {description.get('kind')!r:.200}: expected one of {', '.join(KINDS)}")
    return _make(kind, {name: build(part, fetch) for name, part in description.items() if name != "kind"})


def _make(kind: type, values: dict[str, Any]) -> Any:
    types = _field_types(kind)
    if set(values) != set(types) or not all(_matches(values[name], hint) for name, hint in types.items()):
        raise WeightsError(f"the description of a {NAMES[kind]} is invalid: expected {', '.join(types)}")
    if kind is not AdditiveScore:
        return kind(**values)
    score = AdditiveScore(len(values["vector"]))
    score.vector = nn.Parameter(values["vector"], requires_grad=False)
    return score


def _field_types(kind: Any) -> dict[str, Any]:
    """The fields that a description of this kind has, and their types."""
    if kind is AdditiveScore:  # a module, not a dataclass
        return {"vector": Tensor}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _matches(value: Any, hint: Any) -> bool:
    """Whether a value has the annotated type of a field."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_matches(value, part) for part in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple) and list(map(type, value)) == list(get_args(hint))
    return value is None if hint in (None, NoneType) else isinstance(value, (int, float) if hint is float else hint)


def dense_tensor(mask: base.Mask, sizes: base.Sizes, device: torch.device, limit: int) -> Tensor:
    """A mask that has no description, as a boolean tensor; an error if a head has more than `limit` entries."""
    entries = sizes[2] * sizes[3]
    if entries > limit:
        raise ConfigError(
            f"the mask {mask} is a function, and a file holds no code; its {entries:,} entries are too many to save "
            f"instead. Use a mask of softlook.masks, or at most {limit:,} entries."
        )
    return mask.to_dense(sizes, device)
