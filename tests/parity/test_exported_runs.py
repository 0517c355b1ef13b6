"""A run that is exported says in Hugging Face's hands what it says at home: the signs go along with the weights."""

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


def exported(run: Path, to: Path) -> Path:
    return to_hugging_face(load(run), to, tokenizer=run / "tokenizer.json")


@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_a_language_model_writes_on_as_it_does_at_home(model: str, tmp_path: Path) -> None:
    trained = train_causal_lm(
        causal_lm_config(tmp_path, steps=60, model=model, batch=BatchConfig(max_tokens=512, max_length=64))
    )
    folder = exported(trained.run_dir, tmp_path / "hf")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    reference: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    request = torch.tensor([tokenizer("the cat")["input_ids"]])
    with torch.no_grad():
        output = reference.generate(
            request, attention_mask=torch.ones_like(request), max_new_tokens=20, do_sample=False
        )
    (home,) = generate(load_pipeline(trained.run_dir), ["the cat"], GenerationParams(temperature=0, longest=20))
    assert tokenizer.decode(output[0, request.shape[1] :], skip_special_tokens=True) == home.text
    assert reference.generation_config.eos_token_id == trained.tokenizer.eos_id


def test_a_model_that_fills_in_is_framed_as_it_was_while_learning(tmp_path: Path) -> None:
    trained = train_masked_lm(masked_lm_config(tmp_path))
    folder = exported(trained.run_dir, tmp_path / "hf")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("the cat <mask> fish", return_tensors="pt")["input_ids"]
    words = trained.tokenizer
    assert [ids[0, 0], ids[0, -1]] == [words.cls_id, words.sep_id] and words.mask_id in ids[0]
    model: Any = AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, load(trained.run_dir).eval()(ids), rtol=1e-4, atol=1e-4)


def test_other_peoples_tokenizers_are_left_as_they_are(tmp_path: Path) -> None:
    trained = train_causal_lm(causal_lm_config(tmp_path, batch=BatchConfig(max_tokens=512, max_length=64)))
    Tokenizer(WordLevel({"a": 0, "?": 1}, unk_token="?")).save(str(tmp_path / "tokenizer.json"))
    folder = to_hugging_face(load(trained.run_dir), tmp_path / "hf", tokenizer=tmp_path / "tokenizer.json")
    assert (folder / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    assert "eos_token_id" not in (folder / "config.json").read_text(encoding="utf-8")
