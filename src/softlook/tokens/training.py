"""Tokenizers made on the spot from one's own text."""

from collections.abc import Iterable, Iterator
from typing import Literal

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from softlook.tokens.special import SPECIAL, UNKNOWN

Kind = Literal["bpe", "characters", "bytes", "words"]
LARGEST_CHARACTER_SET = 20_000
"""Different characters that a tokenizer of characters may have."""


def train_tokenizer(texts: Iterable[str], *, kind: Kind = "bpe", vocab: int = 8000) -> Tokenizer:
    """A tokenizer for these texts: pieces of words that occur often (bpe), single characters, bytes, or whole words.

    `vocab` is the most tokens it may have, those that stand for no text included; it has fewer where the texts are few.
    "bpe" and "bytes" can write anything; "characters" knows those it has seen, and "words" too, in small letters.

    >>> tokenizer = train_tokenizer(["she sells sea shells"] * 3, vocab=300)
    >>> tokenizer.decode(tokenizer.encode("she sells shells").ids)
    'she sells shells'
    """
    makers = {"bpe": _pieces, "characters": _characters, "bytes": _bytes, "words": _words}
    if kind not in makers:
        raise ValueError(f"a tokenizer is one of {', '.join(makers)}; {kind!r} came")
    return makers[kind](iter(texts), vocab)


def _pieces(texts: Iterator[str], vocab: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    # A first word is the same word as one behind a space; the space is taken off again at the end.
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=max(vocab, len(alphabet) + len(SPECIAL)),
        special_tokens=list(SPECIAL),
        initial_alphabet=alphabet,
        show_progress=False,
        max_token_length=32,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _bytes(texts: Iterator[str], vocab: int) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: number for number, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def _characters(texts: Iterator[str], vocab: int) -> Tokenizer:
    counts: dict[str, int] = {}
    for text in texts:
        for character in text:
            counts[character] = counts.get(character, 0) + 1
    kept = sorted(counts, key=lambda character: (-counts[character], character))[:LARGEST_CHARACTER_SET]
    ids = {token: number for number, token in enumerate((*SPECIAL, *sorted(kept)))}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token=UNKNOWN))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def _words(texts: Iterator[str], vocab: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(
        vocab_size=max(vocab, len(SPECIAL) + 1), special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
