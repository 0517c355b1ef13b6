"""GPT: initialization, class labels, positions and parallel blocks."""

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


def test_the_defaults_have_the_124_million_parameters_of_the_smallest_gpt_2() -> None:
    with torch.device("meta"):
        model = GPT(GPTConfig())
    assert sum(parameter.numel() for parameter in model.parameters()) == 124_439_808


def test_a_new_model_predicts_all_tokens_with_equal_probability() -> None:
    torch.manual_seed(0)
    logits = GPT(SMALL)(IDS)
    loss = -logits.log_softmax(-1)
    assert_close(loss, torch.full_like(loss, math.log(10)), atol=0.5, rtol=0)


def test_residual_projections_are_initialized_smaller_in_deeper_models() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=256, depth=8, heads=2))
    block = model.blocks[0]
    assert abs(block.attn.to_query.weight.std().item() - 0.02) < 1e-3  # pyright: ignore
    assert abs(block.attn.to_out.weight.std().item() - 0.02 / 4) < 1e-3  # pyright: ignore


def test_embeddings_are_tied_unless_disabled() -> None:
    model = GPT(SMALL)
    assert model.lm_head.weight is model.token_embedding.weight
    untied = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2, tie_embeddings=False))
    assert untied.lm_head.weight is not untied.token_embedding.weight


def test_a_class_label_changes_the_logits() -> None:
    model = GPT(SMALL)
    plain, one, other = (model(IDS, class_label=label) for label in (None, torch.tensor([0]), torch.tensor([2])))
    assert (one - other).abs().max() > 1e-3
    assert (one - plain).abs().max() > 1e-3


def test_a_class_label_for_a_model_without_labels_raises_an_error() -> None:
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2))
    with pytest.raises(ShapeError, match=r"this model has no class labels \(num_class_labels=0 in its config\): leave"):
        model(IDS, class_label=torch.tensor([0]))


def test_a_sequence_longer_than_the_context_raises_an_error() -> None:
    with pytest.raises(
        ShapeError, match=r"positions must be from 0 to 7, got 0 to 8\. The sequence is longer than the"
    ):
        GPT(SMALL)(torch.zeros(1, 9, dtype=torch.long))


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_relative_positions_are_invariant_to_a_shift(positions: Any) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2, dropout=0.0, positions=positions)).eval()
    assert model.position_embedding is None
    assert_close(model(IDS, positions=torch.arange(4) + 100), model(IDS), rtol=1e-3, atol=1e-3)
    assert not torch.allclose(model(IDS)[:, -1], model(IDS[:, [1, 0, 2, 3]])[:, -1], atol=1e-6)


def test_a_parallel_block_feeds_both_layers_from_its_input() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2, dropout=0.0, parallel=True)).eval()
    block: Any = model.blocks[0]
    x = torch.randn(2, 4, 16)
    assert_close(block(x), x + block.attn(block.attn_norm(x)) + block.ffn(block.ffn_norm(x)))
    with pytest.raises(ConfigError, match="parallel=True requires norm='pre'"):
        GPT(GPTConfig(parallel=True, norm="post"))
