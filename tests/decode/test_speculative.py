"""Speculative decoding."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import (
    CausalLMSession,
    DraftModel,
    Greedy,
    Multinomial,
    create_session,
    prefix_allowed_tokens,
    prompt_lookup,
    repetition_penalty,
    stream,
)
from softlook.models import GPT, GPTConfig
from tests.models.tiny import CONTEXT, TINY, VOCAB

SAMPLERS = {"greedy": Greedy(), "sample": Multinomial(temperature=0.7, seed=5)}
IDS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6)


def generated_ids(model: Any, prompt: list[int], **more: Any) -> list[int]:
    return [token.id for token in stream(model, prompt, **more)]


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=10)
@given(
    seed=st.integers(0, 10_000),
    prompt=IDS,
    num_tokens=st.integers(1, 5),
    kind=st.sampled_from(["prompt lookup", "other", "same"]),
)
def test_speculative_output_equals_plain_output(
    sampler: str, seed: int, prompt: list[int], num_tokens: int, kind: str
) -> None:
    model = TINY["GPT"].build(seed)
    draft = (
        prompt_lookup(num_tokens=num_tokens)
        if kind == "prompt lookup"
        else DraftModel(TINY["GPT"].build(seed + (kind == "other")), num_tokens)
    )
    common: dict[str, Any] = {
        "sampler": SAMPLERS[sampler],
        "logits_processors": [repetition_penalty(1.1)],
        "eos_ids": 0,
        "max_new_tokens": 10,
    }
    assert generated_ids(model, prompt, draft=draft, **common) == generated_ids(model, prompt, **common)


@pytest.mark.parametrize("name", ["Llama", "Llama through windows", "ConvolutionalLM", "T5", "Transformer"])
def test_rewindable_models_support_drafts(name: str) -> None:
    source = [2, 7, 1, 8] if TINY[name].mode == "encoder-decoder" else None
    for seed in range(4):
        model = TINY[name].build(seed)
        tokens = list(
            stream(model, [3, 1], source=source, max_new_tokens=12, draft=prompt_lookup(max_ngram=2, num_tokens=3))
        )
        assert [token.id for token in tokens] == generated_ids(model, [3, 1], source=source, max_new_tokens=12)


def test_encoder_decoder_draft() -> None:
    source, model, smaller = [2, 7, 1, 8], TINY["Transformer"].build(1), TINY["T5"].build(2)
    draft = DraftModel(create_session(smaller, torch.tensor([source])), num_tokens=3)
    assert generated_ids(model, [3], source=source, max_new_tokens=9, draft=draft) == generated_ids(
        model, [3], source=source, max_new_tokens=9
    )


def test_perfect_draft_is_always_accepted() -> None:
    model = TINY["GPT"].build()
    forward_lengths = record_forward_lengths(model)
    tokens = list(stream(model, [3, 1], max_new_tokens=10, draft=DraftModel(TINY["GPT"].build(), num_tokens=4)))
    assert [token.from_draft for token in tokens] == [True, True, True, True, False] * 2
    assert len(forward_lengths) == 2


def record_forward_lengths(model: Any) -> list[int]:
    forward_lengths: list[int] = []
    model.register_forward_hook(lambda module, args, output: forward_lengths.append(output.shape[1]))
    return forward_lengths


def test_wrong_draft_changes_nothing() -> None:
    model = TINY["GPT"].build()
    right = generated_ids(model, [3, 1], max_new_tokens=8)
    forward_lengths = record_forward_lengths(model)
    tokens = list(stream(model, [3, 1], max_new_tokens=8, draft=lambda ids: [(right[len(ids) - 2] + 1) % VOCAB] * 3))
    assert [token.id for token in tokens] == right and not any(token.from_draft for token in tokens)
    assert len(forward_lengths) == 8


def test_rejected_tokens_do_not_affect_processors() -> None:
    processor = prefix_allowed_tokens(lambda view: [5] if 7 not in view.generated else [])
    assert (
        generated_ids(
            TINY["GPT"].build(), [3], max_new_tokens=4, logits_processors=[processor], draft=lambda ids: [7, 7]
        )
        == [5] * 4
    )


def test_draft_model_switches_between_texts() -> None:
    draft, texts = DraftModel(TINY["GPT"].build(), num_tokens=3), [[3, 1, 4], [3, 1, 4, 1, 5], [3, 1], [9], [3, 1, 4]]
    assert [draft(text) for text in texts] == [DraftModel(TINY["GPT"].build(), num_tokens=3)(text) for text in texts]


def test_draft_stops_at_its_context() -> None:
    short = GPT(GPTConfig(vocab_size=VOCAB, context=4, dim=8, depth=1, heads=1)).eval()
    draft = DraftModel(short, num_tokens=3)
    assert [len(draft([1] * length)) for length in (1, 2, 3, 4, 9)] == [3, 2, 1, 0, 0]
    model = TINY["GPT"].build()
    assert (
        generated_ids(model, [3], draft=draft) == generated_ids(model, [3])
        and len(generated_ids(model, [3])) == CONTEXT - 1
    )


def test_prompt_lookup_uses_the_longest_latest_match() -> None:
    assert list(prompt_lookup(max_ngram=2, num_tokens=3)([1, 2, 9, 1, 2, 7, 2, 5, 1, 2])) == [7, 2, 5]
    assert list(prompt_lookup(max_ngram=3, num_tokens=1)([4, 1, 2, 8, 3, 1, 2, 9, 4, 1, 2])) == [8]
    assert list(prompt_lookup()([1, 2, 3])) == []


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: prompt_lookup(max_ngram=0), "max_ngram >= 1 and num_tokens >= 1, got 0 and 8"),
        (lambda: DraftModel(TINY["GPT"].build(), num_tokens=0), "a draft model needs num_tokens >= 1"),
        (lambda: DraftModel(TINY["TransformerXL"].build()), "TransformerXLSession does not support"),
    ],
    ids=["max_ngram", "num_tokens", "session"],
)
def test_invalid_drafts_raise_errors(create: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create()


def test_crop_restores_the_earlier_state() -> None:
    model, ids = TINY["Llama"].build(), torch.tensor([[3, 1, 4, 1, 5]])
    session = CausalLMSession(model)
    with torch.no_grad():
        session.step(ids)
        session.crop(2)
        torch.testing.assert_close(session.step(ids[:, 3:4]), model(ids[:, :4])[:, -1], atol=1e-5, rtol=1e-5)
