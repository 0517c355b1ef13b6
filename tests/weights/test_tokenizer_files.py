"""Byte-level tokenizers, put together from their parts."""

from dataclasses import replace
from typing import Any

import pytest

from softlook.base.errors import WeightsError
from softlook.weights.tokenizer_files import PRE_TOKENIZERS, BPEParts, build_bpe_tokenizer

TOKENS = ["<end>", "<|x|>", "a", "b", "c", "Ġ", "1", "2", "ab", "Ġa", "12", "Ġab", "'", "s", "'s", "abc"]
MERGES = ["a b", "Ġ a", "1 2", "Ġ ab", "' s"]
PARTS = BPEParts(TOKENS, MERGES, token_types=[3, 4] + [1] * 14)


def spelled(parts: BPEParts, text: str) -> list[str]:
    return [TOKENS[number] for number in build_bpe_tokenizer(parts).encode(text).ids]


def test_merges_apply_in_order_and_control_tokens_stay_whole() -> None:
    assert spelled(PARTS, "ab ab c<end>a<|x|>") == ["ab", "Ġab", "Ġ", "c", "<end>", "a", "<|x|>"]


def test_decoding_restores_the_text_without_control_tokens() -> None:
    made = build_bpe_tokenizer(PARTS)
    assert made.decode(made.encode("ab c 12<end>").ids) == "ab c 12"
    assert made.decode(made.encode("a<end><|x|>").ids, skip_special_tokens=False) == "a<end><|x|>"


def test_without_token_types_there_are_no_control_tokens() -> None:
    assert spelled(replace(PARTS, token_types=()), "a<end>") == ["a"]


@pytest.mark.parametrize(
    ("cut", "pieces"),
    [
        ("default", ["12", "'s"]),
        ("gpt-2", ["12", "'s"]),
        ("llama-bpe", ["12", "'s"]),
        ("smollm", ["1", "2", "'s"]),
        ("qwen2", ["1", "2", "'s"]),
    ],
)
def test_text_is_split_by_the_named_pre_tokenizer(cut: str, pieces: list[str]) -> None:
    assert spelled(replace(PARTS, pre_tokenizer=cut), "12's") == pieces


def test_every_pre_tokenizer_is_tested() -> None:
    assert set(PRE_TOKENIZERS) == {"default", "gpt-2", "llama-bpe", "smollm", "qwen2"}


def test_llama_3_keeps_whole_words_that_are_in_the_vocabulary() -> None:
    assert spelled(PARTS, "abc") == ["ab", "c"]
    assert spelled(replace(PARTS, pre_tokenizer="llama-bpe"), "abc") == ["abc"]


def test_the_bos_token_is_prepended() -> None:
    assert spelled(replace(PARTS, bos_id=0), "a") == ["<end>", "a"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another cut": (
        {"pre_tokenizer": "tea"},
        "pre-tokenizer 'tea' is not supported; supported: default, gpt-2, llama-bpe, qwen2, smollm",
    ),
    "a pair of one": ({"merges": ["ab"]}, "cannot be built"),
    "a pair of strangers": ({"merges": ["x y"]}, "cannot be built"),
    "too few kinds": ({"token_types": [1]}, "has 16 tokens, but 1 token types"),
    "a first token beyond the last": ({"bos_id": 99}, "BOS id 99 is outside the vocabulary of 16 tokens"),
    "a first token that is a word": ({"bos_id": "a"}, "BOS id 'a' is outside"),
}


@pytest.mark.parametrize("what", WRONG)
def test_inconsistent_parts_are_refused(what: str) -> None:
    changes, message = WRONG[what]
    with pytest.raises(WeightsError, match=message):
        build_bpe_tokenizer(replace(PARTS, **changes))
