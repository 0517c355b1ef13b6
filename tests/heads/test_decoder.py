"""Heads of decoders: words, states or classes."""

import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.heads import CappedHead, ClassHead, LastPool, decoder_head
from softlook.heads.pooling import readable


def test_each_name_makes_its_head_and_no_other_name_does() -> None:
    table = torch.nn.Embedding(10, 4)
    words = decoder_head("words", 4, 10, classes=2, tied_to=table, softcap=3.0)
    assert isinstance(words, CappedHead) and words.weight is table.weight
    assert isinstance(decoder_head("classes", 4, 10, classes=2), ClassHead)
    assert isinstance(decoder_head("states", 4, 10, classes=2), torch.nn.Identity)
    with pytest.raises(ConfigError, match="heads for words, states and classes; 'tags' came"):
        decoder_head("tags", 4, 10, classes=2)


def test_the_last_token_that_is_there_is_read_wherever_padding_stands() -> None:
    x = torch.arange(8.0).view(1, 4, 2)
    for present, last in (([0, 1, 1, 0], 2), ([0, 0, 1, 1], 3), ([1, 0, 0, 0], 0), ([0, 0, 0, 0], 0)):
        assert LastPool()(x, torch.tensor([present]).bool()).equal(x[:, last])
    assert LastPool()(x).equal(x[:, -1])


def test_what_has_the_id_of_padding_is_not_read_nor_what_is_not_there() -> None:
    ids, present = torch.tensor([[5, 0, 7, 0]]), torch.tensor([[True, True, False, False]])
    assert readable(ids, None, None) is None
    assert readable(ids, present, None) is present
    assert readable(ids, None, 0).tolist() == [[True, False, True, False]]  # pyright: ignore
    assert readable(ids, present, 0).tolist() == [[True, False, False, False]]  # pyright: ignore


def test_capped_scores_keep_their_order_and_stay_below_the_cap() -> None:
    torch.manual_seed(0)
    head = CappedHead(8, 20, cap=2.0)
    x = torch.randn(5, 8)
    plain, capped = torch.nn.functional.linear(x, head.weight), head(x)
    assert capped.abs().max() < 2.0
    assert capped.argsort(-1).equal(plain.argsort(-1))
