"""Classifier-free guidance: between the model with and without its condition, and beyond."""

import pytest
import torch
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.decode import create_session, generate
from softlook.decode.guidance import GuidedSession, without_position
from softlook.models import GPT, GPTConfig


@pytest.fixture(scope="module")
def model() -> GPT:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=11, context=16, dim=16, depth=2, heads=2)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def guided(model: GPT, scale: float) -> GuidedSession:
    return GuidedSession(create_session(model), create_session(model), scale=scale, position=1)


PROMPTS = [[1, 9, 4, 5], [1, 8]]
WITHOUT = [[1, 4, 5], [1]]


def test_a_scale_of_one_is_the_model_with_its_condition(model: GPT) -> None:
    one, two = (generate(session, PROMPTS, max_new_tokens=6) for session in (guided(model, 1.0), model))
    assert [output.ids for output in one] == [output.ids for output in two]


def test_a_scale_of_zero_is_the_model_without_it(model: GPT) -> None:
    zero = generate(guided(model, 0.0), PROMPTS, max_new_tokens=6)
    assert [output.ids for output in zero] == [output.ids for output in generate(model, WITHOUT, max_new_tokens=6)]


def test_logits_are_extrapolated_from_without_to_with_the_condition(model: GPT) -> None:
    ids = torch.tensor([[1, 9, 4]])
    with torch.no_grad():
        likely, base = (model(row)[:, -1].log_softmax(-1) for row in (ids, ids[:, [0, 2]]))
        assert_close(guided(model, 3.0).step(ids), base + 3 * (likely - base))


def test_the_condition_is_removed_from_every_row_whatever_its_padding() -> None:
    ids = torch.tensor([[0, 0, 1, 7], [1, 7, 4, 5]])
    rows, lengths = without_position(ids, torch.tensor([2, 4]), 1)
    assert rows.tolist() == [[0, 0, 1], [1, 4, 5]]
    assert lengths is not None and lengths.tolist() == [1, 3]


def test_a_negative_scale_is_an_error(model: GPT) -> None:
    with pytest.raises(ConfigError, match="at least 0, got -1"):
        guided(model, -1.0)
