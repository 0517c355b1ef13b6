"""Tokenizers of every kind, and other people's."""

import pytest
from tokenizers import Tokenizer

from softlook.base.errors import DataError
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.special import SPECIAL

TEXTS = ["she sells sea shells", "Ünïcode 漢字 🙂\n\ttoo"]


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_text_comes_back_as_it_was(kind: str) -> None:
    tokenizer = TextTokenizer(train_tokenizer(TEXTS * 3, kind=kind, vocab=400))  # pyright: ignore[reportArgumentType]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(TEXTS)] == TEXTS


def test_words_are_whole_and_small_and_strangers_are_unknown() -> None:
    tokenizer = TextTokenizer(train_tokenizer(["The cat, the dog"], kind="words"))
    pieces = [tokenizer.tokenizer.id_to_token(number) for number in tokenizer.encode(["the CAT flew"])[0]]
    assert pieces == ["the", "cat", "<unk>"]


def test_ids_that_stand_for_no_text_are_the_same_in_all() -> None:
    tokenizer = TextTokenizer(train_tokenizer(TEXTS, vocab=300))
    assert tokenizer.special == tuple(range(len(SPECIAL)))
    found = (tokenizer.pad, tokenizer.begin, tokenizer.end, tokenizer.mask, tokenizer.first, tokenizer.separator)
    assert found == (0, 1, 2, 4, 5, 6)


def renamed(*pairs: tuple[str, str]) -> TextTokenizer:
    text = train_tokenizer(TEXTS, vocab=300).to_str()
    for ours, theirs in pairs:
        text = text.replace(ours, theirs)
    return TextTokenizer(Tokenizer.from_str(text))


def test_berts_names_are_known() -> None:
    theirs = renamed(
        ("<cls>", "[CLS]"), ("<sep>", "[SEP]"), ("<pad>", "[PAD]"), ("<mask>", "[MASK]"), ("<s>", "x"), ("</s>", "y")
    )
    assert (theirs.first, theirs.separator, theirs.pad, theirs.mask) == (5, 6, 0, 4)
    assert (theirs.begin, theirs.end) == (5, 6)


def test_what_a_tokenizer_lacks_is_an_error_only_where_it_is_asked_for() -> None:
    theirs = renamed(("<mask>", "z"))
    assert theirs.pad == 0
    with pytest.raises(DataError, match="this tokenizer has no <mask>"):
        assert theirs.mask
