"""Values that hold tensors, moved to another device."""

import torch

from softlook import masks, positions
from softlook.base.moving import moved
from softlook.ops.masks.kinds import Padding

META = torch.device("meta")


def test_every_tensor_inside_is_moved() -> None:
    both = moved(masks.padding([1, 2]) & masks.prefix(torch.tensor([1, 1])), META)
    assert both.one.lengths.device == both.other.length.device == META  # pyright: ignore[reportAttributeAccessIssue]
    assert moved(positions.alibi(4), META).slopes.device == META  # pyright: ignore[reportAttributeAccessIssue]


def test_what_is_there_already_is_not_copied() -> None:
    for value in (masks.causal(), masks.padding([1, 2]), positions.alibi(2), torch.zeros(1)):
        assert moved(value, torch.device("cpu")) is value


def test_the_rest_of_a_value_stays_as_it_is() -> None:
    mask = moved(masks.padding([1, 2], left_of=5), META)
    assert isinstance(mask, Padding)
    assert mask.keys == 5
