"""Guess several words ahead, and say the same."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import (
    Continuing,
    Drafting,
    allow,
    likeliest,
    look_up,
    repetition_penalty,
    sample,
    speaker_for,
    stream,
)
from softlook.models import GPT, GPTConfig
from tests.models.tiny import CONTEXT, TINY, VOCAB

PICKS = {"likeliest": likeliest(), "sample": sample(temperature=0.7, seed=5)}
IDS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6)


def said(model: Any, prompt: list[int], **more: Any) -> list[int]:
    return [token.id for token in stream(model, prompt, **more)]


@pytest.mark.parametrize("pick", PICKS)
@settings(max_examples=10)
@given(
    seed=st.integers(0, 10_000), prompt=IDS, ahead=st.integers(1, 5), how=st.sampled_from(["look up", "other", "same"])
)
def test_the_answer_is_the_same_as_without_guesses(
    pick: str, seed: int, prompt: list[int], ahead: int, how: str
) -> None:
    model = TINY["GPT"].build(seed)
    draft = look_up(ahead=ahead) if how == "look up" else Drafting(TINY["GPT"].build(seed + (how == "other")), ahead)
    common: dict[str, Any] = {"pick": PICKS[pick], "rules": [repetition_penalty(1.1)], "end": 0, "longest": 10}
    assert said(model, prompt, draft=draft, **common) == said(model, prompt, **common)


@pytest.mark.parametrize("name", ["Llama", "Llama through windows", "ConvolutionalLM", "T5", "Transformer"])
def test_every_model_that_can_take_words_back_can_guess(name: str) -> None:
    source = [2, 7, 1, 8] if TINY[name].mode == "encoder-decoder" else None
    for seed in range(4):
        model = TINY[name].build(seed)
        guessed = list(stream(model, [3, 1], source=source, longest=12, draft=look_up(longest=2, ahead=3)))
        assert [token.id for token in guessed] == said(model, [3, 1], source=source, longest=12)


def test_a_translator_drafts_for_another_when_it_has_read_the_source() -> None:
    source, model, smaller = [2, 7, 1, 8], TINY["Transformer"].build(1), TINY["T5"].build(2)
    draft = Drafting(speaker_for(smaller, torch.tensor([source])), ahead=3)
    assert said(model, [3], source=source, longest=9, draft=draft) == said(model, [3], source=source, longest=9)


def test_a_draft_that_is_the_model_itself_is_always_right_and_each_look_says_all_of_it() -> None:
    model = TINY["GPT"].build()
    looks = counted(model)
    tokens = list(stream(model, [3, 1], longest=10, draft=Drafting(TINY["GPT"].build(), ahead=4)))
    assert [token.guessed for token in tokens] == [True, True, True, True, False] * 2
    assert len(looks) == 2


def counted(model: Any) -> list[int]:
    looks: list[int] = []
    model.register_forward_hook(lambda module, args, output: looks.append(output.shape[1]))
    return looks


def test_a_draft_that_is_always_wrong_costs_no_word() -> None:
    model = TINY["GPT"].build()
    right = said(model, [3, 1], longest=8)
    looks = counted(model)
    tokens = list(stream(model, [3, 1], longest=8, draft=lambda ids: [(right[len(ids) - 2] + 1) % VOCAB] * 3))
    assert [token.id for token in tokens] == right and not any(token.guessed for token in tokens)
    assert len(looks) == 8


def test_a_wrong_guess_is_never_held_against_the_rules() -> None:
    rule = allow(lambda said: [5] if 7 not in said.new else [])
    assert said(TINY["GPT"].build(), [3], longest=4, rules=[rule], draft=lambda ids: [7, 7]) == [5] * 4


def test_a_draft_can_be_asked_about_one_text_and_then_another() -> None:
    draft, texts = Drafting(TINY["GPT"].build(), ahead=3), [[3, 1, 4], [3, 1, 4, 1, 5], [3, 1], [9], [3, 1, 4]]
    assert [draft(text) for text in texts] == [Drafting(TINY["GPT"].build(), ahead=3)(text) for text in texts]


def test_a_draft_with_a_shorter_context_falls_silent() -> None:
    short = GPT(GPTConfig(vocab=VOCAB, context=4, dim=8, depth=1, heads=1)).eval()
    draft = Drafting(short, ahead=3)
    assert [len(draft([1] * length)) for length in (1, 2, 3, 4, 9)] == [3, 2, 1, 0, 0]
    model = TINY["GPT"].build()
    assert said(model, [3], draft=draft) == said(model, [3]) and len(said(model, [3])) == CONTEXT - 1


def test_what_is_looked_up_is_what_followed_the_longest_and_latest_match() -> None:
    assert list(look_up(longest=2, ahead=3)([1, 2, 9, 1, 2, 7, 2, 5, 1, 2])) == [7, 2, 5]
    assert list(look_up(longest=3, ahead=1)([4, 1, 2, 8, 3, 1, 2, 9, 4, 1, 2])) == [8]
    assert list(look_up()([1, 2, 3])) == []


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: look_up(longest=0), "match 1 at least and guess 1 at least; longest=0, ahead=8 came"),
        (lambda: Drafting(TINY["GPT"].build(), ahead=0), "a draft guesses 1 word at least"),
        (lambda: Drafting(TINY["TransformerXL"].build()), "guesses have to be taken back .* Recurring cannot"),
    ],
    ids=["look up", "ahead", "memory"],
)
def test_what_cannot_guess_is_refused(ask: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ask()


def test_what_is_forgotten_never_came() -> None:
    model, ids = TINY["Llama"].build(), torch.tensor([[3, 1, 4, 1, 5]])
    speaker = Continuing(model)
    with torch.no_grad():
        speaker.next(ids)
        speaker.forget(2)
        torch.testing.assert_close(speaker.next(ids[:, 3:4]), model(ids[:, :4])[:, -1], atol=1e-5, rtol=1e-5)
