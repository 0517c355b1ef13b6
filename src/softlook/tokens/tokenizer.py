"""TextTokenizer: encode, decode, special tokens."""

from collections.abc import Sequence
from functools import cached_property
from typing import overload

from tokenizers import Tokenizer

from softlook.base.errors import DataError
from softlook.tokens.loading import convert_panics, copy_tokenizer

PAD, BOS, EOS, UNK, MASK, CLS, SEP = "<pad>", "<s>", "</s>", "<unk>", "<mask>", "<cls>", "<sep>"
SPECIAL_TOKENS = (PAD, BOS, EOS, UNK, MASK, CLS, SEP)
ALTERNATIVES = {
    PAD: ("[PAD]", "<|endoftext|>", "</s>"),
    BOS: ("[CLS]", "<|endoftext|>"),
    EOS: ("[SEP]", "<|endoftext|>"),
    MASK: ("[MASK]",),
    CLS: ("[CLS]", "<s>"),
    SEP: ("[SEP]", "</s>"),
}
"""Their names in other tokenizers."""
MAX_TEXT_CHARS = 1_000_000
"""Characters of one text. Beyond this a tokenizer's time grows faster than its text."""


class TextTokenizer:
    """A tokenizer with the special token ids a model needs. An id that the tokenizer lacks raises an error on access.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["she sells sea shells"], vocab_size=300))
    >>> tokenizer.decode(tokenizer.encode("she sells"))
    'she sells'
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # a special token written out in a text, as "</s>", is plain text

    @property
    def pad_id(self) -> int:
        """The padding token."""
        return self._id(PAD)

    @property
    def bos_id(self) -> int:
        """The beginning-of-sequence token."""
        return self._id(BOS)

    @property
    def eos_id(self) -> int:
        """The end-of-sequence token."""
        return self._id(EOS)

    @property
    def mask_id(self) -> int:
        """The mask token of masked language models."""
        return self._id(MASK)

    @property
    def cls_id(self) -> int:
        """The class token, whose output stands for the whole text."""
        return self._id(CLS)

    @property
    def sep_id(self) -> int:
        """The separator between two texts."""
        return self._id(SEP)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of all special tokens."""
        return tuple(sorted(id for id, token in self.tokenizer.get_added_tokens_decoder().items() if token.special))

    def _id(self, name: str) -> int:
        ids = (self.tokenizer.token_to_id(token) for token in (name, *ALTERNATIVES[name]))
        found = next((id for id in ids if id is not None), None)
        if found is None:
            raise DataError(f"this tokenizer has no {name}. Train one that has: softlook tokenizer train")
        return found

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size()

    @overload
    def encode(self, texts: str, *, parse_special: bool = False) -> list[int]: ...  # pyright: ignore[reportOverlappingOverload]  (a str is a Sequence[str] too)

    @overload
    def encode(self, texts: Sequence[str], *, parse_special: bool = False) -> list[list[int]]: ...

    def encode(self, texts: str | Sequence[str], *, parse_special: bool = False) -> list[int] | list[list[int]]:
        """Ids of one text, or of each of several. Special tokens written out are plain text unless `parse_special`.

        >>> from softlook.tokens import train_tokenizer
        >>> tokenizer = TextTokenizer(train_tokenizer([], model_type="bytes"))
        >>> tokenizer.encode(["</s>"], parse_special=True) == [[tokenizer.eos_id]]
        True
        >>> tokenizer.eos_id in tokenizer.encode("</s>")
        False
        """
        if isinstance(texts, str):
            return self.encode([texts], parse_special=parse_special)[0]
        tokenizer = self._parsing_tokenizer if parse_special else self.tokenizer
        valid = [_replace_surrogates(text) for text in texts]
        with convert_panics(DataError, "the tokenizer failed to encode this text"):
            return [encoding.ids for encoding in tokenizer.encode_batch(valid, add_special_tokens=False)]

    @cached_property
    def _parsing_tokenizer(self) -> Tokenizer:
        """A copy that parses special tokens; the original may be in use by other threads."""
        return copy_tokenizer(self.tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        with convert_panics(DataError, "the tokenizer failed to decode these ids"):
            return self.tokenizer.decode(list(ids), skip_special_tokens=True)


def is_softlook_tokenizer(tokenizer: Tokenizer) -> bool:
    """Whether softlook trained this tokenizer: then its special tokens have fixed ids."""
    return all(tokenizer.token_to_id(token) == id for id, token in enumerate(SPECIAL_TOKENS))


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded, by U+FFFD."""
    if len(text) > MAX_TEXT_CHARS:
        raise DataError(f"expected a text of at most {MAX_TEXT_CHARS:,} characters, got {len(text):,}")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
