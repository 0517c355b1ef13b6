"""What is asked of a model, and what comes back: plain values that pass from the web to the worker and back again."""

import logging
import time
from collections.abc import Callable, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field

from torch import Tensor

from softlook.decode import Hypothesis, Reason, Rule, Stop, Token
from softlook.decode.choosing import Row
from softlook.decode.habits import Habits
from softlook.decode.rules import frequency_penalty, presence_penalty, repetition_penalty

log = logging.getLogger("softlook.serve")
COLDEST = 1e-3
"""Temperatures below this are taken for 0: the likeliest word."""

FEW_ROWS = 16
"""Of a table: so many are answered in no time."""


@dataclass(frozen=True)
class Manner:
    """How words are chosen. Sequences of the same manner are chosen for together, each with dice of its own.

    >>> Manner(temperature=0.0, top_p=0.9).drawn, len(Manner(presence=0.5).rules())
    (False, 1)
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    top: int = 0
    """How many of the likeliest words are told with each."""
    own: tuple[Rule, ...] = ()
    """Rules of one request alone, after all others: a logit bias, the form of an answer."""

    @property
    def drawn(self) -> bool:
        """Are words drawn, or is it always the likeliest?"""
        return self.temperature >= COLDEST

    def rules(self) -> tuple[Rule, ...]:
        """What is done to the scores before."""
        found = (
            (self.repetition != 1, lambda: repetition_penalty(self.repetition)),
            (self.presence != 0, lambda: presence_penalty(self.presence)),
            (self.frequency != 0, lambda: frequency_penalty(self.frequency)),
        )
        return (*(make() for wanted, make in found if wanted), *self.own)


@dataclass(frozen=True)
class Search:
    """A beam search: several beginnings are kept, and the best whole answers are told."""

    beams: int
    penalty: float
    """The power of its length by which the log-probability of an answer is divided."""


@dataclass(frozen=True)
class Ask:
    """One sequence that is to be continued, one text that is to be read, or rows of a table."""

    prompt: tuple[int, ...]
    """What it begins with; for an encoder, the text; for an encoder-decoder, what its answer begins with."""
    source: tuple[int, ...] | None = None
    """What an encoder-decoder reads."""
    second: int | None = None
    """Where the second of two texts begins, for an encoder that reads two."""
    rows: Sized | None = None
    """What a table's model reads, in place of a prompt."""
    limit: int = 1
    """The most new words."""
    manner: Manner = field(default_factory=Manner)
    search: Search | None = None
    """How a translation is searched for, where it is: then the manner is not asked."""
    habits: Habits | None = None
    """Rules that the model keeps to, whoever asks."""
    looks: bool = False
    """Is only asked where the model looked: for the answer that the prompt is already, or at which columns?"""
    seed: int = 0
    number: int = 0
    """Which of several answers to the same question it is."""
    end: frozenset[int] = frozenset()
    stop: Stop | None = None
    """Texts to stop at, and how ids become text. None where nobody listens before the end."""
    stream: bool = False
    """Is every word to be told as it comes?"""

    @property
    def places(self) -> int:
        """Positions that it may take up in the model's memory."""
        return len(self.prompt) + self.limit

    @property
    def ways(self) -> int:
        """In how many ways it goes on at once."""
        return 1 if self.search is None else self.search.beams

    @property
    def is_long(self) -> bool:
        """Does it take so long that nobody shall wait behind it?"""
        return self.search is not None or (self.rows is not None and len(self.rows) > FEW_ROWS)

    def rules(self) -> tuple[Rule, ...]:
        """What is done to scores before a word is chosen: by the model's habits, then by the manner."""
        habits = ()
        if self.habits is not None:
            habits = self.habits.rules(self.limit, tuple(self.end), lambda said: self.source or ())
        return (*habits, *self.manner.rules())


@dataclass(frozen=True)
class Piece:
    """Something that came of an ask. The last piece has a reason, numbers, or a fault."""

    tokens: tuple[Token, ...] = ()
    text: str = ""
    reason: Reason | None = None
    numbers: Tensor | None = None
    """What an encoder says: scores of classes, or one vector. Of a translation, where it looked; of rows, their own."""
    found: tuple[Hypothesis, ...] = ()
    """What a search found, best first."""
    fault: Exception | None = None

    @property
    def last(self) -> bool:
        """Nothing comes after it."""
        return bool(self.reason or self.found or self.fault) or self.numbers is not None


Listener = Callable[["Ticket", Piece], None]
"""Called by the worker. It must return at once, and must not raise."""


@dataclass(eq=False)
class Ticket:
    """An ask on its way through the worker."""

    ask: Ask
    listener: Listener
    cancelled: bool = False
    """Set by whoever no longer waits; the worker drops it between two words."""
    over: bool = False
    fault: Exception | None = None
    """Why there is no answer, where there is none."""
    overtaken: int = 0
    """How many that came later were let in before it, because it found no room."""
    postponed: bool = False
    """Is it to wait until it is alone, because memory ran out in company?"""
    told: int = 0
    """How many tokens were told already."""
    shown: int = 0
    """And how many characters."""
    found: tuple[Hypothesis, ...] = ()
    """What a search found."""
    came: float = field(default_factory=time.monotonic)
    row: Row = field(init=False)

    def __post_init__(self) -> None:
        ask = self.ask
        heard = None if ask.stop is None else ask.stop.listen(ask.prompt[-16:])
        self.row = Row(list(ask.prompt), ask.number, ask.limit, heard)

    @property
    def prefix(self) -> tuple[int, ...]:
        """What the next token comes after: the prompt, and the tokens generated so far."""
        return (*self.ask.prompt, *self.row.new)

    def take(self, token: Token) -> None:
        """One word more; whoever streams hears of it."""
        self.row.take(token, self.ask.end)
        if self.row.reason is not None:
            self._finish(self.row.reason)
        elif self.ask.stream:
            self._tell(self._news())

    def answer(self, numbers: Tensor) -> None:
        """What an encoder says."""
        self._tell_last(Piece(numbers=numbers))

    def find(self, found: Sequence[Hypothesis]) -> None:
        """What a search found."""
        self.found = tuple(found)
        self._tell_last(Piece(found=self.found))

    def fail(self, fault: Exception) -> None:
        """There will be no answer."""
        if not self.over:
            self.fault = fault
            self._tell_last(Piece(fault=fault))

    def _finish(self, reason: Reason) -> None:
        if self.row.listening is not None:
            self.row.listening.finish()
        news = self._news()
        self._tell_last(Piece(news.tokens, news.text, reason))

    def _news(self) -> Piece:
        tokens, shown = tuple(self.row.tokens[self.told :]), self.row.listening.shown if self.row.listening else ""
        piece = Piece(tokens, shown[self.shown :])
        self.told, self.shown = len(self.row.tokens), len(shown)
        return piece

    def _tell_last(self, piece: Piece) -> None:
        if not self.over:
            self.over = True
            self._tell(piece)

    def _tell(self, piece: Piece) -> None:
        try:
            self.listener(self, piece)
        except Exception as fault:  # it is out of reach, and everybody else is not
            log.error("what came of a request could not be told", exc_info=fault)
            self.over, self.fault = True, fault
            with suppress(Exception):
                self.listener(self, Piece(fault=fault))
