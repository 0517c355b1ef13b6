"""Texts at which there is enough said."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from softlook.base.errors import ConfigError
from softlook.decode.said import Token
from softlook.decode.text import TextStream
from softlook.tokens import TextTokenizer


@dataclass(frozen=True)
class Stop:
    """Strings that end an answer, looked for in its text: one may begin and end in the middle of a token.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["stop and go"], kind="characters"))
    >>> heard = Stop(tokenizer, ("and",)).listen()
    >>> [heard.push(id) for id in tokenizer.encode(["stop ago"])[0]]
    ['s', 't', 'o', 'p', ' ', '', 'ag', 'o']
    """

    tokenizer: TextTokenizer
    strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.strings, str) or not all(self.strings):
            raise ConfigError(f"stop strings are a tuple of texts that are not empty; {self.strings!r} came")

    def listen(self, after: Sequence[int] = ()) -> "Listening":
        """A new ear for an answer that comes `after` these ids."""
        return Listening(TextStream(self.tokenizer, after), self.strings)


class Listening:
    """The text of one answer as it comes, without the string that stops it; what may become one is kept back."""

    def __init__(self, stream: TextStream, strings: Sequence[str]) -> None:
        self.stream, self.strings = stream, strings
        self.shown, self.kept, self.stopped = "", "", False

    def push(self, id: int) -> str:
        """What can be shown now that this word is there."""
        return self._show(self.stream.push(id))

    def finish(self) -> str:
        """What was kept back, as no more will come."""
        rest = self._show(self.stream.finish())
        kept, self.kept = self.kept, ""
        self.shown += kept
        return rest + kept

    def _show(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self.kept + text
        ends = [(text.find(string) + len(string), text.find(string)) for string in self.strings if string in text]
        self.stopped = bool(ends)
        # The first to be whole stops it, and of those that end there the longest: how text is cut up changes nothing.
        sure = min(ends)[1] if ends else len(text) - self._begun(text)
        self.kept = "" if ends else text[sure:]
        self.shown += text[:sure]
        return text[:sure]

    def _begun(self, text: str) -> int:
        """How much at the end of a text is the beginning of a stop string."""
        longest = max((len(string) - 1 for string in self.strings), default=0)
        sizes = range(min(longest, len(text)), 0, -1)
        return next((size for size in sizes if any(string.startswith(text[-size:]) for string in self.strings)), 0)


def spoken(tokens: Iterable[Token], stop: Stop, after: Sequence[int] = ()) -> Iterator[str]:
    """The text of tokens as they come, up to a stop string, at which the tokens are closed.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["stop and go"], kind="characters"))
    >>> tokens = [Token(id, 0.0, 1) for id in tokenizer.encode(["stop and go"])[0]]
    >>> "".join(spoken(tokens, Stop(tokenizer, (" a",))))
    'stop'
    """
    heard = stop.listen(after)
    try:
        for token in tokens:
            piece = heard.push(token.id)
            if piece:
                yield piece
            if heard.stopped:
                return
        rest = heard.finish()
        if rest:
            yield rest
    finally:
        if isinstance(tokens, Closing):
            tokens.close()


@runtime_checkable
class Closing(Protocol):
    """Whatever lets go of what it holds when told to, as generators do."""

    def close(self) -> None: ...
