"""What a backend made of a mask is kept with it, and never out of date."""

import gc
import weakref

import torch

from softlook import attention, masks
from softlook.ops.masks.prepared import BANDS, prepared
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
        assert [prepared(mask, "a", make) for _ in range(3)] == [1, 1, 1]
        assert prepared(mask, "b", make) == 2


def test_bands_that_are_equal_share_what_was_made_of_them() -> None:
    make = Counted()
    assert prepared(masks.window(978), "a", make) == prepared(masks.window(978), "a", make) == 1


def test_only_so_much_is_kept_of_bands() -> None:
    make = Counted()
    prepared(masks.window(979), "a", make)
    for width in range(BANDS):
        prepared(masks.window(1000 + width), "a", make)
    prepared(masks.window(979), "a", make)
    assert make.times == BANDS + 2


def test_lengths_that_are_written_to_change_the_answer() -> None:
    lengths = torch.tensor([1, 1], device=DEVICE)
    mask = masks.padding(lengths)
    query, key, value = torch.randn(3, 2, 1, 4, 8, device=DEVICE)
    before = attention(query, key, value, mask=mask, backend="sdpa")
    lengths.fill_(3)
    after = attention(query, key, value, mask=mask, backend="sdpa")
    assert not before.allclose(after)
    torch.testing.assert_close(after, attention(query, key, value, mask=mask, backend="reference"))


def test_what_was_made_dies_with_its_mask() -> None:
    class Thing:
        pass

    mask = masks.padding([1])
    made = prepared(mask, "a", Thing)
    made.mask = mask  # pyright: ignore[reportAttributeAccessIssue]  (as the block mask of the compiled path does)
    watched = weakref.ref(made)
    del mask, made
    gc.collect()
    assert watched() is None
