"""Tokens, labels and positions as vectors."""

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError, positions
from softlook.embed import LabelEmbedding, LearnedPlaces, SinusoidalPlaces, TokenEmbedding


def test_a_token_is_a_row_of_the_table_which_is_a_one_hot_vector_times_it() -> None:
    embed, ids = TokenEmbedding(10, 4), torch.tensor([[3, 1], [4, 1]])
    one_hot = torch.nn.functional.one_hot(ids, 10).float()
    assert_close(embed(ids), one_hot @ embed.table.weight)


def test_a_scaled_token_is_the_root_of_the_width_as_long() -> None:
    plain, scaled = TokenEmbedding(10, 16), TokenEmbedding(10, 16, scaled=True)
    scaled.load_state_dict(plain.state_dict())
    ids = torch.tensor([[3, 1]])
    assert_close(scaled(ids), 4 * plain(ids))


def test_an_id_beyond_the_vocabulary_is_an_error_that_asks_for_the_tokenizer() -> None:
    with pytest.raises(ShapeError, match="knows ids 0 to 9; 3 to 10 came.*tokenizer that belongs to the model"):
        TokenEmbedding(10, 4)(torch.tensor([[3, 10]]))
    with pytest.raises(ShapeError, match="-1 to 3 came"):
        TokenEmbedding(10, 4)(torch.tensor([[3, -1]]))


def test_learned_positions_pass_over_the_offset() -> None:
    places = LearnedPlaces(8, 4, offset=2)
    assert places.table.weight.shape == (10, 4)
    assert_close(places(torch.tensor([[0, 7]])), places.table.weight[[2, 9]][None])


def test_a_position_beyond_the_context_is_an_error() -> None:
    with pytest.raises(ShapeError, match="knows positions 0 to 7; 6 to 8 came. Shorten the sequence."):
        LearnedPlaces(8, 4)(torch.arange(6, 9))


def test_sinusoidal_positions_are_those_of_the_operation_in_either_layout() -> None:
    numbers = torch.tensor([[0, 5, 900]])
    for layout in ("interleaved", "half"):
        assert_close(SinusoidalPlaces(6, layout=layout)(numbers), positions.sinusoidal(numbers, 6, layout=layout))


def test_a_label_is_one_vector_for_the_whole_sequence() -> None:
    embed = LabelEmbedding(3, 4)
    assert_close(embed(torch.tensor([2, 0])), embed.table.weight[[2, 0]][:, None])  # pyright: ignore


def test_a_label_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ShapeError, match="knows labels 0 to 2; 1 to 3 came"):
        LabelEmbedding(3, 4)(torch.tensor([3, 1]))
    with pytest.raises(ShapeError, match="made without labels. Leave label out, or make it with labels="):
        LabelEmbedding(0, 4)(torch.tensor([0]))


def test_a_rounded_scale_is_the_root_of_the_width_in_the_precision_of_the_weights() -> None:
    table = TokenEmbedding(3, 3072, scaled=True, rounded=True).bfloat16()
    assert table.scale == 55.5  # and not 55.4256
    ids = torch.tensor([[1]])
    assert table(ids).equal(table.table(ids) * torch.tensor(55.5, dtype=torch.bfloat16))
    assert TokenEmbedding(3, 3072, scaled=True).bfloat16().scale == pytest.approx(3072**0.5)
