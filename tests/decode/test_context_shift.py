"""Generation beyond the context of a model."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ConfigError, ShapeError
from softlook.decode import (
    CausalLMSession,
    ContextShift,
    DraftModel,
    Multinomial,
    TransformerXLSession,
    beam_search,
    generate,
    prepack_for_cpu,
    prompt_lookup,
    repetition_penalty,
    stream,
)
from softlook.models import GPT, GPTConfig
from tests.models.tiny import CONTEXT, TINY, VOCAB, Tiny

DECODER_ONLY = [tiny for tiny in TINY.values() if tiny.mode == "decoder-only"]
LIMITED = [
    replace(tiny, config=replace(tiny.config, context=CONTEXT))
    for tiny in DECODER_ONLY
    if hasattr(tiny.config, "context")
]
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5] * 3, [3, 5, 8, 9] * 6, [2] * CONTEXT]
"""Shorter than the context, one short of it, longer, and equal."""
LONG = 3 * CONTEXT
SAMPLER = Multinomial(temperature=1.5, seed=3)


def reference_logprobs(model: Any, prompt: list[int], new: list[int], num_keep: int) -> list[float]:
    """By definition: the whole window is encoded for every token. It restarts with half a context when it is full."""
    window, logprobs = list(prompt), []
    for token in new:
        if len(window) >= CONTEXT:
            window = [*window[:num_keep], *window[-(CONTEXT // 2 - num_keep) :]]
        with torch.no_grad():
            logprobs.append(model(torch.tensor([window]))[0, -1].log_softmax(-1)[token].item())
        window.append(token)
    return logprobs


@pytest.mark.parametrize("num_keep", [0, 2])
@pytest.mark.parametrize("tiny", LIMITED, ids=str)
def test_logprobs_equal_those_of_the_window(tiny: Tiny, num_keep: int) -> None:
    model = tiny.build()
    shift = ContextShift(num_keep=num_keep)
    for prompt, output in zip(
        PROMPTS, generate(model, PROMPTS, sampler=SAMPLER, max_new_tokens=LONG, context_shift=shift), strict=True
    ):
        assert len(output.ids) == LONG and output.finish_reason == "length"
        expected = reference_logprobs(model, prompt, output.ids, num_keep)
        assert [token.logprob for token in output.tokens] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("tiny", DECODER_ONLY, ids=str)
def test_rows_are_independent_of_the_batch(tiny: Tiny) -> None:
    model = tiny.build()
    common: dict[str, Any] = {
        "sampler": SAMPLER,
        "logits_processors": [repetition_penalty(1.2)],
        "eos_ids": (7,) if tiny.name == "GPT" else (),
        "max_new_tokens": LONG,
        "context_shift": ContextShift(),
    }
    outputs = generate(model, PROMPTS, **common)
    for index, (prompt, output) in enumerate(zip(PROMPTS, outputs, strict=True)):
        assert [token.id for token in stream(model, prompt, index=index, **common)] == output.ids


@settings(max_examples=25)
@given(st.integers(1, CONTEXT - 1), st.data())
def test_within_the_context_nothing_changes(length: int, data: st.DataObject) -> None:
    model, prompt = TINY["GPT"].build(), [3] * length
    new = data.draw(st.integers(1, CONTEXT - length))
    shifted = generate(model, [prompt], max_new_tokens=new, context_shift=ContextShift())
    assert shifted == generate(model, [prompt], max_new_tokens=new)


def test_a_higher_limit_continues_the_same_text() -> None:
    model, shift = LIMITED[-1].build(), ContextShift(num_keep=1)
    short, long = (
        generate(model, PROMPTS, sampler=SAMPLER, max_new_tokens=count, context_shift=shift) for count in (20, LONG)
    )
    assert [one.ids for one in short] == [one.ids[:20] for one in long]


@pytest.mark.parametrize("draft", ["prompt lookup", "model"])
def test_speculative_decoding_gives_the_same_tokens(draft: str) -> None:
    model = TINY["GPT"].build()
    function = prompt_lookup() if draft == "prompt lookup" else DraftModel(model, num_tokens=3)
    common: dict[str, Any] = {"max_new_tokens": LONG, "context_shift": ContextShift()}
    tokens = list(stream(model, [3, 1, 4], draft=function, **common))
    assert [token.id for token in tokens] == generate(model, [[3, 1, 4]], **common)[0].ids
    assert any(token.from_draft for token in tokens)


def test_models_optimized_for_cpus_shift_too() -> None:
    model = GPT(GPTConfig(vocab_size=VOCAB, context=CONTEXT, dim=16, depth=2, heads=2)).eval()
    shift = ContextShift()
    expected = generate(model, PROMPTS, max_new_tokens=LONG, context_shift=shift)
    found = generate(prepack_for_cpu(model), PROMPTS, max_new_tokens=LONG, context_shift=shift)
    assert [one.ids for one in found] == [one.ids for one in expected]


def test_the_number_of_forward_passes_grows_by_one_per_half_a_context() -> None:
    model, calls = TINY["GPT"].build(), list[int]()
    model.register_forward_pre_hook(lambda module, args: calls.append(args[0].shape[1]))
    generate(model, PROMPTS, max_new_tokens=LONG, context_shift=ContextShift())
    rounds = [length for length in calls if length > 1]
    # One round ends when the shortest prompt has filled the context; each of the others generates half a context.
    assert len(rounds) == 1 + -(-(LONG - 1) // (CONTEXT // 2))
    assert set(rounds[1:]) == {CONTEXT // 2}


def test_a_session_without_a_maximum_length_needs_no_shift() -> None:
    model = TINY["TransformerXL"].build()
    expected = generate(TransformerXLSession(model, 4), [[3]], max_new_tokens=LONG)
    assert (
        generate(TransformerXLSession(model, 4), [[3]], max_new_tokens=LONG, context_shift=ContextShift()) == expected
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gpt, shift: stream(gpt, [3], context_shift=shift), "there is no maximum length: set max_new_tokens"),
        (
            lambda gpt, shift: stream(CausalLMSession(gpt), [3], max_new_tokens=2, context_shift=shift),
            "needs the model, got a decoding session",
        ),
        (
            lambda gpt, shift: generate(
                TINY["T5"].build(), [[3]], sources=[[1]], max_new_tokens=2, context_shift=shift
            ),
            "context_shift needs a decoder-only model",
        ),
        (
            lambda gpt, shift: generate(
                gpt, [[3]], max_new_tokens=2, context_shift=ContextShift(num_keep=CONTEXT // 2)
            ),
            "needs num_keep from 0 to 7, got num_keep 8 and context 16",
        ),
    ],
    ids=["no limit", "a session", "an encoder-decoder", "too many kept tokens"],
)
def test_invalid_arguments_raise_errors(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call(TINY["GPT"].build(), ContextShift())


def test_beam_search_ends_at_the_context() -> None:
    with pytest.raises(ShapeError, match="The sequence is longer than the model's context"):
        beam_search(CausalLMSession(TINY["GPT"].build()), [[3]], eos_ids=VOCAB, max_new_tokens=LONG, num_beams=2)
