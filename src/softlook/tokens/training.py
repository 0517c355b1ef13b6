"""Tokenizer training: BPE, characters, bytes, words."""

from collections.abc import Iterable, Iterator
from typing import Literal

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from softlook.tokens.tokenizer import SPECIAL_TOKENS, UNK

TokenizerModel = Literal["bpe", "characters", "bytes", "words"]
MAX_CHARACTERS = 20_000
"""Different characters of a character tokenizer."""


def train_tokenizer(
    texts: Iterable[str], *, model_type: TokenizerModel = "bpe", vocab_size: int = 8000, lowercase: bool = False
) -> Tokenizer:
    """Train a tokenizer: byte-level BPE, single characters, bytes, or whole words.

    `vocab_size` is the maximum, special tokens included; few texts give fewer tokens. "bpe" and "bytes" encode any
    text; "characters" and "words" (always lowercased) map what they have not seen to the unknown token. `lowercase`
    maps all text to lower case first.

    >>> tokenizer = train_tokenizer(["she sells sea shells"] * 3, vocab_size=300)
    >>> tokenizer.decode(tokenizer.encode("she sells shells").ids)
    'she sells shells'
    """
    if lowercase and model_type != "words":
        tokenizer = train_tokenizer((text.lower() for text in texts), model_type=model_type, vocab_size=vocab_size)
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
        return tokenizer
    train = {"bpe": _train_bpe, "characters": _train_characters, "bytes": _make_bytes, "words": _train_words}
    if model_type not in train:
        raise ValueError(f"model_type: expected one of {', '.join(train)}, got {model_type!r}")
    return train[model_type](iter(texts), vocab_size)


def _train_bpe(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    # The prepended space makes the first word the same token as one after a space; decoding strips it.
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=max(vocab_size, len(alphabet) + len(SPECIAL_TOKENS)),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=False,
        max_token_length=32,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _make_bytes(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: id for id, token in enumerate((*SPECIAL_TOKENS, *alphabet))}
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _train_characters(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    counts: dict[str, int] = {}
    for text in texts:
        for character in text:
            counts[character] = counts.get(character, 0) + 1
    kept = sorted(counts, key=lambda character: (-counts[character], character))[:MAX_CHARACTERS]
    ids = {token: id for id, token in enumerate((*SPECIAL_TOKENS, *sorted(kept)))}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token=UNK))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _train_words(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNK))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(
        vocab_size=max(vocab_size, len(SPECIAL_TOKENS) + 1), special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
