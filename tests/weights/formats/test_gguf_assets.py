"""The tokenizer, the special tokens and the chat template of GGUF files."""

from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Kind

from softlook.base.errors import WeightsError
from softlook.decode.generation_config import load_generation_config
from softlook.serve.loaded_model import load_model
from softlook.weights import from_gguf, save
from softlook.weights.formats.gguf_assets import assets_from_gguf, tokenizer_from_gguf
from tests.weights.formats.gguf_files import small, write, write_model

TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["<end>", "a", "b", "ab", "1", "2", "12"],
    "tokenizer.ggml.merges": ["a b", "1 2"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.bos_token_id": 0,
}


def write_tokenizer(path: Path, **changes: Any) -> Path:
    fields = TOKENIZER | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return write(path, fields, {}, Kind.F32, "llama")


@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({}, [3, 6, 0]),
        ({"pre": "smollm"}, [3, 4, 5, 0]),
        ({"pre": "smollm", "add_bos_token": True}, [0, 3, 4, 5, 0]),
        ({"pre": "llama-bpe"}, [0, 3, 6, 0]),  # prepends the BOS token by default
        ({"pre": "llama-bpe", "add_bos_token": False}, [3, 6, 0]),
        ({"token_type": None}, [3, 6]),
    ],
    ids=str,
)
def test_the_tokenizer_is_imported(changes: dict[str, Any], ids: list[int], tmp_path: Path) -> None:
    assert tokenizer_from_gguf(write_tokenizer(tmp_path / "m.gguf", **changes)).encode("ab12<end>").ids == ids


INVALID_TOKENIZERS: dict[str, tuple[dict[str, Any], str]] = {
    "another model": ({"model": "llama"}, "tokenizer model 'llama'; supported: 'gpt2'"),
    "no model": ({"model": None}, "tokenizer model None"),
    "tokens as a string": ({"tokens": "abc"}, "tokens, merges and token_type of the tokenizer must be lists"),
    "tokens as integers": ({"tokens": [1, 2, 3], "token_type": None}, "cannot be built"),
    "unknown pre-tokenizer": ({"pre": "tea"}, "pre-tokenizer 'tea' is not supported; supported: default"),
}


@pytest.mark.parametrize("name", INVALID_TOKENIZERS)
def test_an_invalid_tokenizer_raises_an_error(name: str, tmp_path: Path) -> None:
    changes, message = INVALID_TOKENIZERS[name]
    with pytest.raises(WeightsError, match=message):
        tokenizer_from_gguf(write_tokenizer(tmp_path / "m.gguf", **changes))


CHAT: dict[str, Any] = {
    "tokens": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab", "<|eot_id|>"],
    "merges": ["a b"],
    "token_type": [3, 3, 3, 1, 1, 1, 1],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "padding_token_id": 2,
}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>"


def test_every_end_of_generation_token_is_an_eos_token(tmp_path: Path) -> None:
    _, files = assets_from_gguf(write_tokenizer(tmp_path / "m.gguf", **CHAT))
    expected = {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 2}  # <|eot_id|> is not a control token here
    assert files["generation_config.json"] == expected
    _, files = assets_from_gguf(write_tokenizer(tmp_path / "n.gguf", **CHAT, eot_token_id=6))
    assert files["generation_config.json"]["eos_token_id"] == [2, 6, 0]


def test_a_special_token_outside_the_vocabulary_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="eos_token_id is 70, outside the vocabulary of 7 tokens"):
        assets_from_gguf(write_tokenizer(tmp_path / "m.gguf", **CHAT | {"eos_token_id": 70}))


def test_an_imported_file_is_served_with_its_chat_template_and_eos_tokens(tmp_path: Path) -> None:
    fields = TOKENIZER | {f"tokenizer.ggml.{name}": value for name, value in CHAT.items()}
    path = write_model(small(vocab_size=7), tmp_path / "m.gguf", fields=fields | {"tokenizer.chat_template": TEMPLATE})
    tokenizer, files = assets_from_gguf(path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    folder = save(from_gguf(path), tmp_path / "m", tokenizer=tmp_path / "tokenizer.json", extra_files=files)
    loaded = load_model(folder)
    assert loaded.capabilities == ("completions", "chat") and loaded.eos_ids == {0, 2}
    assert loaded.chat_template is not None
    assert loaded.chat_template.render([{"role": "user", "content": "ab"}]) == "<|im_start|>ab<|im_end|><|im_start|>"
    assert load_generation_config(folder, {}) is not None
