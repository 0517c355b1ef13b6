"""The convolutional language model: causality and receptive field."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError
from softlook.losses import cross_entropy
from softlook.models import ConvolutionalLM, ConvolutionalLMConfig


def small(**changes: Any) -> ConvolutionalLM:
    sizes: dict[str, Any] = {"vocab_size": 11, "dim": 16, "depth": 4, "dilation_cycle": 3, "dropout": 0.0}
    return ConvolutionalLM(ConvolutionalLMConfig(**{**sizes, **changes})).double()


def test_changing_the_future_does_not_change_the_past() -> None:
    model, ids = small(), torch.randint(11, (2, 12))
    changed = ids.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 11
    assert_close(model(ids)[:, :7], model(changed)[:, :7])
    assert (model(ids)[:, 7:] != model(changed)[:, 7:]).any()


def test_a_logit_depends_on_the_tokens_of_the_receptive_field_only() -> None:
    model = small()
    assert model.receptive_field == 1 + (1 + 2 + 4 + 1)
    ids = torch.randint(11, (1, model.receptive_field + 1))
    outside, inside = ids.clone(), ids.clone()
    outside[0, 0] = (ids[0, 0] + 1) % 11
    inside[0, 1] = (ids[0, 1] + 1) % 11
    last = model(ids)[:, -1]
    assert_close(model(outside)[:, -1], last)
    assert (model(inside)[:, -1] - last).abs().max() > 1e-9


def accuracy_on_repetitions(model: ConvolutionalLM) -> float:
    """The accuracy after training on rows with period five."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    accuracy = 0.0
    for _ in range(80):
        ids = torch.randint(11, (64, 5)).repeat(1, 3)
        optimizer.zero_grad()
        scores = model(ids[:, :-1])[:, 4:]
        cross_entropy(scores, ids[:, 5:]).backward()
        optimizer.step()
        accuracy = (scores.argmax(-1) == ids[:, 5:]).double().mean().item()
    return accuracy


def test_it_learns_repetitions_within_its_receptive_field_only() -> None:
    far, near = small(), small(depth=1)
    assert (far.receptive_field, near.receptive_field) == (9, 2)
    assert accuracy_on_repetitions(far) > 0.9
    assert accuracy_on_repetitions(near) < 0.3


def test_embeddings_are_tied_by_default() -> None:
    tied, untied = small(), small(tie_embeddings=False)
    assert tied.lm_head.weight is tied.token_embedding.weight
    assert untied.lm_head.weight is not untied.token_embedding.weight


def test_a_token_id_out_of_range_raises_an_error() -> None:
    with pytest.raises(
        ShapeError, match=r"token ids must be from 0 to 10, got 3 to 11\. Were they made by the tokenizer of"
    ):
        small()(torch.tensor([[3, 11]]))
