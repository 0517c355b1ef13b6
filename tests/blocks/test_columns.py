"""Blocks of columns: what FT-Transformer's paper says of them."""

import torch
from torch import nn
from torch.testing import assert_close

from softlook.blocks import column_blocks


def test_nothing_is_normed_before_the_first_look_alone() -> None:
    blocks = list(column_blocks(3, 16, heads=4))
    assert [type(block.around_attend.norm) for block in blocks] == [nn.Identity, nn.LayerNorm, nn.LayerNorm]
    assert all(type(block.around_feed.norm) is nn.LayerNorm for block in blocks)


def test_attention_begins_without_biases_and_the_feed_forward_layers_with_some() -> None:
    (block,) = column_blocks(1, 16, heads=4)
    biases = {name: weights for name, weights in block.named_parameters() if name.endswith("bias")}
    assert all(not weights.any() for name, weights in biases.items() if name.startswith("attend."))
    assert all(weights.all() for name, weights in biases.items() if name.startswith("feed."))


def test_a_block_is_four_thirds_as_wide_inside_where_nothing_is_told() -> None:
    (told,) = column_blocks(1, 24, heads=4, hidden=32)
    (untold,) = column_blocks(1, 24, heads=4)
    sizes = [{name: weights.shape for name, weights in block.named_parameters()} for block in (told, untold)]
    assert sizes[0] == sizes[1]


def test_columns_have_no_order() -> None:
    first, second = column_blocks(2, 16, heads=4, attention_dropout=0.5, hidden_dropout=0.5, dropout=0.5).eval()
    x, order = torch.randn(5, 7, 16), torch.randperm(7)
    assert_close(second(first(x[:, order])), second(first(x))[:, order])
