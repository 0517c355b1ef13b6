"""Hugging Face models with softlook's attention give the same hidden states for all real tokens.

Weights are random. Calls of attention are counted: a model that ignores the registered function would match itself.
"""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from tests.parity.hugging_face import NAME, attention_forward
from tests.parity.hugging_face_models import CASES, VOCABULARY, Case

TOLERANCE = 1e-5
LENGTHS = torch.tensor([4, 9, 7])
WIDTH = 9
PADDINGS = {"decoder": ("none", "right", "left"), "encoder": ("none", "right"), "both": ("none", "right")}
BY_PADDING = [(name, padding) for name, case in CASES.items() for padding in PADDINGS[case.shape]]
DECODERS = [name for name, case in CASES.items() if case.shape == "decoder"]


@pytest.fixture
def called() -> list[nn.Module]:
    """The attention modules that called softlook, in order."""
    modules: list[nn.Module] = []

    def counted(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        modules.append(module)
        return attention_forward(module, *args, **kwargs)

    AttentionInterface.register(NAME, counted)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return modules


def pair(case: Case) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The same weights twice: with transformers' eager attention, and with softlook's."""
    plain, actual = (
        case.model._from_config(deepcopy(case.config), attn_implementation=name).eval() for name in ("eager", NAME)
    )
    actual.load_state_dict(plain.state_dict())
    return plain, actual


def padding_mask(padding: str) -> Tensor:
    """True for real tokens. (B, T)"""
    positions = torch.arange(WIDTH).expand(len(LENGTHS), -1)
    return {
        "none": torch.ones_like(positions, dtype=torch.bool),
        "right": positions < LENGTHS[:, None],
        "left": positions >= WIDTH - LENGTHS[:, None],
    }[padding]


def inputs(case: Case, padding: str) -> dict[str, Tensor]:
    """The inputs of a model; with left padding, explicit positions."""
    mask = padding_mask(padding)
    ids = torch.randint(3, VOCABULARY, mask.shape).masked_fill(~mask, 0)
    batch = {"input_ids": ids} if padding == "none" else {"input_ids": ids, "attention_mask": mask.long()}
    if case.shape == "both":
        batch["decoder_input_ids"] = torch.randint(3, VOCABULARY, (len(LENGTHS), 5))
    if padding == "left":
        batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return batch


def real_states(case: Case, output: Any, padding: str) -> list[Tensor]:
    """The hidden states of real tokens."""
    if case.shape == "both":
        return [output.last_hidden_state, output.encoder_last_hidden_state[padding_mask(padding)]]
    return [output.last_hidden_state[padding_mask(padding)]]


@pytest.mark.parametrize(("name", "padding"), BY_PADDING)
def test_outputs_match_with_softlook_s_attention_inside(name: str, padding: str, called: list[nn.Module]) -> None:
    case = CASES[name]
    plain, actual = pair(case)
    batch = inputs(case, padding)
    with torch.no_grad():
        expected, calls_before = plain(**batch), len(called)
        found = actual(**batch)
    assert calls_before == 0
    assert len(called) == len({id(module) for module in called}) == case.layers
    assert_close(
        real_states(case, found, padding), real_states(case, expected, padding), rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize("name", CASES)
def test_gradients_match_with_softlook_s_attention_inside(name: str, called: list[nn.Module]) -> None:
    case = CASES[name]
    batch = inputs(case, "right")
    gradients = []
    for model in (both := pair(case)):
        states = torch.cat([state.flatten() for state in real_states(case, model(**batch), "right")])
        (states * torch.linspace(-1, 1, len(states))).sum().backward()
        gradients.append({part: weight.grad for part, weight in model.named_parameters() if weight.grad is not None})
    assert len(called) == case.layers
    assert len(gradients[0]) > len(list(both[0].parameters())) / 2
    for part, expected in gradients[0].items():
        assert_close(gradients[1][part], expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()) + 1e-6)


@pytest.mark.parametrize("name", DECODERS)
def test_a_cache_does_not_change_hidden_states(name: str, called: list[nn.Module]) -> None:
    case = CASES[name]
    plain, actual = pair(case)
    ids = torch.randint(3, VOCABULARY, (2, WIDTH))
    with torch.no_grad():
        expected = plain(input_ids=ids).last_hidden_state
        cache, found = None, []
        for part in ids.split([5, 3, 1], 1):
            output = actual(input_ids=part, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            found.append(output.last_hidden_state)
    assert len(called) == 3 * case.layers
    assert_close(torch.cat(found, 1), expected, rtol=TOLERANCE, atol=TOLERANCE)
