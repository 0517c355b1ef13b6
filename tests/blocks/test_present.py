"""Keys that are there, and where the mask allows."""

import torch

from softlook import masks
from softlook.blocks.present import among

PRESENT = torch.tensor([[True, True, False], [True, False, False]])


def test_only_what_is_present_may_be_looked_at() -> None:
    mask = among(PRESENT)
    assert isinstance(mask, masks.Mask)
    seen = mask.dense((2, 1, 3, 3)).expand(2, 1, 3, 3)
    assert torch.equal(seen, PRESENT[:, None, None].expand(2, 1, 3, 3))


def test_a_mask_hides_more() -> None:
    mask = among(PRESENT, masks.causal())
    assert isinstance(mask, masks.Mask)
    wanted = PRESENT[:, None, None] & torch.ones(3, 3, dtype=torch.bool).tril()
    assert torch.equal(mask.dense((2, 1, 3, 3)), wanted)


def test_where_all_are_present_the_mask_stays_as_it_is() -> None:
    mask = masks.causal()
    assert among(None, mask) is mask
    assert among(None) is None
