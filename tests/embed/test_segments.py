"""Which sentence of a pair a token belongs to."""

import pytest
import torch

from softlook import ShapeError
from softlook.embed import SegmentEmbedding


def test_a_token_gets_the_vector_of_its_segment() -> None:
    embed, x = SegmentEmbedding(2, 4), torch.randn(1, 3, 4)
    added = embed(x, torch.tensor([[0, 1, 1]])) - x
    torch.testing.assert_close(added[0], embed.table.weight[[0, 1, 1]])  # pyright: ignore


def test_where_nobody_says_all_tokens_are_in_the_first_segment() -> None:
    embed, x = SegmentEmbedding(2, 4), torch.randn(1, 3, 4)
    torch.testing.assert_close(embed(x), embed(x, torch.zeros(1, 3, dtype=torch.long)))


def test_a_segment_that_is_not_there_is_an_error_that_says_which_are() -> None:
    with pytest.raises(ShapeError, match="knows segments 0 to 1; 0 to 2 came"):
        SegmentEmbedding(2, 4)(torch.randn(1, 3, 4), torch.tensor([[0, 1, 2]]))


def test_a_model_without_segments_cannot_be_told_any() -> None:
    with pytest.raises(ShapeError, match="made without segments"):
        SegmentEmbedding(0, 4)(torch.randn(1, 3, 4), torch.tensor([[0, 0, 0]]))
