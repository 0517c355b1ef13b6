"""Text into ids and back, so that odd text is no surprise."""

from collections.abc import Sequence
from functools import cached_property

from tokenizers import Tokenizer

from softlook.base.errors import DataError
from softlook.tokens.loading import duplicate
from softlook.tokens.special import ALSO, BEGIN, CLASS, END, MASK, PAD, SEPARATOR

LONGEST = 1_000_000
"""Characters of one text. Beyond this a tokenizer's time grows faster than its text."""


class TextTokenizer:
    """A tokenizer with the ids that a model has to know of; other people's may lack some, and then asking is an error.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["she sells sea shells"], vocab=300))
    >>> tokenizer.decode(tokenizer.encode(["she sells"])[0])
    'she sells'
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # a sign that somebody wrote out, as "</s>", is text like any other

    @property
    def pad(self) -> int:
        """Fills rows up."""
        return self._id(PAD)

    @property
    def begin(self) -> int:
        """Stands before the first word that is said."""
        return self._id(BEGIN)

    @property
    def end(self) -> int:
        """Says that there is no more to say."""
        return self._id(END)

    @property
    def mask(self) -> int:
        """Stands for a hidden word."""
        return self._id(MASK)

    @property
    def first(self) -> int:
        """A global unit: it stands for the whole text."""
        return self._id(CLASS)

    @property
    def separator(self) -> int:
        """Between two texts."""
        return self._id(SEPARATOR)

    @property
    def special(self) -> tuple[int, ...]:
        """All ids that stand for no text."""
        return tuple(
            sorted(number for number, token in self.tokenizer.get_added_tokens_decoder().items() if token.special)
        )

    def _id(self, name: str) -> int:
        found = (self.tokenizer.token_to_id(known) for known in (name, *ALSO[name]))
        number = next((number for number in found if number is not None), None)
        if number is None:
            raise DataError(f"this tokenizer has no {name}. One that softlook trained has: softlook tokenizer train")
        return number

    @property
    def vocab(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str], *, signs: bool = False) -> list[list[int]]:
        """Ids of each text. Where a chat template wrote it, `signs` in it stand for no text and are read as such.

        >>> from softlook.tokens import train_tokenizer
        >>> tokenizer = TextTokenizer(train_tokenizer([], kind="bytes"))
        >>> tokenizer.encode(["</s>"], signs=True) == [[tokenizer.end]], tokenizer.end in tokenizer.encode(["</s>"])[0]
        (True, False)
        """
        whole, tokenizer = [_sound(text) for text in texts], self._reading_signs if signs else self.tokenizer
        try:
            return [coded.ids for coded in tokenizer.encode_batch(whole, add_special_tokens=False)]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:  # the library behind it panics, and a panic is no Exception
            raise DataError(f"the tokenizer could not read this text: {str(fault):.200}") from None

    @cached_property
    def _reading_signs(self) -> Tokenizer:
        """The same one, of its own: others may be reading at this moment."""
        return duplicate(self.tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        """The text that ids stand for; those that stand for none are left out."""
        try:
            return self.tokenizer.decode(list(ids), skip_special_tokens=True)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:  # the library behind it panics, and a panic is no Exception
            raise DataError(f"the tokenizer could not write these tokens: {str(fault):.200}") from None


def _sound(text: str) -> str:
    """Halves of characters cannot be written down: a sign takes their place."""
    if len(text) > LONGEST:
        raise DataError(f"a text of {len(text):,} characters came; at most {LONGEST:,} are taken at once")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
