"""Tokenizers made from one's own text."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from softlook.base.errors import DataError
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.special import SPECIAL

TEXTS = ["she sells sea shells by the sea shore", "Überraschung: 3 € für 你好", "  two  spaces\nand a line end\t"]
WHOLE = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, TextTokenizer]:
    kinds: tuple[Any, ...] = ("bpe", "characters", "bytes")
    return {kind: TextTokenizer(train_tokenizer(TEXTS * 3, kind=kind, vocab=400)) for kind in kinds}


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_known_text_comes_back_as_it_was(kind: str, tokenizers: dict[str, TextTokenizer]) -> None:
    tokenizer = tokenizers[kind]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(TEXTS)] == TEXTS


@given(text=WHOLE)
@example(text="a sign that is written out, <unk> or </s>, is text")
def test_bytes_write_down_any_text(text: str) -> None:
    tokenizer = TextTokenizer(train_tokenizer([], kind="bytes"))
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@given(text=st.text("abc é\n", max_size=40))
def test_pieces_write_down_any_text_with_its_spaces(text: str, tokenizers: dict[str, TextTokenizer]) -> None:
    tokenizer = tokenizers["bpe"]
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_tokens_that_stand_for_no_text_have_the_same_ids_everywhere(
    kind: str, tokenizers: dict[str, TextTokenizer]
) -> None:
    tokenizer = tokenizers[kind]
    assert [tokenizer.tokenizer.token_to_id(name) for name in SPECIAL] == list(range(len(SPECIAL)))
    assert (tokenizer.pad, tokenizer.begin, tokenizer.end, tokenizer.mask) == (0, 1, 2, 4)
    assert tokenizer.decode([tokenizer.begin, *tokenizer.encode(["sea"])[0], tokenizer.end, tokenizer.pad]) == "sea"


def test_often_seen_words_are_one_piece(tokenizers: dict[str, TextTokenizer]) -> None:
    assert len(tokenizers["bpe"].encode(["she sells shells"])[0]) < len(
        tokenizers["characters"].encode(["she sells"])[0]
    )


def test_a_character_that_was_never_seen_is_unknown_and_no_crash(tokenizers: dict[str, TextTokenizer]) -> None:
    ids = tokenizers["characters"].encode(["se€x"])[0]
    assert ids[-1] == tokenizers["characters"].tokenizer.token_to_id("<unk>")


def test_half_a_character_is_replaced_and_no_crash(tokenizers: dict[str, TextTokenizer]) -> None:
    assert tokenizers["bytes"].decode(tokenizers["bytes"].encode(["a\ud800b"])[0]) == "a\ufffdb"


def test_a_text_without_end_is_an_error(tokenizers: dict[str, TextTokenizer]) -> None:
    with pytest.raises(DataError, match="1,000,001 characters came; at most 1,000,000 are taken at once"):
        tokenizers["bytes"].encode(["a" * 1_000_001])


def test_a_kind_that_is_not_known_is_an_error() -> None:
    wrong: Any = "sentences"
    with pytest.raises(ValueError, match="one of bpe, characters, bytes.*'sentences' came"):
        train_tokenizer(TEXTS, kind=wrong)
