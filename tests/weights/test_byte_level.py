"""Byte-level tokenizers, put together from their parts."""

from dataclasses import replace
from typing import Any

import pytest

from softlook.base.errors import WeightsError
from softlook.weights.byte_level import CUTS, Parts, put_together

TOKENS = ["<end>", "<|x|>", "a", "b", "c", "Ġ", "1", "2", "ab", "Ġa", "12", "Ġab", "'", "s", "'s", "abc"]
MERGES = ["a b", "Ġ a", "1 2", "Ġ ab", "' s"]
PARTS = Parts(TOKENS, MERGES, kinds=[3, 4] + [1] * 14)


def spelled(parts: Parts, text: str) -> list[str]:
    return [TOKENS[number] for number in put_together(parts).encode(text).ids]


def test_pieces_are_joined_in_their_order_and_what_steers_stays_whole() -> None:
    assert spelled(PARTS, "ab ab c<end>a<|x|>") == ["ab", "Ġab", "Ġ", "c", "<end>", "a", "<|x|>"]


def test_what_was_cut_is_put_together_again_without_what_steers() -> None:
    made = put_together(PARTS)
    assert made.decode(made.encode("ab c 12<end>").ids) == "ab c 12"
    assert made.decode(made.encode("a<end><|x|>").ids, skip_special_tokens=False) == "a<end><|x|>"


def test_without_kinds_every_token_is_made_of_pieces() -> None:
    assert spelled(replace(PARTS, kinds=()), "a<end>") == ["a"]


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
def test_text_is_cut_as_the_name_of_the_cut_says(cut: str, pieces: list[str]) -> None:
    assert spelled(replace(PARTS, cut=cut), "12's") == pieces


def test_every_cut_is_tried_above() -> None:
    assert set(CUTS) == {"default", "gpt-2", "llama-bpe", "smollm", "qwen2"}


def test_a_llama_3_takes_a_word_that_is_a_token_though_its_pieces_would_not_join() -> None:
    assert spelled(PARTS, "abc") == ["ab", "c"]
    assert spelled(replace(PARTS, cut="llama-bpe"), "abc") == ["abc"]


def test_a_text_begins_with_the_token_that_is_wanted_there() -> None:
    assert spelled(replace(PARTS, first=0), "a") == ["<end>", "a"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another cut": ({"cut": "tea"}, "cuts text as 'tea'; known are default, gpt-2, llama-bpe, qwen2, smollm"),
    "a pair of one": ({"merges": ["ab"]}, "cannot be put together"),
    "a pair of strangers": ({"merges": ["x y"]}, "cannot be put together"),
    "too few kinds": ({"kinds": [1]}, "has 16 tokens, and kinds for 1"),
    "a first token beyond the last": ({"first": 99}, "puts token 99 before a text, and has 16 tokens"),
    "a first token that is a word": ({"first": "a"}, "puts token 'a' before a text"),
}


@pytest.mark.parametrize("what", WRONG)
def test_parts_that_do_not_fit_are_refused(what: str) -> None:
    changes, message = WRONG[what]
    with pytest.raises(WeightsError, match=message):
        put_together(replace(PARTS, **changes))
