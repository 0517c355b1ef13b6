"""What a backend made of a mask, kept for the next layer that is handed the same one."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields
from typing import Any, TypeVar

from torch import Tensor

from softlook.base.tracing import is_traced
from softlook.ops.masks.algebra import Mask
from softlook.ops.masks.kinds import Band

Made = TypeVar("Made")

BANDS = 8
"""How many things made of bands are kept. A band is a value, equal to every other like it, so the oldest has to go."""
_of_bands: OrderedDict[Hashable, Any] = OrderedDict()


def prepared(mask: Mask, key: Hashable, make: Callable[[], Made]) -> Made:
    """What `make` gives, or gave last time for the same mask and key.

    It is kept with the mask and dies with it. A tensor of the mask that was written to since makes it out of date.
    """
    if is_traced(*_tensors(mask)) or any(tensor.is_inference() for tensor in _tensors(mask)):
        return make()
    if isinstance(mask, Band):
        return _kept_band(mask, key, make)
    kept = vars(mask).setdefault("_prepared", {})
    key = (key, tuple(tensor._version for tensor in _tensors(mask)))
    if key not in kept:
        kept.clear()  # one shape at a time: that of the layers of one model
        kept[key] = make()
    return kept[key]


def _kept_band(mask: Band, key: Hashable, make: Callable[[], Made]) -> Made:
    if (mask, key) not in _of_bands:
        _of_bands[mask, key] = make()
        if len(_of_bands) > BANDS:
            _of_bands.popitem(last=False)
    _of_bands.move_to_end((mask, key))
    return _of_bands[mask, key]


def _tensors(mask: Mask) -> Iterator[Tensor]:
    for field in fields(mask):  # pyright: ignore[reportArgumentType]  (every kind of mask is a dataclass)
        part = getattr(mask, field.name)
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, Mask):
            yield from _tensors(part)
