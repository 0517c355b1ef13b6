"""Words that are chosen as Hugging Face's `generate` chooses them, by the same weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.generation import logits_process as theirs

from softlook.decode import (
    Rule,
    Said,
    end_at,
    forbid,
    forced_prefix,
    generate,
    least,
    no_repeats,
    repetition_penalty,
)
from softlook.decode.picking import Sample
from tests.parity.pairs import both
from tests.parity.weights import read

VOCAB, END, PAD = 31, 2, 10
TOKENS: dict[str, Any] = {"eos_token_id": END, "pad_token_id": PAD, "bos_token_id": 1, "tie_word_embeddings": False}
STACKS: dict[str, Any] = {
    "vocab_size": VOCAB, "max_position_embeddings": 32, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
    **TOKENS, "decoder_start_token_id": PAD, "forced_eos_token_id": None, "init_std": 0.8,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32, "initializer_range": 0.5,
}  # fmt: skip
T5: dict[str, Any] = {
    "decoder_start_token_id": PAD,
    "vocab_size": VOCAB,
    "d_model": 24,
    "d_kv": 6,
    "d_ff": 40,
    "num_layers": 2,
    "num_heads": 4,
}
DECODERS: dict[str, Callable[[], PreTrainedModel]] = {
    "GPT-2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=24, n_layer=2, n_head=4, initializer_range=0.5, **TOKENS)
    ),
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, **TOKENS)),
}
TRANSLATORS: dict[str, Callable[[], PreTrainedModel]] = {
    "T5": lambda: T5ForConditionalGeneration(T5Config(**T5, **TOKENS)),
    "Marian": lambda: MarianMTModel(MarianConfig(**STACKS)),
    "BART": lambda: BartForConditionalGeneration(BartConfig(**STACKS)),
}
PROMPTS = [[5, 3, 8, 1, 9], [4, 4], [6, 0, 7, 3]]
RULES: dict[str, tuple[dict[str, Any], list[Rule]]] = {
    "plain": ({}, []),
    "repetition": ({"repetition_penalty": 1.4}, [repetition_penalty(1.4)]),
    "no word twice": ({"no_repeat_ngram_size": 1}, [no_repeats(1)]),  # random weights like to say one over and over
    "no repeats": ({"no_repeat_ngram_size": 2}, [no_repeats(2)]),
    "least": ({"min_new_tokens": 6}, [least(6, END)]),
    "all": (
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 3, "min_new_tokens": 5},
        [repetition_penalty(1.4), no_repeats(3), least(5, END)],
    ),
}


def their_answer(model: Any, ids: Tensor, longest: int, **more: Any) -> tuple[list[int], Tensor]:
    """What theirs says behind its prompt, without the end, and the raw scores it had."""
    with torch.no_grad():
        said = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1, max_new_tokens=longest,
            return_dict_in_generate=True, output_logits=True, **more,
        )  # fmt: skip
    new = said.sequences[0, -len(said.logits) :].tolist()
    return [id for id in new if id != END], torch.cat(said.logits)


def held_against(answers: list[Any], wanted: list[tuple[list[int], Tensor]]) -> None:
    for answer, (ids, logits) in zip(answers, wanted, strict=True):
        assert answer.ids == ids
        told = answer.tokens if answer.end is None else [*answer.tokens, answer.end]
        for token, row in zip(told, logits.log_softmax(-1), strict=True):
            assert token.log_probability == pytest.approx(row[token.id].item(), abs=1e-4)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("name", DECODERS)
def test_greedy_words_are_those_of_hugging_face(name: str, rules: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    other = DECODERS[name]().eval()
    ours, (settings, own) = read(other, tmp_path), RULES[rules]
    answers = generate(ours, PROMPTS, rules=own, end=END, longest=12)
    held_against(answers, [their_answer(other, torch.tensor([prompt]), 12, **settings) for prompt in PROMPTS])


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_greedy_translations_are_those_of_hugging_face(name: str, rules: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    (ours, other), (settings, own) = both(TRANSLATORS[name](), tmp_path), RULES[rules]
    answers = generate(ours, [[PAD]] * 3, sources=PROMPTS, rules=own, end=END, longest=12)
    held_against(answers, [their_answer(other, torch.tensor([prompt]), 12, **settings) for prompt in PROMPTS])


def drawn(seed: int, rows: int = 4, vocab: int = 40) -> Tensor:
    return 4 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=100)
@given(
    st.integers(0, 10_000),
    st.floats(0.2, 3),
    st.none() | st.integers(1, 50),
    st.none() | st.floats(0.01, 0.99),
    st.none() | st.floats(0.001, 0.9),
)
def test_probabilities_to_draw_by_are_those_of_hugging_face(
    seed: int, temperature: float, k: int | None, p: float | None, least: float | None
) -> None:
    scores, ids = drawn(seed), torch.zeros(4, 1, dtype=torch.long)
    warpers = [theirs.TemperatureLogitsWarper(temperature)]
    warpers += [] if k is None else [theirs.TopKLogitsWarper(k)]
    warpers += [] if p is None else [theirs.TopPLogitsWarper(p)]
    warpers += [] if least is None else [theirs.MinPLogitsWarper(least)]
    wanted = theirs.LogitsProcessorList(warpers)(ids, scores)  # pyright: ignore[reportArgumentType]
    ours = Sample(temperature, k, p, least).warped(scores)
    torch.testing.assert_close(ours.softmax(-1), wanted.softmax(-1), atol=1e-6, rtol=0)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    ids=st.lists(st.lists(st.integers(0, 5), min_size=7, max_size=7), min_size=4, max_size=4),
    prompt=st.integers(1, 6),
)
def test_processed_scores_are_those_of_hugging_face(seed: int, ids: list[list[int]], prompt: int) -> None:
    scores, whole = drawn(seed, vocab=6), torch.tensor(ids)
    said = [Said(row[:prompt], row[prompt:]) for row in ids]
    pairs: list[tuple[Rule, Any]] = [
        (repetition_penalty(1.7), theirs.RepetitionPenaltyLogitsProcessor(1.7)),
        (repetition_penalty(0.6), theirs.RepetitionPenaltyLogitsProcessor(0.6)),
        *[(no_repeats(length), theirs.NoRepeatNGramLogitsProcessor(length)) for length in (1, 2, 3)],
        (least(4, [0, 3]), theirs.MinNewTokensLengthLogitsProcessor(prompt, 4, [0, 3])),
        (forbid([[1], [2, 3], [0, 0, 1]]), theirs.NoBadWordsLogitsProcessor([[1], [2, 3], [0, 0, 1]], None)),
        (end_at(8 - prompt, 5), theirs.ForcedEOSTokenLogitsProcessor(8, 5)),
    ]
    for rule, processor in pairs:
        torch.testing.assert_close(rule(scores, said), processor(whole, scores.clone()), atol=1e-6, rtol=1e-6)


def test_a_forced_first_word_is_that_of_hugging_face() -> None:
    scores = drawn(0, vocab=6)
    wanted = theirs.ForcedBOSTokenLogitsProcessor(3)(torch.zeros(4, 1, dtype=torch.long), scores.clone())  # pyright: ignore
    assert forced_prefix([3])(scores, [Said([0])] * 4).equal(wanted)
