"""The cache of a mask's prepared forms: its keys, its bounds and its invalidation."""

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from softlook import attention, masks
from softlook.blocks.prefix_keys import PrefixKeysMask
from softlook.ops.masks.cache import MAX_SHARED, cached, mask_to_device
from tests.ops_cases import DEVICE


class Counted:
    """A factory that counts its calls."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


def test_a_mask_is_cached_per_key() -> None:
    for mask in (masks.padding([2, 3]), masks.window(977)):
        make = Counted()
        assert [cached(mask, "a", 0, make) for _ in range(3)] == [1, 1, 1]
        assert cached(mask, "b", 0, make) == 2


def test_equal_windows_share_their_cache() -> None:
    make = Counted()
    assert cached(masks.window(978), "a", 0, make) == cached(masks.window(978), "a", 0, make) == 1


def test_the_cache_of_windows_is_bounded() -> None:
    make = Counted()
    cached(masks.window(979), "a", 0, make)
    for width in range(MAX_SHARED):
        cached(masks.window(1000 + width), "a", 0, make)
    cached(masks.window(979), "a", 0, make)
    assert make.times == MAX_SHARED + 2


@pytest.mark.parametrize("mask", [masks.documents(torch.zeros(4).long()), masks.window(980)], ids=str)
def test_purposes_do_not_evict_each_other(mask: masks.Mask) -> None:
    make = Counted()
    for _ in range(3):
        for kind in ("additive", "varlen", "tiled"):
            cached(mask, kind, 0, make)
    assert make.times == 3


def test_two_alternating_shapes_are_cached() -> None:
    make, mask = Counted(), masks.padding([2])
    for _ in range(3):
        for shape in ("self-attention", "cross-attention"):
            cached(mask, "additive", shape, make)
    assert make.times == 2


WRITES: dict[str, Callable[[np.ndarray, Tensor], object]] = {
    "numpy": lambda array, _: array.fill(1),
    "data": lambda _, tensor: tensor.data.copy_(torch.ones_like(tensor)),
    "in place": lambda _, tensor: tensor.fill_(1),
}
KINDS: dict[str, tuple[list[Any], Callable[[Tensor], masks.Mask]]] = {
    "padding": ([5, 3], masks.padding),
    "left padding": ([5, 3], lambda numbers: masks.padding(numbers, side="left", length=6)),
    "prefix": ([5, 3], masks.prefix),
    "documents": ([0, 0, 0, 1, 1, 1], masks.documents),
    "documents for both": ([0, 0, 0, 1, 1, 1], lambda numbers: masks.documents(numbers, numbers)),
    "graph": ([[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 0, 0]], masks.graph),
    "dense": ([[[[True, False] * 3]]], lambda seen: masks.dense(seen.bool())),
    "dense expanded": ([[[[True, False] * 3]]], lambda seen: masks.dense(seen.bool().expand(2, 1, 6, 6))),
    "and": ([[[[True, False] * 3]]], lambda seen: masks.window(9, 9) & seen.bool()),
    "or": ([[[[True, False] * 3]]], lambda seen: masks.window(0) | seen.bool()),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", KINDS)
def test_later_writes_do_not_change_a_mask(kind: str, write: str) -> None:
    numbers, make = KINDS[kind]
    array = np.array(numbers)
    tensor = torch.from_numpy(array)
    mask, separate = make(tensor), make(torch.tensor(numbers))
    query, key, value = torch.randn(3, 2, 1, 6, 8, device=DEVICE)
    expected = attention(query, key, value, mask=separate, backend="reference")
    for backend in ("sdpa", "tiled", "reference"):
        attention(query, key, value, mask=mask, backend=backend)
    WRITES[write](array, tensor)
    for backend in ("sdpa", "tiled", "reference"):
        torch.testing.assert_close(attention(query, key, value, mask=mask, backend=backend), expected)


@pytest.mark.parametrize("backend", ["sdpa", "tiled", "reference"])
def test_a_tensor_mask_is_read_in_every_call(backend: Any) -> None:
    seen = torch.ones(6, 6, dtype=torch.bool, device=DEVICE)
    query, key, value = torch.randn(3, 2, 1, 6, 8, device=DEVICE)
    attention(query, key, value, mask=seen, backend=backend)
    seen.data[:, 3:] = False
    after = attention(query, key, value, mask=seen, backend=backend)
    torch.testing.assert_close(after, attention(query, key[:, :, :3], value[:, :, :3], backend="reference"))


def test_a_mask_is_copied_to_a_device_once() -> None:
    elsewhere = torch.device("meta")
    mask = masks.padding([2, 3])
    assert mask_to_device(mask, elsewhere) is mask_to_device(mask, elsewhere)
    both = [mask_to_device(PrefixKeysMask(masks.causal() & mask, 1), elsewhere) for _ in range(2)]
    inner = [whole.mask.other for whole in both]  # pyright: ignore[reportAttributeAccessIssue]
    assert inner[0] is inner[1] is mask_to_device(mask, elsewhere)
    assert mask_to_device(mask, torch.device("cpu")) is mask


def test_threads_share_the_cache() -> None:
    def work(first: int) -> None:
        for width in range(200):
            cached(masks.window(first + width), "threads", 0, object)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_the_cache_is_freed_with_its_mask() -> None:
    class Thing:
        pass

    mask = masks.padding([1])
    made = cached(mask, "a", 0, Thing)
    made.mask = mask  # pyright: ignore[reportAttributeAccessIssue]  (as the block mask of the compiled path does)
    watched = weakref.ref(made)
    del mask, made
    gc.collect()
    assert watched() is None
