"""Models are loaded for serving from run directories, checkpoints and Hugging Face folders."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import ConfigError, DataError, WeightsError
from softlook.decode.generation_config import GenerationConfig
from softlook.models import GPT, GPTConfig
from softlook.recipes import (
    CausalLMConfig,
    ClassificationConfig,
    TranslationConfig,
    train_causal_lm,
    train_classification,
    train_translation,
)
from softlook.serve.loaded_model import LoadedModel, load_model, model_names
from softlook.train import TrainingConfig
from softlook.weights import save, to_hugging_face
from softlook.weights.assets import SpecialTokens
from tests.serve.tiny_models import decoder, encoder, loaded_model, words


@pytest.mark.slow
def test_a_language_model_is_loaded_from_a_run(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("".join(f"{n} green bottles\n" for n in range(99)))
    run = tmp_path / "poems"
    train_causal_lm(CausalLMConfig(data=(tmp_path / "poem.txt",), run_dir=run, training=TrainingConfig(max_steps=2)))
    found = load_model(run)
    tokenizer = found.tokenizer
    assert found.name == "poems" and found.capabilities == ("completions",)
    assert found.special_tokens == SpecialTokens((tokenizer.bos_id,), (), (tokenizer.bos_id,), (tokenizer.eos_id,))


def test_a_classifier_is_loaded_from_a_run_with_its_labels(tmp_path: Path) -> None:
    rows = "".join(f"film {n},{'good' if n % 2 else 'bad'}\n" for n in range(40))
    (tmp_path / "reviews.csv").write_text(f"text,label\n{rows}")
    run = tmp_path / "films"
    train_classification(
        ClassificationConfig(data=(tmp_path / "reviews.csv",), run_dir=run, training=TrainingConfig(max_steps=2))
    )
    found = load_model(run, "critic")
    assert found.name == "critic" and found.capabilities == ("classify",) and found.labels == ["bad", "good"]


@pytest.mark.slow
def test_a_translation_model_is_loaded_from_a_run(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"number {n}\tZahl {n}\n" for n in range(50)))
    run = tmp_path / "numbers"
    train_translation(
        TranslationConfig(data=(tmp_path / "pairs.tsv",), run_dir=run, training=TrainingConfig(max_steps=2))
    )
    found = load_model(run)
    assert found.capabilities == ("translate",)
    tokenizer = found.tokenizer
    assert (
        found.special_tokens == SpecialTokens((), (tokenizer.eos_id,), (tokenizer.bos_id,), (tokenizer.eos_id,))
        and found.generation_config == GenerationConfig()
    )


def save_checkpoint(folder: Path, model: Any, **json_files: Any) -> Path:
    """A checkpoint with its tokenizer and other JSON files."""
    words().tokenizer.save(str(folder.parent / "words.json"))
    save(model, folder, tokenizer=folder.parent / "words.json")
    for name, content in json_files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_checkpoint_is_loaded_with_its_chat_template(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "mine", decoder())
    assert load_model(folder).capabilities == ("completions",)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    assert load_model(folder).capabilities == ("completions", "chat")


def test_a_hugging_face_folder_is_loaded_with_its_eos_tokens(tmp_path: Path) -> None:
    words().tokenizer.save(str(tmp_path / "words.json"))
    folder = tmp_path / "hugging-face"
    to_hugging_face(decoder(), folder, tokenizer=tmp_path / "words.json")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6], "bos_token_id": 7}))
    found = load_model(folder)
    assert found.eos_ids == {5, 6} and found.special_tokens.start == (7,) and isinstance(found.model, GPT)


def test_a_model_without_a_tokenizer_is_rejected(tmp_path: Path) -> None:
    save(decoder(), tmp_path / "mute")
    with pytest.raises(WeightsError, match="holds no tokenizer.json, which text input needs"):
        load_model(tmp_path / "mute")


def test_a_model_that_cannot_be_served_is_rejected() -> None:
    with pytest.raises(ConfigError, match="tagger is a Bert, which cannot be served"):
        loaded_model("tagger", encoder("token_classification"))


@pytest.mark.parametrize("names", [["a"], {"0": "a"}, "a", [1, 2, 3]], ids=["one", "by number", "text", "numbers"])
def test_labels_that_do_not_match_the_model_are_rejected(tmp_path: Path, names: Any) -> None:
    folder = save_checkpoint(tmp_path / "mismatched", encoder(), labels={"labels": names})
    with pytest.raises(WeightsError, match="has labels that do not match the 3 classes of its model"):
        load_model(folder)


def test_classes_without_labels_are_numbered(tmp_path: Path) -> None:
    assert load_model(save_checkpoint(tmp_path / "bare", encoder())).labels == ["0", "1", "2"]


def test_two_models_of_the_same_name_are_rejected() -> None:
    assert model_names(["a/x", "y=a/x"]) == {"x": Path("a/x"), "y": Path("a/x")}
    with pytest.raises(ConfigError, match="two models are named 'x'. Name them: one=a/x other=b/x"):
        model_names(["a/x", "b/x"])
    with pytest.raises(ConfigError, match="1 to 128 characters, without spaces and slashes"):
        model_names(["a name=b"])


def model_with_context(context: int) -> LoadedModel:
    sizes: dict[str, Any] = {"vocab_size": words().vocab_size, "dim": 8, "depth": 1, "heads": 1, "context": context}
    return loaded_model("model_with_context", GPT(GPTConfig(**sizes)).eval())


@pytest.mark.parametrize("text", ["a" * 1_000_000, "sea " * 200_000, "日" * 300_000, "\n" * 900_000])
def test_a_very_long_text_is_rejected_without_tokenizing_all_of_it(text: str) -> None:
    found = model_with_context(8192)
    start = time.perf_counter()
    with pytest.raises(DataError, match="longer than the maximum of 8,191 tokens"):
        found.encode(text, 8191)
    assert time.perf_counter() - start < 1.0  # about 50 ms on an idle machine


def test_a_text_of_the_maximum_length_is_encoded() -> None:
    found = model_with_context(8192)
    assert len(found.encode("a" * 8191, 8191)) == 8191
    with pytest.raises(DataError, match="this text has 8,192 tokens, the maximum is 8,191"):
        found.encode("a" * 8192, 8191)
