"""Tokenizers of every decoder type."""

from tokenizers import Tokenizer, decoders, models

from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.tokenizer import SPECIAL_TOKENS

TEXTS = [
    "she sells sea shells by the sea shore",
    "naïve façade, déjà vu — 日本語 🎉 ok",
    "  two  spaces\n\nand lines",
] * 3


def sentencepiece() -> Tokenizer:
    """Tokens with a symbol for the space before them, and byte fallback: as in Llama 2."""
    pieces = ["\u2581", "\u2581the", "\u2581sea", "shell", "s", "a", "b", "\u2581a", "é", "\u2581\u2581", "�"]
    tokens = [*SPECIAL_TOKENS, *[f"<0x{byte:02X}>" for byte in range(256)], *pieces]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def metaspace() -> Tokenizer:
    """A symbol for each space, the first of which is stripped: as in T5."""
    tokens = [*SPECIAL_TOKENS, "\u2581", "\u2581the", "\u2581sea", "shell", "s", "é", "\u2581\u2581", "日"]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, []))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def wordpiece() -> Tokenizer:
    """Words, and pieces that continue a word: as in BERT."""
    tokens = [*SPECIAL_TOKENS, "the", "sea", "##shell", "##s", ".", "n't", ",", "don", "é"]
    tokenizer = Tokenizer(models.WordPiece({token: id for id, token in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def suffixed() -> Tokenizer:
    """Tokens with an end-of-word suffix, which is decoded to a space unless it is the last: as in the first GPT."""
    tokens = [*SPECIAL_TOKENS, "the</w>", "sea</w>", "sh", "ell", "s</w>", ".</w>"]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, [], end_of_word_suffix="</w>"))
    tokenizer.decoder = decoders.BPEDecoder()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


TOKENIZERS: dict[str, TextTokenizer] = {
    **{
        kind: TextTokenizer(train_tokenizer(TEXTS, model_type=kind, vocab_size=320))
        for kind in ("bpe", "bytes", "characters", "words")
    },
    "sentencepiece": TextTokenizer(sentencepiece()),
    "metaspace": TextTokenizer(metaspace()),
    "wordpiece": TextTokenizer(wordpiece()),
    "suffixed": TextTokenizer(suffixed()),
}
