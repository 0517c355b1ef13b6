"""The language model of fast weights: both rules, generation with constant memory, and learning."""

from typing import Literal

import pytest
import torch
from torch.testing import assert_close

from softlook.decode import create_session, generate
from softlook.decode.sessions import FastWeightSession
from softlook.losses import cross_entropy
from softlook.models import FastWeightLM, FastWeightLMConfig

Rule = Literal["sum", "delta"]
RULES: tuple[Rule, ...] = ("sum", "delta")


def small(rule: Rule, depth: int = 2) -> FastWeightLM:
    torch.manual_seed(0)
    return FastWeightLM(FastWeightLMConfig(vocab_size=11, dim=32, depth=depth, heads=2, rule=rule, dropout=0.0))


@pytest.mark.parametrize("rule", RULES)
def test_generation_from_a_state_matches_generation_from_all_tokens(rule: Rule) -> None:
    model, prompts = small(rule).eval(), [[1, 2, 3, 4, 5], [6, 7]]
    outputs = generate(create_session(model), prompts, max_new_tokens=12)
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = list(prompt)
        for _ in range(12):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
        assert output.ids == ids[len(prompt) :]


@pytest.mark.parametrize("rule", RULES)
def test_a_session_holds_the_same_memory_after_any_number_of_tokens(rule: Rule) -> None:
    session, sizes = create_session(small(rule)), set()
    assert isinstance(session, FastWeightSession) and session.max_length is None
    for _ in range(20):
        session.step(torch.tensor([[3]]))
        sizes.add(sum(layer.weights.numel() for layer in session.cache.layers if layer.weights is not None))
    assert sizes == {2 * 2 * 16 * 16} and session.cache.length == 20


def test_logits_of_the_last_positions_are_those_of_all() -> None:
    model, ids = small("delta"), torch.randint(11, (2, 6))
    assert_close(model(ids, logits_to_keep=2), model(ids)[:, -2:])


@pytest.mark.parametrize("rule", RULES)
def test_it_learns_a_cycle(rule: Rule) -> None:
    """The next token depends on the last one only: five steps around a circle of eleven."""
    model = small(rule, depth=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ids = (torch.arange(11)[:, None] + 5 * torch.arange(8)) % 11
    for _ in range(40):
        optimizer.zero_grad()
        cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        optimizer.step()
    assert (model(ids[:, :-1]).argmax(-1) == ids[:, 1:]).all()
