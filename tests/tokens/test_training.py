"""Tokenizers trained on the user's own text."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from softlook.base.errors import DataError
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.tokenizer import SPECIAL_TOKENS

TEXTS = ["she sells sea shells by the sea shore", "Überraschung: 3 € für 你好", "  two  spaces\nand a line end\t"]
ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, TextTokenizer]:
    kinds: tuple[Any, ...] = ("bpe", "characters", "bytes")
    return {kind: TextTokenizer(train_tokenizer(TEXTS * 3, model_type=kind, vocab_size=400)) for kind in kinds}


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_known_text_round_trips(kind: str, tokenizers: dict[str, TextTokenizer]) -> None:
    tokenizer = tokenizers[kind]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(TEXTS)] == TEXTS


@given(text=ANY_TEXT)
@example(text="a special token written out, <unk> or </s>, is text")
def test_byte_tokenizers_encode_any_text(text: str) -> None:
    tokenizer = TextTokenizer(train_tokenizer([], model_type="bytes"))
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@given(text=st.text("abc é\n", max_size=40))
def test_bpe_encodes_any_text_with_its_spaces(text: str, tokenizers: dict[str, TextTokenizer]) -> None:
    tokenizer = tokenizers["bpe"]
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_special_tokens_have_fixed_ids(kind: str, tokenizers: dict[str, TextTokenizer]) -> None:
    tokenizer = tokenizers[kind]
    assert [tokenizer.tokenizer.token_to_id(name) for name in SPECIAL_TOKENS] == list(range(len(SPECIAL_TOKENS)))
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id) == (0, 1, 2, 4)
    assert (
        tokenizer.decode([tokenizer.bos_id, *tokenizer.encode(["sea"])[0], tokenizer.eos_id, tokenizer.pad_id]) == "sea"
    )


def test_frequent_words_are_one_token(tokenizers: dict[str, TextTokenizer]) -> None:
    assert len(tokenizers["bpe"].encode(["she sells shells"])[0]) < len(
        tokenizers["characters"].encode(["she sells"])[0]
    )


def test_an_unseen_character_is_unknown(tokenizers: dict[str, TextTokenizer]) -> None:
    ids = tokenizers["characters"].encode(["se€x"])[0]
    assert ids[-1] == tokenizers["characters"].tokenizer.token_to_id("<unk>")


def test_a_lone_surrogate_is_replaced(tokenizers: dict[str, TextTokenizer]) -> None:
    assert tokenizers["bytes"].decode(tokenizers["bytes"].encode(["a\ud800b"])[0]) == "a\ufffdb"


def test_a_too_long_text_raises(tokenizers: dict[str, TextTokenizer]) -> None:
    with pytest.raises(DataError, match="expected a text of at most 1,000,000 characters, got 1,000,001"):
        tokenizers["bytes"].encode(["a" * 1_000_001])


def test_an_unknown_model_type_raises() -> None:
    wrong: Any = "sentences"
    with pytest.raises(ValueError, match="one of bpe, characters, bytes.*got 'sentences'"):
        train_tokenizer(TEXTS, model_type=wrong)
