"""GPT: what it starts from, and what it is told beside the ids."""

import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError
from softlook.base.errors import ConfigError
from softlook.models import GPT, GPTConfig

SMALL = GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2, dropout=0.0, num_class_labels=3)
IDS = torch.tensor([[3, 1, 4, 1]])


def test_its_defaults_are_the_124_million_weights_of_the_smallest_gpt_2() -> None:
    with torch.device("meta"):
        model = GPT(GPTConfig())
    assert sum(parameter.numel() for parameter in model.parameters()) == 124_439_808


def test_it_knows_nothing_at_the_start() -> None:
    torch.manual_seed(0)
    scores = GPT(SMALL)(IDS)
    surprise = -scores.log_softmax(-1)
    assert_close(surprise, torch.full_like(surprise, math.log(10)), atol=0.5, rtol=0)


def test_what_is_added_to_the_residual_path_starts_smaller_the_deeper_it_is() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=256, depth=8, heads=2))
    block = model.blocks[0]
    assert abs(block.attn.to_query.weight.std().item() - 0.02) < 1e-3  # pyright: ignore
    assert abs(block.attn.to_out.weight.std().item() - 0.02 / 4) < 1e-3  # pyright: ignore


def test_words_are_read_and_said_with_the_same_vectors_where_tied() -> None:
    model = GPT(SMALL)
    assert model.lm_head.weight is model.token_embedding.weight
    untied = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2, tie_embeddings=False))
    assert untied.lm_head.weight is not untied.token_embedding.weight


def test_a_label_changes_what_is_said() -> None:
    model = GPT(SMALL)
    plain, one, other = (model(IDS, class_label=label) for label in (None, torch.tensor([0]), torch.tensor([2])))
    assert (one - other).abs().max() > 1e-3
    assert (one - plain).abs().max() > 1e-3


def test_a_label_that_the_model_was_not_made_for_is_an_error() -> None:
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2))
    with pytest.raises(ShapeError, match=r"this model has no class labels \(num_class_labels=0 in its config\): leave"):
        model(IDS, class_label=torch.tensor([0]))


def test_a_sequence_longer_than_the_context_is_an_error() -> None:
    with pytest.raises(
        ShapeError, match=r"positions must be from 0 to 7, got 0 to 8\. The sequence is longer than the"
    ):
        GPT(SMALL)(torch.zeros(1, 9, dtype=torch.long))


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_positions_that_are_not_added_know_distances_alone(positions: Any) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2, dropout=0.0, positions=positions)).eval()
    assert model.position_embedding is None
    assert_close(model(IDS, positions=torch.arange(4) + 100), model(IDS), rtol=1e-3, atol=1e-3)
    assert not torch.allclose(model(IDS)[:, -1], model(IDS[:, [1, 0, 2, 3]])[:, -1], atol=1e-6)


def test_parallel_residuals_add_what_both_layers_make_of_the_same_vector() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2, dropout=0.0, parallel=True)).eval()
    block: Any = model.blocks[0]
    x = torch.randn(2, 4, 16)
    attended, fed = block.attn(block.attn_norm(x)), block.ffn(block.ffn_norm(x))
    assert_close(block(x), x + attended + fed)
    with pytest.raises(ConfigError, match="parallel=True requires norm='pre'"):
        GPT(GPTConfig(parallel=True, norm="post"))
