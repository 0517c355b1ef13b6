"""Special tokens, labels and generation config of a checkpoint or a Hugging Face folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing

from softlook.base.errors import WeightsError
from softlook.models import GPT, GPTConfig, Transformer, TransformerConfig
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.weights import from_hugging_face, read_generation_config, save, to_hugging_face
from softlook.weights.assets import (
    SpecialTokens,
    assets_to_keep,
    load_assets,
    read_hf_config,
    read_labels,
    special_tokens_of,
)

SIZES: dict[str, Any] = {"vocab_size": 300, "dim": 8, "depth": 1, "heads": 1}
GPT_MODEL, TRANSLATOR = GPT(GPTConfig(context=8, **SIZES)), Transformer(TransformerConfig(**SIZES))


def foreign_tokenizer(template: str | None = None) -> TextTokenizer:
    """A tokenizer that softlook did not train: <s> is 0, </s> is 1."""
    tokenizer = Tokenizer(WordLevel({"<s>": 0, "</s>": 1, "a": 2}, "a"))
    if template is not None:
        special_tokens = [("<s>", 0), ("</s>", 1)]
        processor = TemplateProcessing(single=template, special_tokens=special_tokens)
        tokenizer.post_processor = processor  # pyright: ignore[reportAttributeAccessIssue]
    return TextTokenizer(tokenizer)


def test_softlook_s_special_tokens_are_those_of_training() -> None:
    own = TextTokenizer(train_tokenizer([], model_type="bytes"))
    bos, eos = (own.bos_id,), (own.eos_id,)
    assert special_tokens_of(own, {}, GPT_MODEL) == SpecialTokens(bos, (), bos, eos)
    assert special_tokens_of(own, {}, TRANSLATOR) == SpecialTokens((), eos, bos, eos)


def test_special_tokens_come_from_hugging_face_files_and_tokenizers() -> None:
    fields = {"eos_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0}
    assert special_tokens_of(foreign_tokenizer("<s> $A </s>"), fields, TRANSLATOR) == SpecialTokens(
        (0,), (1,), (2,), (1,)
    )
    assert special_tokens_of(foreign_tokenizer("<s> $A"), fields, GPT_MODEL) == SpecialTokens((0,), (), (0,), (1,))
    assert special_tokens_of(foreign_tokenizer(), fields, GPT_MODEL) == SpecialTokens((), (), (0,), (1,))


def test_a_source_ends_with_eos_even_without_a_post_processor() -> None:
    assert special_tokens_of(foreign_tokenizer(), {"eos_token_id": [1, 2]}, TRANSLATOR) == SpecialTokens(
        (), (1,), (0,), (1, 2)
    )


@pytest.mark.parametrize("invalid", ["1", True, -3, [None, "x"], {}])
def test_invalid_token_ids_are_ignored(invalid: Any) -> None:
    assert special_tokens_of(foreign_tokenizer(), {"eos_token_id": invalid}, GPT_MODEL).eos == (1,)


def test_generation_config_overrides_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 1, "bos_token_id": 5}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "bos_token_id": None}))
    assert read_hf_config(tmp_path) == {"eos_token_id": 2, "bos_token_id": 5}


def test_a_checkpoint_has_tokenizer_and_special_tokens(tmp_path: Path) -> None:
    train_tokenizer([], model_type="bytes").save(str(tmp_path / "words.json"))
    folder = save(GPT_MODEL, tmp_path / "mine", tokenizer=tmp_path / "words.json")
    found = load_assets(folder, GPT_MODEL)
    assert found.hf_config == {} and found.labels == [] and found.special_tokens.prefix == (found.tokenizer.bos_id,)


def test_import_keeps_the_generation_config_and_special_token_ids(tmp_path: Path) -> None:
    folder = to_hugging_face(GPT_MODEL, tmp_path / "hf", generation_config={"num_beams": 3, "bos_token_id": None})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"bos_token_id": 4, "eos_token_id": 5, "top_k": 7}))
    saved = save(GPT_MODEL, tmp_path / "saved", extra_files=assets_to_keep(folder, GPT_MODEL))
    assert (
        read_generation_config(saved) == read_hf_config(saved) == {"num_beams": 3, "bos_token_id": 4, "eos_token_id": 5}
    )
    (folder / "generation_config.json").unlink()
    assert read_generation_config(folder) == {"bos_token_id": 4, "eos_token_id": 5, "top_k": 7}


@pytest.mark.parametrize("as_file", [False, True])
def test_import_keeps_the_chat_template(as_file: bool, tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "model_max_length": 10**30} | ({} if as_file else {"chat_template": "{{ 1 }}"})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if as_file:
        (tmp_path / "chat_template.jinja").write_text("{{ 1 }}", encoding="utf-8")
    kept = assets_to_keep(tmp_path, GPT_MODEL)
    assert kept["tokenizer_config.json"] == {"bos_token": "<s>", "chat_template": "{{ 1 }}"}


def test_export_writes_the_labels_of_the_classes(tmp_path: Path) -> None:
    model = GPT(GPTConfig(context=8, head="classification", classes=2, **SIZES))
    folder = to_hugging_face(model, tmp_path / "hf", labels=["bad", "good"])
    assert read_labels(folder, read_hf_config(folder), from_hugging_face(folder)) == ["bad", "good"]
    assert json.loads((folder / "config.json").read_text())["label2id"] == {"bad": 0, "good": 1}
    with pytest.raises(WeightsError, match="expected 2 different labels"):
        to_hugging_face(model, tmp_path / "other", labels=["good", "good"])
