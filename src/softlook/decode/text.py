"""Words to text, one by one, without ever showing half a character."""

import re
from collections.abc import Sequence

from softlook.tokens import TextTokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"
BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""How tokenizers in the manner of sentencepiece write a byte that they have no piece for."""


class TextStream:
    """The text of words as they come: what is shown put together is what all of them stand for.

    A character may be spread over several tokens, and the text of a token may depend on its neighbours; what can still
    change is kept until it no longer can. With `after`, the text goes on where those ids ended: a first word keeps its
    space.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer([], kind="bytes"))
    >>> stream = TextStream(tokenizer)
    >>> [stream.push(id) for id in tokenizer.encode(["né!"])[0]]
    ['n', '', 'é', '!']
    """

    def __init__(self, tokenizer: TextTokenizer, after: Sequence[int] = ()) -> None:
        self.tokenizer, self.silent = tokenizer, frozenset(tokenizer.special)
        self.window = [id for id in after if id not in self.silent]
        """What is decoded again with each word."""
        self.settled = len(self.window)
        """How much of it was there when all was shown the last time."""
        self.text = tokenizer.decode(self.window)
        self.shown = self._sure()

    def push(self, id: int) -> str:
        """What can be shown now that this word is there."""
        if id in self.silent:  # it stands for no text, and parts none: bytes around it may be one character
            return ""
        self.window.append(id)
        self.text = self.tokenizer.decode(self.window)
        return self._show(self._sure())

    def finish(self) -> str:
        """What was kept, as no more will come: half a character is shown as a sign for one."""
        return self._show(len(self.text))

    def _sure(self) -> int:
        """Characters that no further word can change.

        Bytes that are no character yet are one sign at the end. Where bytes are tokens of their own, those that follow
        each other are read as a whole: none of them is sure before another kind of token comes.
        """
        before = len(self.window)
        while before and BYTE.fullmatch(self.tokenizer.tokenizer.id_to_token(self.window[before - 1]) or ""):
            before -= 1
        if before < len(self.window):
            return len(self.tokenizer.decode(self.window[:before]))
        return len(self.text) - self.text.endswith(BROKEN)

    def _show(self, sure: int) -> str:
        piece = self.text[self.shown : sure]
        self.shown = max(self.shown, sure)
        if sure == len(self.text):
            self._settle()
        return piece

    def _settle(self) -> None:
        """Drop old words, but for some before what is to come: to a tokenizer, what comes first may be special."""
        text = self.tokenizer.decode(self.window[self.settled :])
        if text:
            self.window, self.text = self.window[self.settled :], text
            self.shown, self.settled = len(text), len(self.window)
