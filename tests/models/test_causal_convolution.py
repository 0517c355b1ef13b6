"""The convolutional language model: the future does not change the past, and its reach is as told."""

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


def test_a_score_depends_on_the_last_reach_ids_and_no_further() -> None:
    model = small()
    assert model.receptive_field == 1 + (1 + 2 + 4 + 1)
    ids = torch.randint(11, (1, model.receptive_field + 1))
    just_beyond, just_within = ids.clone(), ids.clone()
    just_beyond[0, 0] = (ids[0, 0] + 1) % 11
    just_within[0, 1] = (ids[0, 1] + 1) % 11
    last = model(ids)[:, -1]
    assert_close(model(just_beyond)[:, -1], last)
    assert (model(just_within)[:, -1] - last).abs().max() > 1e-9


def right_after_learning_to_repeat_after_five(model: ConvolutionalLM) -> float:
    """The share of ids it says right, after training on rows in which every id comes again after five places."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    right = 0.0
    for _ in range(80):
        ids = torch.randint(11, (64, 5)).repeat(1, 3)
        optimiser.zero_grad()
        scores = model(ids[:, :-1])[:, 4:]
        cross_entropy(scores, ids[:, 5:]).backward()
        optimiser.step()
        right = (scores.argmax(-1) == ids[:, 5:]).double().mean().item()
    return right


def test_it_learns_what_lies_within_its_reach_and_cannot_learn_what_lies_beyond() -> None:
    far, near = small(), small(depth=1)
    assert (far.receptive_field, near.receptive_field) == (9, 2)
    assert right_after_learning_to_repeat_after_five(far) > 0.9
    assert right_after_learning_to_repeat_after_five(near) < 0.3


def test_words_are_read_and_said_with_the_same_vectors_unless_told_otherwise() -> None:
    tied, untied = small(), small(tie_embeddings=False)
    assert tied.lm_head.weight is tied.token_embedding.weight
    assert untied.lm_head.weight is not untied.token_embedding.weight


def test_an_id_it_does_not_know_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"token ids must be from 0 to 10, got 3 to 11\. Were they made by the tokenizer of"
    ):
        small()(torch.tensor([[3, 11]]))
