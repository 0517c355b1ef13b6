"""Exported runs give the same outputs in transformers, including their special tokens."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from softlook.recipes import train_causal_lm, train_masked_lm
from softlook.recipes.config.schema import BatchConfig
from softlook.recipes.inference import load_pipeline
from softlook.recipes.inference.generation import GenerationParams, generate
from softlook.weights import load, to_hugging_face
from tests.recipes.small import causal_lm_config, masked_lm_config


def export(run_dir: Path, to: Path) -> Path:
    return to_hugging_face(load(run_dir), to, tokenizer=run_dir / "tokenizer.json")


@pytest.mark.parametrize("arch", ["gpt", "llama"])
def test_an_exported_language_model_generates_the_same_text(arch: str, tmp_path: Path) -> None:
    trained = train_causal_lm(
        causal_lm_config(
            tmp_path, steps=60, arch=arch, no_ngrams=True, batch=BatchConfig(max_tokens=512, max_length=64)
        )
    )
    folder = export(trained.run_dir, tmp_path / "hf")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    reference: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    prompt = torch.tensor([tokenizer("the cat")["input_ids"]])
    with torch.no_grad():
        output = reference.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False)
    params = GenerationParams(temperature=0, max_new_tokens=20)
    (actual,) = generate(load_pipeline(trained.run_dir), ["the cat"], params)
    assert tokenizer.decode(output[0, prompt.shape[1] :], skip_special_tokens=True) == actual.text
    assert reference.generation_config.eos_token_id == trained.tokenizer.eos_id


def test_an_exported_masked_language_model_gets_the_special_tokens_of_training(tmp_path: Path) -> None:
    trained = train_masked_lm(masked_lm_config(tmp_path, no_ngrams=True))
    folder = export(trained.run_dir, tmp_path / "hf")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("the cat <mask> fish", return_tensors="pt")["input_ids"]
    own = trained.tokenizer
    assert [ids[0, 0], ids[0, -1]] == [own.cls_id, own.sep_id] and own.mask_id in ids[0]
    model: Any = AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, load(trained.run_dir).eval()(ids), rtol=1e-4, atol=1e-4)


def test_tokenizers_that_softlook_did_not_train_are_copied_unchanged(tmp_path: Path) -> None:
    trained = train_causal_lm(causal_lm_config(tmp_path, no_ngrams=True, batch=BatchConfig(max_length=64)))
    Tokenizer(WordLevel({"a": 0, "?": 1}, unk_token="?")).save(str(tmp_path / "tokenizer.json"))
    folder = to_hugging_face(load(trained.run_dir), tmp_path / "hf", tokenizer=tmp_path / "tokenizer.json")
    assert (folder / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    assert "eos_token_id" not in (folder / "config.json").read_text(encoding="utf-8")
