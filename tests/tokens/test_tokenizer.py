"""Tokenizers of every model type, and tokenizers with other names for the special tokens."""

import pytest
from tokenizers import Tokenizer

from softlook.base.errors import DataError
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.tokenizer import SPECIAL_TOKENS

TEXTS = ["she sells sea shells", "Ünïcode 漢字 🙂\n\ttoo"]


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_text_round_trips(kind: str) -> None:
    tokenizer = TextTokenizer(train_tokenizer(TEXTS * 3, model_type=kind, vocab_size=400))  # pyright: ignore[reportArgumentType]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(TEXTS)] == TEXTS


def test_a_bare_string_is_one_text() -> None:
    tokenizer = TextTokenizer(train_tokenizer(TEXTS * 3, vocab_size=300))
    assert [tokenizer.encode(text) for text in TEXTS] == tokenizer.encode(TEXTS)
    assert tokenizer.encode("") == []


def test_word_tokenizers_lowercase_and_map_unknown_words() -> None:
    tokenizer = TextTokenizer(train_tokenizer(["The cat, the dog"], model_type="words"))
    pieces = [tokenizer.tokenizer.id_to_token(number) for number in tokenizer.encode(["the CAT flew"])[0]]
    assert pieces == ["the", "cat", "<unk>"]


def test_special_token_ids_are_the_same_in_all_tokenizers() -> None:
    tokenizer = TextTokenizer(train_tokenizer(TEXTS, vocab_size=300))
    assert tokenizer.special_ids == tuple(range(len(SPECIAL_TOKENS)))
    found = (
        tokenizer.pad_id,
        tokenizer.bos_id,
        tokenizer.eos_id,
        tokenizer.mask_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
    )
    assert found == (0, 1, 2, 4, 5, 6)


def renamed(*pairs: tuple[str, str]) -> TextTokenizer:
    text = train_tokenizer(TEXTS, vocab_size=300).to_str()
    for old, new in pairs:
        text = text.replace(old, new)
    return TextTokenizer(Tokenizer.from_str(text))


def test_bert_special_tokens_are_recognized() -> None:
    tokenizer = renamed(
        ("<cls>", "[CLS]"), ("<sep>", "[SEP]"), ("<pad>", "[PAD]"), ("<mask>", "[MASK]"), ("<s>", "x"), ("</s>", "y")
    )
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.mask_id) == (5, 6, 0, 4)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (5, 6)


def test_a_missing_special_token_raises_on_access() -> None:
    tokenizer = renamed(("<mask>", "z"))
    assert tokenizer.pad_id == 0
    with pytest.raises(DataError, match="this tokenizer has no <mask>"):
        assert tokenizer.mask_id
