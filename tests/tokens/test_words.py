"""Texts are split into words, words into tokens, and long texts into chunks at words: nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.training import TokenizerModel
from softlook.tokens.words import WordEncoder, split_words

TEXTS = ["she sells sea shells by the sea shore", "on 3 May 2021"] * 5
WORDS = st.lists(st.sampled_from(["she", "sells", "sea", ".", "unseen", "é", "x" * 30]), max_size=40)
TYPES: tuple[TokenizerModel, ...] = ("bpe", "characters", "bytes", "words")


def encoder(model_type: TokenizerModel = "bpe", max_length: int = 12) -> WordEncoder:
    return WordEncoder(TextTokenizer(train_tokenizer(TEXTS, model_type=model_type, vocab_size=300)), max_length)


@given(st.text())
def test_words_have_their_offsets_and_cover_everything_but_spaces(text: str) -> None:
    for is_split in (False, True):
        words = split_words(text, is_split_into_words=is_split)
        assert all(text[start:end] == word for word, start, end in words)
        assert "".join(word for word, _, _ in words) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ada, Bob (and Eva).", "Ada , Bob ( and Eva ) ."),
        ("the U.S.A.'s 1,000.50 EUR", "the U.S.A. ' s 1,000.50 EUR"),
        ("well-known o'clock x_1", "well-known o'clock x_1"),
        ("2nd 3/4 10:30", "2nd 3/4 10:30"),
        ("東京は大きい", "東 京 は 大 き い"),
        ("Zürich–Genève…", "Zürich – Genève …"),
    ],
)
def test_punctuation_is_separate_and_numbers_stay_whole(text: str, words: str) -> None:
    assert [word.text for word in split_words(text)] == words.split()


@pytest.mark.parametrize("model_type", TYPES)
@given(words=WORDS)
def test_every_word_has_a_first_token_in_one_chunk(model_type: TokenizerModel, words: list[str]) -> None:
    encoded = encoder(model_type)
    [chunks] = encoded.encode([words])
    assert sum(len(chunk.positions) for chunk in chunks) == len(words)
    for chunk in chunks:
        assert chunk.positions and len(chunk.ids) == len(chunk.token_types) <= 12
        assert chunk.positions == sorted(set(chunk.positions)) and chunk.positions[0] == 1
        assert chunk.positions[-1] < len(chunk.ids) - 1


@pytest.mark.parametrize("model_type", ["bpe", "words", "bytes"])
def test_words_are_encoded_as_in_their_text(model_type: TokenizerModel) -> None:
    encoded = encoder(model_type, max_length=100)
    [[chunk]] = encoded.encode([["she", "sells", "shells"]])
    [plain] = encoded.tokenizer.encode([" she sells shells" if encoded.prefix else "she sells shells"])
    assert chunk.ids[1:-1] == plain


def test_byte_level_bpe_without_a_prefix_space_gets_one() -> None:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    inner.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    assert WordEncoder(TextTokenizer(inner), 20).prefix == " "
    assert encoder("bpe").prefix == "" and encoder("bytes").prefix == " "


def test_a_long_text_is_split_after_a_sentence() -> None:
    encoded = encoder("words", max_length=12)
    chunks = encoded.encode([["she", "sells", "sea", "shells", "by", "the", ".", "on", "3", "May", "2021", "she"]])[0]
    assert [len(chunk.positions) for chunk in chunks] == [7, 5]
    chunks = encoded.encode([["she", "."] + ["sea"] * 12])[0]
    assert [len(chunk.positions) for chunk in chunks] == [10, 4]


def test_a_word_without_tokens_is_unknown() -> None:
    encoded = encoder("words")
    [[chunk]] = encoded.encode([["she", "\u200b\u0301", "sea"]])
    assert len(chunk.positions) == 3


def test_an_empty_text_has_no_chunks() -> None:
    assert encoder().encode([[], ["she"]])[0] == []
