"""What a backend made of a mask is kept with it, and never out of date."""

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
from softlook.blocks.beside import MaskBeside
from softlook.ops.masks.prepared import BANDS, on_device, prepared
from tests.asking import DEVICE


class Counted:
    """Makes something, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


def test_the_same_mask_is_prepared_once_for_each_key() -> None:
    for mask in (masks.padding([2, 3]), masks.window(977)):
        make = Counted()
        assert [prepared(mask, "a", 0, make) for _ in range(3)] == [1, 1, 1]
        assert prepared(mask, "b", 0, make) == 2


def test_bands_that_are_equal_share_what_was_made_of_them() -> None:
    make = Counted()
    assert prepared(masks.window(978), "a", 0, make) == prepared(masks.window(978), "a", 0, make) == 1


def test_only_so_much_is_kept_of_bands() -> None:
    make = Counted()
    prepared(masks.window(979), "a", 0, make)
    for width in range(BANDS):
        prepared(masks.window(1000 + width), "a", 0, make)
    prepared(masks.window(979), "a", 0, make)
    assert make.times == BANDS + 2


@pytest.mark.parametrize("mask", [masks.documents(torch.zeros(4).long()), masks.window(980)], ids=str)
def test_kinds_do_not_evict_each_other(mask: masks.Mask) -> None:
    make = Counted()
    for _ in range(3):
        for kind in ("shade", "apart", "blocks"):
            prepared(mask, kind, 0, make)
    assert make.times == 3


def test_two_shapes_in_turn_are_prepared_once_each() -> None:
    make, mask = Counted(), masks.padding([2])
    for _ in range(3):
        for shape in ("self-attention", "cross-attention"):
            prepared(mask, "shade", shape, make)
    assert make.times == 2


WRITES: dict[str, Callable[[np.ndarray, Tensor], object]] = {
    "numpy": lambda array, _: array.fill(1),
    "data": lambda _, tensor: tensor.data.copy_(torch.ones_like(tensor)),
    "in place": lambda _, tensor: tensor.fill_(1),
}
KINDS: dict[str, tuple[list[Any], Callable[[Tensor], masks.Mask]]] = {
    "padding": ([5, 3], masks.padding),
    "left padding": ([5, 3], lambda numbers: masks.padding(numbers, left_of=6)),
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
def test_a_mask_is_a_value_that_later_writes_do_not_reach(kind: str, write: str) -> None:
    numbers, make = KINDS[kind]
    array = np.array(numbers)
    tensor = torch.from_numpy(array)
    mask, apart = make(tensor), make(torch.tensor(numbers))
    query, key, value = torch.randn(3, 2, 1, 6, 8, device=DEVICE)
    wanted = attention(query, key, value, mask=apart, backend="reference")
    for backend in ("sdpa", "blocks", "reference"):
        attention(query, key, value, mask=mask, backend=backend)
    WRITES[write](array, tensor)
    for backend in ("sdpa", "blocks", "reference"):
        torch.testing.assert_close(attention(query, key, value, mask=mask, backend=backend), wanted)


@pytest.mark.parametrize("backend", ["sdpa", "blocks", "reference"])
def test_a_tensor_handed_in_as_a_mask_is_read_in_every_call(backend: Any) -> None:
    seen = torch.ones(6, 6, dtype=torch.bool, device=DEVICE)
    query, key, value = torch.randn(3, 2, 1, 6, 8, device=DEVICE)
    attention(query, key, value, mask=seen, backend=backend)
    seen.data[:, 3:] = False
    after = attention(query, key, value, mask=seen, backend=backend)
    torch.testing.assert_close(after, attention(query, key[:, :, :3], value[:, :, :3], backend="reference"))


def test_a_mask_goes_to_another_device_once() -> None:
    elsewhere = torch.device("meta")
    mask = masks.padding([2, 3])
    assert on_device(mask, elsewhere) is on_device(mask, elsewhere)
    both = [on_device(MaskBeside(masks.causal() & mask, 1), elsewhere) for _ in range(2)]
    inner = [whole.mask.other for whole in both]  # pyright: ignore[reportAttributeAccessIssue]
    assert inner[0] is inner[1] is on_device(mask, elsewhere)
    assert on_device(mask, torch.device("cpu")) is mask


def test_threads_share_what_is_prepared() -> None:
    def work(first: int) -> None:
        for width in range(200):
            prepared(masks.window(first + width), "threads", 0, object)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_what_was_made_dies_with_its_mask() -> None:
    class Thing:
        pass

    mask = masks.padding([1])
    made = prepared(mask, "a", 0, Thing)
    made.mask = mask  # pyright: ignore[reportAttributeAccessIssue]  (as the block mask of the compiled path does)
    watched = weakref.ref(made)
    del mask, made
    gc.collect()
    assert watched() is None
