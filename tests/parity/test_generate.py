"""Greedy decoding, sampling and logits processors match Hugging Face's, with the same weights."""

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
from transformers.generation import logits_process as reference

from softlook.decode import (
    GenerationOutput,
    LogitsProcessor,
    SequenceView,
    bad_words,
    forced_eos,
    forced_prefix,
    generate,
    min_new_tokens,
    no_repeat_ngram,
    repetition_penalty,
)
from softlook.decode.sampling import Multinomial
from tests.parity.comparison import import_model
from tests.parity.seq2seq import load_both

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
PROCESSORS: dict[str, tuple[dict[str, Any], list[LogitsProcessor]]] = {
    "plain": ({}, []),
    "repetition": ({"repetition_penalty": 1.4}, [repetition_penalty(1.4)]),
    "no repeated unigrams": (
        {"no_repeat_ngram_size": 1},
        [no_repeat_ngram(1)],
    ),  # random weights tend to repeat one token
    "no repeated bigrams": ({"no_repeat_ngram_size": 2}, [no_repeat_ngram(2)]),
    "min_new_tokens": ({"min_new_tokens": 6}, [min_new_tokens(6, END)]),
    "all": (
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 3, "min_new_tokens": 5},
        [repetition_penalty(1.4), no_repeat_ngram(3), min_new_tokens(5, END)],
    ),
}


def run_reference(model: Any, ids: Tensor, max_new_tokens: int, **more: Any) -> tuple[list[int], Tensor]:
    """The new tokens of the reference, without the end-of-sequence token, and its logits."""
    with torch.no_grad():
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1, max_new_tokens=max_new_tokens,
            return_dict_in_generate=True, output_logits=True, **more,
        )  # fmt: skip
    new = output.sequences[0, -len(output.logits) :].tolist()
    return [id for id in new if id != END], torch.cat(output.logits)


def compare(outputs: list[GenerationOutput], expected: list[tuple[list[int], Tensor]]) -> None:
    for output, (ids, logits) in zip(outputs, expected, strict=True):
        assert output.ids == ids
        tokens = output.tokens if output.eos_token is None else [*output.tokens, output.eos_token]
        for token, row in zip(tokens, logits.log_softmax(-1), strict=True):
            assert token.logprob == pytest.approx(row[token.id].item(), abs=1e-4)


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("name", DECODERS)
def test_greedy_decoding_matches_hugging_face(name: str, processors: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    hf_model = DECODERS[name]().eval()
    actual, (settings, own) = import_model(hf_model, tmp_path), PROCESSORS[processors]
    outputs = generate(actual, PROMPTS, logits_processors=own, eos_ids=END, max_new_tokens=12)
    compare(outputs, [run_reference(hf_model, torch.tensor([prompt]), 12, **settings) for prompt in PROMPTS])


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_greedy_translations_match_hugging_face(name: str, processors: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    (actual, hf_model), (settings, own) = load_both(TRANSLATORS[name](), tmp_path), PROCESSORS[processors]
    outputs = generate(actual, [[PAD]] * 3, sources=PROMPTS, logits_processors=own, eos_ids=END, max_new_tokens=12)
    compare(outputs, [run_reference(hf_model, torch.tensor([prompt]), 12, **settings) for prompt in PROMPTS])


def draw_logits(seed: int, rows: int = 4, vocab: int = 40) -> Tensor:
    return 4 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=100)
@given(
    st.integers(0, 10_000),
    st.floats(0.2, 3),
    st.none() | st.integers(1, 50),
    st.none() | st.floats(0.01, 0.99),
    st.none() | st.floats(0.001, 0.9),
)
def test_sampling_probabilities_match_hugging_face(
    seed: int, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    logits, ids = draw_logits(seed), torch.zeros(4, 1, dtype=torch.long)
    warpers = [reference.TemperatureLogitsWarper(temperature)]
    warpers += [] if top_k is None else [reference.TopKLogitsWarper(top_k)]
    warpers += [] if top_p is None else [reference.TopPLogitsWarper(top_p)]
    warpers += [] if min_p is None else [reference.MinPLogitsWarper(min_p)]
    expected = reference.LogitsProcessorList(warpers)(ids, logits)  # pyright: ignore[reportArgumentType]
    actual = Multinomial(temperature, top_k, top_p, min_p).warp_logits(logits)
    torch.testing.assert_close(actual.softmax(-1), expected.softmax(-1), atol=1e-6, rtol=0)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    ids=st.lists(st.lists(st.integers(0, 5), min_size=7, max_size=7), min_size=4, max_size=4),
    prompt=st.integers(1, 6),
)
def test_logits_processors_match_hugging_face(seed: int, ids: list[list[int]], prompt: int) -> None:
    scores, whole = draw_logits(seed, vocab=6), torch.tensor(ids)
    output = [SequenceView(row[:prompt], row[prompt:]) for row in ids]
    pairs: list[tuple[LogitsProcessor, Any]] = [
        (repetition_penalty(1.7), reference.RepetitionPenaltyLogitsProcessor(1.7)),
        (repetition_penalty(0.6), reference.RepetitionPenaltyLogitsProcessor(0.6)),
        *[(no_repeat_ngram(length), reference.NoRepeatNGramLogitsProcessor(length)) for length in (1, 2, 3)],
        (min_new_tokens(4, [0, 3]), reference.MinNewTokensLengthLogitsProcessor(prompt, 4, [0, 3])),
        (bad_words([[1], [2, 3], [0, 0, 1]]), reference.NoBadWordsLogitsProcessor([[1], [2, 3], [0, 0, 1]], None)),
        (forced_eos(8 - prompt, 5), reference.ForcedEOSTokenLogitsProcessor(8, 5)),
    ]
    for actual, expected in pairs:
        torch.testing.assert_close(actual(scores, output), expected(whole, scores.clone()), atol=1e-6, rtol=1e-6)


def test_a_forced_first_token_matches_hugging_face() -> None:
    scores = draw_logits(0, vocab=6)
    expected = reference.ForcedBOSTokenLogitsProcessor(3)(torch.zeros(4, 1, dtype=torch.long), scores.clone())  # pyright: ignore
    assert forced_prefix([3])(scores, [SequenceView([0])] * 4).equal(expected)
