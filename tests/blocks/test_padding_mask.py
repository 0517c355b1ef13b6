"""Padding masks combined with attention masks."""

import torch

from softlook import masks
from softlook.blocks.attention import with_padding_mask

PADDING_MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_padding_is_masked() -> None:
    mask = with_padding_mask(PADDING_MASK)
    assert isinstance(mask, masks.Mask)
    visible = mask.to_dense((2, 1, 3, 3)).expand(2, 1, 3, 3)
    assert torch.equal(visible, PADDING_MASK[:, None, None].expand(2, 1, 3, 3))


def test_an_attention_mask_is_combined_with_the_padding_mask() -> None:
    mask = with_padding_mask(PADDING_MASK, masks.causal())
    assert isinstance(mask, masks.Mask)
    expected = PADDING_MASK[:, None, None] & torch.ones(3, 3, dtype=torch.bool).tril()
    assert torch.equal(mask.to_dense((2, 1, 3, 3)), expected)


def test_without_padding_the_mask_is_unchanged() -> None:
    mask = masks.causal()
    assert with_padding_mask(None, mask) is mask
    assert with_padding_mask(None) is None
