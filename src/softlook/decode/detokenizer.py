"""Incremental detokenization and stop strings."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from softlook.base.errors import ConfigError
from softlook.decode.outputs import GeneratedToken
from softlook.tokens import TextTokenizer

REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"
BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""Byte fallback tokens of SentencePiece-style tokenizers."""


class IncrementalDetokenizer:
    """Text of tokens as they are generated. The pieces concatenate to the decoding of all tokens.

    A character may span several tokens, and the text of a token may depend on its neighbors: text that can still change
    is held back. With `after`, the text continues the text of those ids, so that a first word keeps its space.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer([], model_type="bytes"))
    >>> detokenizer = IncrementalDetokenizer(tokenizer)
    >>> [detokenizer.push(id) for id in tokenizer.encode("né!")]
    ['n', '', 'é', '!']
    """

    def __init__(self, tokenizer: TextTokenizer, after: Sequence[int] = ()) -> None:
        self.tokenizer, self.special_ids = tokenizer, frozenset(tokenizer.special_ids)
        self.window = [id for id in after if id not in self.special_ids]
        """Ids that are decoded again with each token."""
        self.emitted_ids = len(self.window)
        """Length of the window when all its text had been emitted."""
        self.text = tokenizer.decode(self.window)
        self.emitted = self._stable_length()
        """Number of characters of `text` emitted so far."""

    def push(self, id: int) -> str:
        """Add a token and return the text that is final now."""
        if id in self.special_ids:  # it has no text, and does not separate the bytes around it
            return ""
        self.window.append(id)
        self.text = self.tokenizer.decode(self.window)
        return self._emit(self._stable_length())

    def finish(self) -> str:
        """Return the text held back; an incomplete character becomes the replacement character."""
        return self._emit(len(self.text))

    def _stable_length(self) -> int:
        """Number of characters that no further token can change.

        Incomplete bytes decode to one replacement character at the end. Consecutive byte fallback tokens are decoded as
        a whole: none of them is final before another kind of token follows.
        """
        before = len(self.window)
        while before and BYTE_TOKEN.fullmatch(self.tokenizer.tokenizer.id_to_token(self.window[before - 1]) or ""):
            before -= 1
        if before < len(self.window):
            return len(self.tokenizer.decode(self.window[:before]))
        return len(self.text) - self.text.endswith(REPLACEMENT_CHARACTER)

    def _emit(self, length: int) -> str:
        piece = self.text[self.emitted : length]
        self.emitted = max(self.emitted, length)
        if length == len(self.text):
            self._shrink_window()
        return piece

    def _shrink_window(self) -> None:
        """Drop old tokens, but keep some before the next one: tokenizers may treat a first token differently."""
        text = self.tokenizer.decode(self.window[self.emitted_ids :])
        if text:
            self.window, self.text = self.window[self.emitted_ids :], text
            self.emitted, self.emitted_ids = len(text), len(self.window)


@dataclass(frozen=True)
class StopStrings:
    """Strings that end generation, matched in the text: one may start and end inside a token.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["stop and go"], model_type="characters"))
    >>> checker = StopStrings(tokenizer, ("and",)).checker()
    >>> [checker.push(id) for id in tokenizer.encode("stop ago")]
    ['s', 't', 'o', 'p', ' ', '', 'ag', 'o']
    """

    tokenizer: TextTokenizer
    strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.strings, str) or not all(self.strings):
            raise ConfigError(f"stop strings must be a tuple of non-empty strings, got {self.strings!r}")

    def checker(self, after: Sequence[int] = ()) -> "StopChecker":
        """A new checker for the text that follows these ids."""
        return StopChecker(IncrementalDetokenizer(self.tokenizer, after), self.strings)


class StopChecker:
    """Text of one sequence up to a stop string; a possible start of one is held back."""

    def __init__(self, detokenizer: IncrementalDetokenizer, strings: Sequence[str]) -> None:
        self.detokenizer, self.strings = detokenizer, strings
        self.text, self.pending, self.stopped = "", "", False

    def push(self, id: int) -> str:
        """Add a token and return the text that is final now."""
        return self._emit(self.detokenizer.push(id))

    def finish(self) -> str:
        """Return the text held back."""
        rest = self._emit(self.detokenizer.finish())
        pending, self.pending = self.pending, ""
        self.text += pending
        return rest + pending

    def _emit(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self.pending + text
        matches = [(text.find(string) + len(string), text.find(string)) for string in self.strings if string in text]
        self.stopped = bool(matches)
        # The match that ends first counts, and of those the longest, however the text is split into tokens.
        length = min(matches)[1] if matches else len(text) - self._partial_match(text)
        self.pending = "" if matches else text[length:]
        self.text += text[:length]
        return text[:length]

    def _partial_match(self, text: str) -> int:
        """Number of characters at the end of the text that are a prefix of a stop string."""
        max_size = max((len(string) - 1 for string in self.strings), default=0)
        sizes = range(min(max_size, len(text)), 0, -1)
        return next((size for size in sizes if any(string.startswith(text[-size:]) for string in self.strings)), 0)


def stream_text(
    tokens: Iterable[GeneratedToken], stop_strings: StopStrings, after: Sequence[int] = ()
) -> Iterator[str]:
    """Text of generated tokens, up to a stop string, at which the token iterator is closed.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["stop and go"], model_type="characters"))
    >>> tokens = [GeneratedToken(id, 0.0, 1) for id in tokenizer.encode("stop and go")]
    >>> "".join(stream_text(tokens, StopStrings(tokenizer, (" a",))))
    'stop'
    """
    checker = stop_strings.checker(after)
    try:
        for token in tokens:
            piece = checker.push(token.id)
            if piece:
                yield piece
            if checker.stopped:
                return
        rest = checker.finish()
        if rest:
            yield rest
    finally:
        if isinstance(tokens, Closeable):
            tokens.close()


@runtime_checkable
class Closeable(Protocol):
    """An iterator with a `close` method, such as a generator."""

    def close(self) -> None: ...
