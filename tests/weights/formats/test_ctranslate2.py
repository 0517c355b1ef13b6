"""Export to CTranslate2: its runtime gives the outputs of softlook's models."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ctranslate2 import Generator, Translator
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from softlook.base.errors import WeightsError
from softlook.blocks import KVCache
from softlook.models import GPT, T5, GPTConfig, T5Config, Transformer, TransformerConfig
from softlook.weights import from_hugging_face
from softlook.weights.formats.ctranslate2 import to_ctranslate2

WORDS = ["<s>", "</s>", "<unk>", *"abcdefgh"]
TARGET_WORDS = ["</s>", "<unk>", "<s>", *"ABCDEFGHIJ"]
SENTENCES = tuple(map(list, ("abf", "cchgad", "ebadfgha", "h")))
MAX_NEW_TOKENS = 12


def perturbed(model: nn.Module) -> Any:
    """The model with noise on all weights, so that every one matters."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def transformer(**changes: Any) -> Any:
    fields = {"vocab_size": 11, "context": 32, "dim": 24, "depth": 2, "decoder_depth": 3, "heads": 4}
    return perturbed(Transformer(TransformerConfig(**{**fields, **changes})))


def gpt(**changes: Any) -> Any:
    fields = {"vocab_size": 11, "context": 32, "dim": 24, "depth": 2, "heads": 4, "eps": 1e-3}
    return perturbed(GPT(GPTConfig(**{**fields, **changes})))


def translator(folder: Path) -> Any:
    return Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)


def generator(folder: Path) -> Any:
    return Generator(str(folder), device="cpu", compute_type="float32", intra_threads=1)


def ids(tokens: list[str], vocabulary: list[str]) -> Tensor:
    return torch.tensor([[vocabulary.index(token) for token in tokens]])


@torch.no_grad()
def greedy(step: Any, first: Tensor, end: int) -> list[int]:
    """Greedy decoding up to the end-of-sequence token."""
    output: list[int] = []
    tokens = first
    while len(output) < MAX_NEW_TOKENS:
        token = int(step(tokens)[0, -1].argmax())
        if token == end:
            break
        output.append(token)
        tokens = torch.tensor([[token]])
    return output


def translate_greedy(model: Any, source: Tensor, start: int, end: int) -> list[int]:
    cache, encoded = KVCache(), model.encode(source)
    return greedy(lambda tokens: model.decode(tokens, encoded, cache=cache), torch.tensor([[start]]), end)


def run_translator(runtime: Any, sentence: list[str]) -> list[str]:
    results = runtime.translate_batch(
        [sentence], beam_size=1, max_decoding_length=MAX_NEW_TOKENS, min_decoding_length=0
    )
    return results[0].hypotheses[0]


@torch.no_grad()
def target_logprobs(model: Any, source: Tensor, output: Tensor) -> Tensor:
    """The log-probability of each token after the first."""
    return model(source, output[:, :-1]).log_softmax(-1).gather(-1, output[:, 1:, None])[0, :, 0]


VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre", "activation": "gelu_tanh"},
    "Marian": {"positions": "sinusoidal_half", "activation": "silu", "head_bias": True},
    "BART": {
        "positions": "learned",
        "position_offset": 2,
        "embedding_norm": True,
        "scale_embeddings": False,
        "activation": "gelu",
    },
    "untied": {"tie_embeddings": False, "activation": "tanh"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_ctranslate2_gives_the_same_translations(variant: str, tmp_path: Path) -> None:
    model = transformer(**VARIANTS[variant])
    runtime = translator(to_ctranslate2(model, tmp_path / "written", vocabulary=WORDS))
    compared = 0
    for sentence in SENTENCES:
        expected = [WORDS[word] for word in translate_greedy(model, ids(sentence, WORDS), 0, 1)]
        assert run_translator(runtime, sentence) == expected
        compared += len(expected)
    assert compared  # not all translations are empty


@pytest.mark.parametrize("variant", VARIANTS)
def test_ctranslate2_gives_the_same_logprobs(variant: str, tmp_path: Path) -> None:
    model = transformer(**VARIANTS[variant])
    runtime = translator(to_ctranslate2(model, tmp_path / "written", vocabulary=WORDS))
    source, target = list("abfhg"), list("hhca")
    scored = runtime.score_batch([source], [target])[0]
    expected = target_logprobs(model, ids(source, WORDS), ids(["<s>", *target, "</s>"], WORDS))
    assert scored.tokens == [*target, "</s>"]
    torch.testing.assert_close(torch.tensor(scored.log_probs), expected, rtol=1e-4, atol=1e-4)


def test_source_and_target_may_have_separate_vocabularies(tmp_path: Path) -> None:
    model = transformer(target_vocab_size=13)
    runtime = translator(to_ctranslate2(model, tmp_path / "written", vocabulary=WORDS, target_vocabulary=TARGET_WORDS))
    for sentence in SENTENCES:
        expected = [TARGET_WORDS[word] for word in translate_greedy(model, ids(sentence, WORDS), 2, 0)]
        assert run_translator(runtime, sentence) == expected


def test_a_marian_imported_from_hugging_face_gives_the_same_translations(tmp_path: Path) -> None:
    depths = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "d_model": 24}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 32}
    tokens = {"pad_token_id": 10, "decoder_start_token_id": 10, "eos_token_id": 0, "vocab_size": 11}
    fields: dict[str, Any] = {**depths, **heads, **tokens, "scale_embedding": True, "activation_function": "swish"}
    reference: Any = MarianMTModel(MarianConfig(**fields))
    reference.final_logits_bias.normal_()
    perturbed(reference).save_pretrained(tmp_path / "hf")
    reference = MarianMTModel.from_pretrained(tmp_path / "hf").eval()
    words = ["</s>", "<unk>", *"abcdefgh", "<pad>"]
    written = to_ctranslate2(from_hugging_face(tmp_path / "hf"), tmp_path / "written", vocabulary=words, start="<pad>")
    runtime = translator(written)
    for sentence in SENTENCES:
        source, past = [*sentence, "</s>"], []

        def step(output: Tensor, source: list[str] = source, past: list[Tensor] = past) -> Tensor:
            past.append(output)
            return reference(input_ids=ids(source, words), decoder_input_ids=torch.cat(past, 1)).logits

        assert run_translator(runtime, source) == [words[word] for word in greedy(step, torch.tensor([[10]]), 0)]


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": False, "activation": "relu", "hidden": 40}])
def test_ctranslate2_gives_the_same_continuations_of_a_gpt(changes: dict[str, Any], tmp_path: Path) -> None:
    model = gpt(**changes)
    runtime = generator(to_ctranslate2(model, tmp_path / "written", vocabulary=WORDS))
    for sentence in SENTENCES:
        cache, prompt = KVCache(), ids(sentence, WORDS)
        expected = greedy(lambda tokens, cache=cache: model(tokens, cache=cache), prompt, 1)
        result = runtime.generate_batch(
            [sentence], beam_size=1, max_length=MAX_NEW_TOKENS, min_length=0, include_prompt_in_result=False
        )[0]
        assert result.sequences[0] == [WORDS[word] for word in expected]
        scored = runtime.score_batch([sentence])[0]
        with torch.no_grad():
            logprobs = model(prompt[:, :-1]).log_softmax(-1).gather(-1, prompt[:, 1:, None])[0, :, 0]
        torch.testing.assert_close(torch.tensor(scored.log_probs), logprobs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_exported_too(dtype: torch.dtype, tmp_path: Path) -> None:
    model = gpt().to(dtype)
    runtime = generator(to_ctranslate2(model, tmp_path / "written", vocabulary=WORDS))
    prompt = ids(SENTENCES[2], WORDS)
    with torch.no_grad():
        logprobs = model.float()(prompt[:, :-1]).log_softmax(-1).gather(-1, prompt[:, 1:, None])[0, :, 0]
    scored = runtime.score_batch([SENTENCES[2]])[0]
    torch.testing.assert_close(torch.tensor(scored.log_probs), logprobs, rtol=1e-4, atol=1e-4)


def test_quantized_weights_are_smaller_with_nearly_the_same_outputs(tmp_path: Path) -> None:
    model = transformer(dim=64)
    plain = to_ctranslate2(model, tmp_path / "plain", vocabulary=WORDS)
    small = to_ctranslate2(model, tmp_path / "small", vocabulary=WORDS, quantization="int8")
    assert (small / "model.bin").stat().st_size < 0.4 * (plain / "model.bin").stat().st_size
    source, target = [["a", "b", "f"]], [["h", "c"]]
    one, other = (translator(folder).score_batch(source, target)[0].log_probs for folder in (plain, small))
    torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=0.1, atol=0.5)


def test_the_tokenizer_gives_the_vocabulary_and_is_copied(tmp_path: Path) -> None:
    model: Any = WordLevel({word: number for number, word in enumerate(WORDS[:-2])}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    written = to_ctranslate2(gpt(), tmp_path / "written", tokenizer=tmp_path / "tokenizer.json")
    assert json.loads((written / "vocabulary.json").read_text()) == [*WORDS[:-2], "<unused 9>", "<unused 10>"]
    assert Tokenizer.from_file(str(written / "tokenizer.json")).get_vocab() == tokenizer.get_vocab()
    with pytest.raises(WeightsError, match="the tokenizer has ids up to 8, but the model only up to 4"):
        to_ctranslate2(gpt(vocab_size=5), tmp_path / "other", tokenizer=tmp_path / "tokenizer.json")


def tiny_t5() -> Any:
    return T5(T5Config(vocab_size=11, dim=8, depth=1, heads=2, head_dim=4, hidden=8))


UNSUPPORTED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "another model": (tiny_t5, {}, "supports GPT and Transformer without class labels, got T5"),
    "labels": (lambda: gpt(num_class_labels=2), {}, "without class labels, got GPT with class labels"),
    "no vocabulary": (gpt, {"vocabulary": None}, "give vocabulary= or tokenizer="),
    "too few tokens": (gpt, {"vocabulary": WORDS[:-1]}, "the model has 11 tokens, got 10"),
    "duplicate token": (gpt, {"vocabulary": [*WORDS[:-1], "a"]}, "the token 'a' occurs more than once"),
    "unknown end token": (gpt, {"end": "<eos>"}, "'<eos>' is not in the vocabulary. Give start="),
    "no target vocabulary": (
        lambda: transformer(target_vocab_size=13),
        {},
        "target_vocabulary is required: this model has 13",
    ),
    "one vocabulary": (transformer, {"target_vocabulary": TARGET_WORDS}, "this model has one vocabulary"),
    "other positions": (lambda: gpt(positions="alibi"), {}, "architecture and LM head of GPT-2"),
    "parallel residuals": (lambda: gpt(parallel=True), {}, "architecture and LM head of GPT-2"),
    "embedding projection": (lambda: gpt(embedding_dim=12), {}, "architecture and LM head of GPT-2"),
    "classes": (lambda: gpt(head="classification"), {}, "architecture and LM head of GPT-2"),
    "unknown quantization": (gpt, {"quantization": "int4"}, "quantization must be one of int8, .*, got 'int4'"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_models_raise_an_error_and_leave_nothing_behind(case: str, tmp_path: Path) -> None:
    make, changes, message = UNSUPPORTED[case]
    with pytest.raises(WeightsError, match=message):
        to_ctranslate2(make(), tmp_path / "written", **{"vocabulary": WORDS, **changes})
    assert not list(tmp_path.iterdir())


def test_existing_folders_are_not_overwritten(tmp_path: Path) -> None:
    to_ctranslate2(gpt(), tmp_path / "written", vocabulary=WORDS)
    with pytest.raises(WeightsError, match="already exists"):
        to_ctranslate2(gpt(), tmp_path / "written", vocabulary=WORDS)


def test_the_error_of_a_missing_package_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['ctranslate2'] = None; import softlook.weights\n"
        "try: import softlook.weights.formats.ctranslate2\n"
        "except ImportError as error: print(error)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install softlook[ctranslate2]" in output


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16"])
def test_quantized_export_does_not_change_the_model(quantization: Any, tmp_path: Path) -> None:
    model = transformer()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    to_ctranslate2(model, tmp_path / "written", vocabulary=WORDS, quantization=quantization)
    for name, tensor in model.state_dict().items():
        assert tensor.equal(before[name]), name
