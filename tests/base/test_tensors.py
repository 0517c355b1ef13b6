"""Moving values that contain tensors to another device."""

import torch

from softlook import masks, positions
from softlook.base.tensors import to_device
from softlook.ops.masks.masks import PaddingMask

META = torch.device("meta")


def test_every_tensor_of_a_value_is_moved() -> None:
    both = to_device(masks.padding([1, 2]) & masks.prefix(torch.tensor([1, 1])), META)
    assert both.one.lengths.device == both.other.length.device == META  # pyright: ignore[reportAttributeAccessIssue]
    assert to_device(positions.alibi(4), META).slopes.device == META  # pyright: ignore[reportAttributeAccessIssue]


def test_values_on_the_device_are_not_copied() -> None:
    for value in (masks.causal(), masks.padding([1, 2]), positions.alibi(2), torch.zeros(1)):
        assert to_device(value, torch.device("cpu")) is value


def test_other_fields_are_unchanged() -> None:
    mask = to_device(masks.padding([1, 2], side="left", length=5), META)
    assert isinstance(mask, PaddingMask)
    assert mask.keys == 5
