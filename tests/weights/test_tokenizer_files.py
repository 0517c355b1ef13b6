"""Byte-level BPE tokenizers, built from vocabulary, merges and pre-tokenizer."""

from dataclasses import replace
from typing import Any

import pytest

from softlook.base.errors import WeightsError
from softlook.weights.tokenizer_files import PRE_TOKENIZERS, BPEParts, build_bpe_tokenizer

TOKENS = ["<end>", "<|x|>", "a", "b", "c", "Ġ", "1", "2", "ab", "Ġa", "12", "Ġab", "'", "s", "'s", "abc"]
MERGES = ["a b", "Ġ a", "1 2", "Ġ ab", "' s"]
PARTS = BPEParts(TOKENS, MERGES, token_types=[3, 4] + [1] * 14)


def tokenize(parts: BPEParts, text: str) -> list[str]:
    return [TOKENS[number] for number in build_bpe_tokenizer(parts).encode(text).ids]


def test_merges_apply_in_order_and_control_tokens_stay_whole() -> None:
    assert tokenize(PARTS, "ab ab c<end>a<|x|>") == ["ab", "Ġab", "Ġ", "c", "<end>", "a", "<|x|>"]


def test_decoding_restores_the_text_without_control_tokens() -> None:
    tokenizer = build_bpe_tokenizer(PARTS)
    assert tokenizer.decode(tokenizer.encode("ab c 12<end>").ids) == "ab c 12"
    assert tokenizer.decode(tokenizer.encode("a<end><|x|>").ids, skip_special_tokens=False) == "a<end><|x|>"


def test_without_token_types_there_are_no_control_tokens() -> None:
    assert tokenize(replace(PARTS, token_types=()), "a<end>") == ["a"]


@pytest.mark.parametrize(
    ("pre_tokenizer", "pieces"),
    [
        ("default", ["12", "'s"]),
        ("gpt-2", ["12", "'s"]),
        ("llama-bpe", ["12", "'s"]),
        ("smollm", ["1", "2", "'s"]),
        ("qwen2", ["1", "2", "'s"]),
    ],
)
def test_text_is_split_by_the_named_pre_tokenizer(pre_tokenizer: str, pieces: list[str]) -> None:
    assert tokenize(replace(PARTS, pre_tokenizer=pre_tokenizer), "12's") == pieces


def test_every_pre_tokenizer_is_tested() -> None:
    assert set(PRE_TOKENIZERS) == {"default", "gpt-2", "llama-bpe", "smollm", "qwen2"}


def test_llama_3_keeps_whole_words_that_are_in_the_vocabulary() -> None:
    assert tokenize(PARTS, "abc") == ["ab", "c"]
    assert tokenize(replace(PARTS, pre_tokenizer="llama-bpe"), "abc") == ["abc"]


def test_the_bos_token_is_prepended() -> None:
    assert tokenize(replace(PARTS, bos_id=0), "a") == ["<end>", "a"]


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "unknown pre-tokenizer": (
        {"pre_tokenizer": "tea"},
        "pre-tokenizer 'tea' is not supported; supported: default, gpt-2, llama-bpe, qwen2, smollm",
    ),
    "merge of one token": ({"merges": ["ab"]}, "cannot be built"),
    "merge of unknown tokens": ({"merges": ["x y"]}, "cannot be built"),
    "too few token types": ({"token_types": [1]}, "has 16 tokens, but 1 token types"),
    "BOS id out of range": ({"bos_id": 99}, "BOS id 99 is outside the vocabulary of 16 tokens"),
    "BOS id of another type": ({"bos_id": "a"}, "BOS id 'a' is outside"),
}


@pytest.mark.parametrize("name", INVALID)
def test_inconsistent_parts_raise_an_error(name: str) -> None:
    changes, message = INVALID[name]
    with pytest.raises(WeightsError, match=message):
        build_bpe_tokenizer(replace(PARTS, **changes))
