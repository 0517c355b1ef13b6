"""What a backend made of a mask, kept for the next layer that is handed the same one.

A mask is a value: its tensors are its own (`own_copy`), and nobody writes to them, so nothing that was made of it
can go out of date. What is kept are ordinary tensors, whatever mode the call that made them ran in.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import nullcontext
from dataclasses import fields, replace
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor

from softlook.base.tracing import is_traced
from softlook.ops.masks.algebra import Mask
from softlook.ops.masks.kinds import Band

Made = TypeVar("Made")
Cache = dict[str, OrderedDict[Hashable, Any]]
"""What was made of one mask, or of all bands, for each kind of thing apart."""

BANDS = 8
"""How many things of a kind made of bands are kept. Equal bands are one value: the oldest has to go."""
OTHERS = 2
"""How many things of a kind are kept with any other mask: for self-attention and for cross-attention."""
_band_cache: Cache = {}
_lock = Lock()


def prepared(mask: Mask, kind: str, key: Hashable, make: Callable[[], Made]) -> Made:
    """What `make` gives, or gave before for the same mask, kind and key. It is kept with the mask and dies with it.

    Nothing is kept while compiling, inside a dispatch mode (fake tensors), inside a transform of `torch.func`, or
    while a CUDA graph is captured: such tensors are of no use outside.
    """
    if not is_ordinary():
        return make()
    cache = _band_cache if isinstance(mask, Band) else vars(mask).setdefault("_prepared", {})
    most, key = (BANDS, (mask, key)) if isinstance(mask, Band) else (OTHERS, key)
    with _lock:
        kept = cache.setdefault(kind, OrderedDict())
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
    made = ordinary(make)
    with _lock:
        kept[key] = made
        if len(kept) > most:
            kept.popitem(last=False)
    return made


def on_device(mask: Mask, device: torch.device) -> Mask:
    """The same mask with its tensors on `device`; they are copied there once, not in every call."""
    if all(tensor.device == device for tensor in _tensors(mask)):
        return mask
    kept: dict[torch.device, Mask] = vars(mask).setdefault("_moved", {})
    if device in kept and (is_ordinary() or _is_capturing()):
        return kept[device]
    if not is_ordinary():
        return _moved(mask, device)
    kept[device] = ordinary(lambda: _moved(mask, device))
    return kept[device]


def is_ordinary() -> bool:
    """Would a tensor made here be of use to any later call?"""
    return not is_traced() and not _is_capturing()


def ordinary(make: Callable[[], Made]) -> Made:
    """What `make` gives, as tensors that can be saved for a backward pass: outside of inference mode."""
    with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext(), torch.no_grad():
        return make()


def _is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _moved(mask: Mask, device: torch.device) -> Mask:
    parts = {name: on_device(p, device) if isinstance(p, Mask) else p.to(device) for name, p in _parts(mask)}
    return replace(mask, **parts)  # pyright: ignore[reportArgumentType]  (every kind of mask is a dataclass)


def _tensors(mask: Mask) -> Iterator[Tensor]:
    for _, part in _parts(mask):
        if isinstance(part, Tensor):
            yield part
        else:
            yield from _tensors(part)


def _parts(mask: Mask) -> Iterator[tuple[str, Mask | Tensor]]:
    for field in fields(mask):  # pyright: ignore[reportArgumentType]  (every kind of mask is a dataclass)
        part = getattr(mask, field.name)
        if isinstance(part, Mask | Tensor):
            yield field.name, part
