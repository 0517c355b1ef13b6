"""Translation models of Hugging Face, from folder to text: the library and the server match `generate`."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from softlook.base.errors import ConfigError
from softlook.cli import main
from softlook.decode.generation_config import default_max_new_tokens
from softlook.recipes.inference import load_pipeline, translate
from softlook.serve.app import create_app
from softlook.serve.loaded_model import load_model
from softlook.serve.registry import ModelRegistry

VOCAB = 40
WORDS = [f"<{number}>" for number in range(VOCAB)]
TEXTS = ["<5> <6> <7> <8>", "<9>", "<11> <4> <30> <12> <5> <5> <18> <20> <21>"]
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "max_position_embeddings": 64, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
}  # fmt: skip
T5_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 24, "d_kv": 6, "num_layers": 2, "num_heads": 4, "d_ff": 40,
    "tie_word_embeddings": False,
}  # fmt: skip
MARIAN: dict[str, Any] = {"scale_embedding": True, "pad_token_id": 39, "decoder_start_token_id": 39, "eos_token_id": 0}
BART: dict[str, Any] = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
T5: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
KINDS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "Marian": (
        lambda: MarianMTModel(MarianConfig(**SIZES, **MARIAN)),
        "$A <0>",
        {
            "bad_words_ids": [[39]],
            "forced_eos_token_id": 0,
            "renormalize_logits": True,
            "num_beams": 4,
            "max_length": 64,
        },
    ),
    "BART": (
        lambda: BartForConditionalGeneration(BartConfig(**SIZES, **BART)),
        "<0> $A <2>",
        {
            "forced_bos_token_id": 0,
            "forced_eos_token_id": 2,
            "no_repeat_ngram_size": 2,
            "num_beams": 3,
            "min_length": 5,
            "length_penalty": 2.0,
            "max_length": 20,
        },
    ),
    "T5": (
        lambda: T5ForConditionalGeneration(T5Config(**T5_SIZES, **T5)),
        "$A <1>",
        {"repetition_penalty": 1.3},
    ),
}


def word_tokenizer(template: str) -> Tokenizer:
    """A tokenizer with one word per id and the special tokens of the template."""
    tokenizer = Tokenizer(WordLevel({word: id for id, word in enumerate(WORDS)}, "<3>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    special_tokens = [(word, WORDS.index(word)) for word in template.split() if word.startswith("<")]
    tokenizer.add_special_tokens([word for word, _ in special_tokens])
    processor = TemplateProcessing(single=template, special_tokens=special_tokens)
    tokenizer.post_processor = processor  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def folder_of(kind: str, folder: Path) -> tuple[Path, Any, Any]:
    """A folder written by `save_pretrained`, and its model and tokenizer."""
    make, template, generation = KINDS[kind]
    torch.manual_seed(3)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # so that scores and lengths differ clearly
            parameter.add_(torch.randn_like(parameter) * 0.3)
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(template), pad_token=WORDS[model.config.pad_token_id]
    )
    tokenizer.save_pretrained(folder)
    again = type(model).from_pretrained(folder).eval()
    return folder, again, PreTrainedTokenizerFast.from_pretrained(folder)


def run_reference(model: Any, tokenizer: Any, text: str, **changes: Any) -> tuple[list[str], list[float]]:
    """Texts and scores of `generate` with the folder's generation config; softlook's length limit if it has none."""
    encoded = tokenizer([text], return_tensors="pt")
    config = model.generation_config
    is_limited = config.max_length is not None or config.max_new_tokens is not None
    limit = {} if is_limited else {"max_new_tokens": default_max_new_tokens(encoded["input_ids"].shape[1])}
    with torch.no_grad():
        output = model.generate(
            encoded["input_ids"], attention_mask=encoded["attention_mask"], do_sample=False,
            return_dict_in_generate=True, output_scores=True, **limit, **changes,
        )  # fmt: skip
    scores = [] if output.get("sequences_scores") is None else output.sequences_scores.tolist()
    return tokenizer.batch_decode(output.sequences, skip_special_tokens=True), scores


@pytest.mark.parametrize("kind", KINDS)
def test_translations_of_the_library_and_the_server_match_hugging_face(kind: str, tmp_path: Path) -> None:
    folder, reference, tokenizer = folder_of(kind, tmp_path)
    pipeline = load_pipeline(folder, device="cpu")
    expected = [run_reference(reference, tokenizer, text)[0][0] for text in TEXTS]
    assert len({*expected}) == len(TEXTS) and all(expected)
    assert [one.text for one in translate(pipeline, TEXTS)] == expected
    registry = ModelRegistry([load_model(folder, "hf")])
    client = TestClient(create_app(registry), base_url="http://localhost")
    found = client.post("/v1/translate", json={"model": "hf", "text": TEXTS}).json()["data"]
    registry.close()
    assert [one["text"] for one in found] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_n_best_translations_and_their_scores_match_hugging_face(kind: str, tmp_path: Path) -> None:
    folder, reference, tokenizer = folder_of(kind, tmp_path)
    found = translate(load_pipeline(folder, device="cpu"), TEXTS, num_beams=4, n_best=4)
    for text, one in zip(TEXTS, found, strict=True):
        expected, scores = run_reference(reference, tokenizer, text, num_beams=4, num_return_sequences=4)
        assert [candidate.text for candidate in one.candidates] == expected
        assert [candidate.score for candidate in one.candidates] == pytest.approx(scores, abs=1e-3)


def test_sources_end_with_eos_even_if_the_tokenizer_adds_no_special_tokens(tmp_path: Path) -> None:
    folder, _, _ = folder_of("Marian", tmp_path)
    expected = translate(load_pipeline(folder, device="cpu"), TEXTS)
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(content | {"post_processor": None}))
    assert [one.text for one in translate(load_pipeline(folder, device="cpu"), TEXTS)] == [one.text for one in expected]


def test_a_truncated_translation_reports_its_finish_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _, _ = folder_of("Marian", tmp_path)
    whole = translate(load_pipeline(folder, device="cpu"), TEXTS)
    content = json.loads((folder / "generation_config.json").read_text())
    content = {**content, "max_length": 3, "min_length": 0, "forced_eos_token_id": None}
    (folder / "generation_config.json").write_text(json.dumps(content))
    truncated = translate(load_pipeline(folder, device="cpu"), TEXTS)
    assert {one.candidates[0].finish_reason for one in truncated} == {"length"}
    assert any(one.text != other.text for one, other in zip(truncated, whole, strict=True))
    commands = ((("translate", str(folder), *TEXTS), True), (("translate", "dates", "3 mars 2022"), False))
    for command, is_reported in commands:
        with pytest.raises(SystemExit):
            main([*command, "--device", "cpu"])
        assert ("truncated at the length limit" in capsys.readouterr().err) is is_reported


def test_unsupported_generation_config_fields_raise_an_error(tmp_path: Path) -> None:
    folder, _, _ = folder_of("Marian", tmp_path)
    content = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**content, "guidance_scale": 2.0}))
    with pytest.raises(ConfigError, match="sets unsupported fields: guidance_scale: 2.0"):
        translate(load_pipeline(folder, device="cpu"), TEXTS)
    with TestClient(
        create_app(registry := ModelRegistry([load_model(folder, "hf")])), base_url="http://localhost"
    ) as client:
        response = client.post("/v1/translate", json={"model": "hf", "text": TEXTS})
    registry.close()
    assert response.status_code in (400, 422) and "guidance_scale" in response.text
