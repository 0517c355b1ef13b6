"""Cache of tensors derived from masks, shared by layers.

Masks are immutable (`clone_detached`), so what is derived from one never goes stale. Cached tensors are ordinary ones,
whatever mode the call that built them ran in.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor

from softlook.base.tensors import is_traced
from softlook.ops.masks.base import Mask

Derived = TypeVar("Derived")
Cache = dict[str, OrderedDict[Hashable, Any]]
"""What was derived from one mask, or from all masks with a `shared_key`, by purpose."""

MAX_SHARED = 8
"""Entries per purpose for masks that are equal by value: the least recently used is evicted."""
MAX_CACHED_PER_MASK = 2
"""Entries per purpose for any other mask: for self-attention and for cross-attention."""
_shared_cache: Cache = {}
_lock = Lock()


def cached(
    mask: Mask, purpose: str, key: Hashable, build: Callable[[], Derived], *, like: Tensor | None = None
) -> Derived:
    """Return `build()`, or its earlier result for the same mask, purpose and key. Results live as long as the mask.

    Nothing is cached while compiling, inside a dispatch mode (fake tensors), inside a `torch.func` transform, or while
    a CUDA graph is captured: such tensors are useless outside. The same holds where `like` is not a plain tensor.
    """
    if not (can_cache() if like is None else can_cache(like)):
        return build()
    if mask.shared_key is not None:
        cache, key, limit = _shared_cache, (mask.shared_key, key), MAX_SHARED
    else:
        cache, limit = vars(mask).setdefault("_cache", {}), MAX_CACHED_PER_MASK
    entries = cache.get(purpose)
    if entries is None:
        entries = cache.setdefault(purpose, OrderedDict())
    else:
        with _lock:
            if key in entries:
                entries.move_to_end(key)
                return entries[key]
    derived = without_inference_mode(build)
    with _lock:
        entries[key] = derived
        if len(entries) > limit:
            entries.popitem(last=False)
    return derived


def mask_to_device(mask: Mask, device: torch.device) -> Mask:
    """Return the mask with its tensors on `device`; they are copied once, not in every call."""
    if _is_on(mask, device):
        return mask
    copies: dict[torch.device, Mask] = vars(mask).setdefault("_copies", {})
    if device in copies and (can_cache() or _is_capturing()):
        return copies[device]
    if not can_cache():
        return _copy_to(mask, device)
    copies[device] = without_inference_mode(lambda: _copy_to(mask, device))
    return copies[device]


def can_cache(*tensors: Tensor) -> bool:
    """Return whether a tensor created here, or from these, is valid in later calls."""
    return not is_traced(*tensors) and not _is_capturing()


def without_inference_mode(build: Callable[[], Derived]) -> Derived:
    """Return `build()`, built outside of inference mode: tensors that can be saved for backward."""
    if not torch.is_inference_mode_enabled():
        return build()
    with torch.inference_mode(False):
        return build()


def _is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _copy_to(mask: Mask, device: torch.device) -> Mask:
    parts = {name: mask_to_device(p, device) if isinstance(p, Mask) else p.to(device) for name, p in _parts(mask)}
    return replace(mask, **parts)  # pyright: ignore[reportArgumentType]  (every mask is a dataclass)


def _is_on(mask: Mask, device: torch.device) -> bool:
    for part in vars(mask).values():
        if isinstance(part, Tensor):
            if part.device != device:
                return False
        elif isinstance(part, Mask) and not _is_on(part, device):
            return False
    return True


def _parts(mask: Mask) -> list[tuple[str, Mask | Tensor]]:
    """The masks and tensors among a mask's fields."""
    return [(name, part) for name, part in vars(mask).items() if isinstance(part, Mask | Tensor)]
