"""Words: splitting texts into words, and words into the tokens of a tokenizer."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from softlook.tokens.template import template_from_tokenizer
from softlook.tokens.tokenizer import UNK, TextTokenizer

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Characters of scripts without spaces, each of which is a word."""
LETTER = rf"[^\W{CJK}]"
WORD = re.compile(rf"(?:[^\W\d_{CJK}]\.){{2,}}|\d+(?:[.,:/-]\d+)*(?!\w)|{LETTER}+(?:[-'’]{LETTER}+)*|\S")
SENTENCE_ENDS = frozenset(".!?…。！？;")
"""Words after which a long text is split, if possible."""


class Word(NamedTuple):
    """A word and its character offsets in the text."""

    text: str
    start: int
    end: int


def split_words(text: str, *, is_split_into_words: bool = False) -> list[Word]:
    """Words and punctuation marks, or the parts between spaces if the text is split into words already.

    >>> [word.text for word in split_words("Dr. Smith's $3.50, in the U.S.A. on 3/4")]
    ['Dr', '.', "Smith's", '$', '3.50', ',', 'in', 'the', 'U.S.A.', 'on', '3/4']
    """
    pattern = re.compile(r"\S+") if is_split_into_words else WORD
    return [Word(found[0], found.start(), found.end()) for found in pattern.finditer(text)]


class WordChunk(NamedTuple):
    """Consecutive words of a text as token ids, with special tokens."""

    ids: list[int]
    token_types: list[int]
    positions: list[int]
    """The index of each word's first token."""


class WordEncoder:
    """Encodes words one by one, so that the first token of each is known; long texts become several chunks.

    >>> from softlook.tokens import train_tokenizer
    >>> encoder = WordEncoder(TextTokenizer(train_tokenizer([], model_type="bytes")), max_length=8)
    >>> [chunk.positions for chunk in encoder.encode([["ab", "c", "de"]])[0]]
    [[1, 4], [1]]
    """

    def __init__(self, tokenizer: TextTokenizer, max_length: int) -> None:
        self.tokenizer, self.template = tokenizer, template_from_tokenizer(tokenizer)
        self.max_ids = max(max_length - self.template.num_special_single, 1)
        self.num_before = len(self.template.single[0])
        self.prefix = _word_prefix(tokenizer)
        self.unknown = _unknown_id(tokenizer)

    def encode(self, texts: Sequence[Sequence[str]]) -> list[list[WordChunk]]:
        """The chunks of each text."""
        words = list(dict.fromkeys(word for text in texts for word in text))
        encoded = self.tokenizer.encode([self.prefix + word for word in words])
        ids = {word: row or [self.unknown] for word, row in zip(words, encoded, strict=True)}
        return [[self._chunk(part, ids) for part in self._split(text, ids)] for text in texts]

    def _split(self, text: Sequence[str], ids: dict[str, list[int]]) -> list[Sequence[str]]:
        """Parts of at most `max_ids` tokens, split after the end of a sentence if there is one in the second half."""
        parts: list[Sequence[str]] = []
        start, length, end_of_sentence = 0, 0, 0
        sizes = [min(len(ids[word]), self.max_ids) for word in text]
        for index, word in enumerate(text):
            while length + sizes[index] > self.max_ids:
                end = end_of_sentence if 2 * end_of_sentence > start + index else index
                parts.append(text[start:end])
                start, length = end, sum(sizes[end:index])
            length += sizes[index]
            if word in SENTENCE_ENDS:
                end_of_sentence = index + 1
        return [*parts, text[start:]] if start < len(text) else parts

    def _chunk(self, words: Sequence[str], ids: dict[str, list[int]]) -> WordChunk:
        flat: list[int] = []
        positions: list[int] = []
        for word in words:
            positions.append(self.num_before + len(flat))
            flat += ids[word][: self.max_ids]
        return WordChunk(*self.template.apply(flat), positions)


def _word_prefix(tokenizer: TextTokenizer) -> str:
    """A space if the tokens of a word depend on the space before it, as in byte-level BPE."""
    first, second, spaced, both = tokenizer.encode(["a", "b", " b", "a b"])
    return " " if both != first + second and both == first + spaced else ""


def _unknown_id(tokenizer: TextTokenizer) -> int:
    """The token of a word for which the tokenizer has none."""
    found = (tokenizer.tokenizer.token_to_id(name) for name in (UNK, "[UNK]"))
    return next((id for id in found if id is not None), tokenizer.sep_id)
