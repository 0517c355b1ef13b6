"""Embeddings of tokens, token types, labels and positions."""

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError, positions
from softlook.embed import LabelEmbedding, LearnedPositions, SinusoidalPositions, TokenEmbedding, TokenTypeEmbedding
from softlook.embed.tokens import add_class_label, add_token_types


def test_token_embedding_is_a_one_hot_vector_times_the_weight() -> None:
    embed, ids = TokenEmbedding(10, 4), torch.tensor([[3, 1], [4, 1]])
    one_hot = torch.nn.functional.one_hot(ids, 10).float()
    assert_close(embed(ids), one_hot @ embed.weight)


def test_scaled_embedding_is_multiplied_by_the_root_of_the_width() -> None:
    plain, scaled = TokenEmbedding(10, 16), TokenEmbedding(10, 16, scale=True)
    scaled.load_state_dict(plain.state_dict())
    ids = torch.tensor([[3, 1]])
    assert_close(scaled(ids), 4 * plain(ids))


def test_rounded_scale_has_the_dtype_of_the_weights() -> None:
    embed = TokenEmbedding(3, 3072, scale=True, round_scale=True).bfloat16()
    assert embed.scale == 55.5  # and not 55.4256
    ids = torch.tensor([[1]])
    assert embed(ids).equal(embed.weight[ids] * torch.tensor(55.5, dtype=torch.bfloat16))
    assert TokenEmbedding(3, 3072, scale=True).bfloat16().scale == pytest.approx(3072**0.5)


def test_an_id_outside_the_vocabulary_raises_an_error_that_mentions_the_tokenizer() -> None:
    with pytest.raises(ShapeError, match=r"from 0 to 9, got 3 to 10\. Were they made by the tokenizer"):
        TokenEmbedding(10, 4)(torch.tensor([[3, 10]]))
    with pytest.raises(ShapeError, match="got -1 to 3"):
        TokenEmbedding(10, 4)(torch.tensor([[3, -1]]))


def test_token_types_add_their_vectors() -> None:
    embed, x = TokenTypeEmbedding(2, 4), torch.randn(1, 3, 4)
    added = add_token_types(x, embed, torch.tensor([[0, 1, 1]])) - x
    assert_close(added[0], embed.weight[[0, 1, 1]])


def test_default_token_type_is_zero() -> None:
    embed, x = TokenTypeEmbedding(2, 4), torch.randn(1, 3, 4)
    assert_close(add_token_types(x, embed, None), add_token_types(x, embed, torch.zeros(1, 3, dtype=torch.long)))


def test_unknown_token_types_raise_an_error() -> None:
    with pytest.raises(ShapeError, match="token types must be from 0 to 1, got 0 to 2"):
        TokenTypeEmbedding(2, 4)(torch.tensor([[0, 1, 2]]))


def test_a_model_without_token_types_takes_none() -> None:
    x = torch.randn(1, 3, 4)
    assert add_token_types(x, None, None) is x
    with pytest.raises(ShapeError, match="has no token types"):
        add_token_types(x, None, torch.tensor([[0, 0, 0]]))


def test_a_class_label_is_one_vector_for_the_whole_sequence() -> None:
    embed = LabelEmbedding(3, 4)
    assert_close(embed(torch.tensor([2, 0])), embed.weight[[2, 0]][:, None])


def test_unknown_class_labels_raise_an_error() -> None:
    with pytest.raises(ShapeError, match="class labels must be from 0 to 2, got 1 to 3"):
        LabelEmbedding(3, 4)(torch.tensor([3, 1]))
    with pytest.raises(ShapeError, match="has no class labels"):
        add_class_label(torch.randn(1, 3, 4), None, torch.tensor([0]))


def test_learned_positions_skip_the_offset() -> None:
    embed = LearnedPositions(8, 4, offset=2)
    assert embed.weight.shape == (10, 4)
    assert_close(embed(torch.tensor([[0, 7]])), embed.weight[[2, 9]][None])


def test_a_position_beyond_the_context_raises_an_error() -> None:
    with pytest.raises(ShapeError, match=r"from 0 to 7, got 6 to 8\. The sequence is longer"):
        LearnedPositions(8, 4)(torch.arange(6, 9))


def test_sinusoidal_positions_match_the_function_in_both_layouts() -> None:
    numbers = torch.tensor([[0, 5, 900]])
    for layout in ("interleaved", "half"):
        assert_close(SinusoidalPositions(6, layout=layout)(numbers), positions.sinusoidal(numbers, 6, layout=layout))
