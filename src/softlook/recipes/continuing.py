"""Ask a language model: prompts in, what comes next out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import randbelow
from typing import Any

from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode import (
    Answer,
    Pick,
    Reason,
    Rule,
    Said,
    Stop,
    Token,
    json_schema,
    likeliest,
    repetition_penalty,
    sample,
    speaker_for,
    spoken,
)
from softlook.decode import generate as said_by
from softlook.decode import stream as streamed
from softlook.recipes.opened import Opened, Question, questions

LONGEST = 200
"""New tokens at most, where not told and there is room."""
TOGETHER, PLACES = 64, 1 << 15
"""Prompts that are gone on with together; fewer, where they and their answers have so many tokens."""


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How words are chosen, and where there are enough of them."""

    longest: int | None = None
    """New tokens at most; 200, or as many as there is room for, where not told."""
    temperature: float = 0.8
    """0 takes the likeliest word each time."""
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    """The same seed, the same answers. Another one each time, where not told."""
    stop: tuple[str, ...] = ()
    repetition: float = 1.0
    """Above 1, what was said already is said less."""
    schema: Mapping[str, Any] | None = None
    """A JSON schema that the answer keeps to."""


@dataclass(frozen=True)
class Continued:
    """How a text went on."""

    prompt: str
    text: str
    reason: Reason
    log_probability: float
    tokens: list[Token]
    pieces: list[str]
    """What each token stands for."""
    seed: int | None


def generate(
    run: Opened, prompts: Iterable[str | Question], manner: Manner | None = None, *, count: int = 1, first: int = 0
) -> list[Continued]:
    """How texts go on, each in `count` ways, in their order; an empty one is begun. They are held in memory together.

    With a seed, each answer has dice of its own, by its number: `first` is that of the first prompt.
    """
    told = _Told(run.asked_to("generate"), _seeded(manner or Manner()))
    if count < 1:
        raise ConfigError(f"count is how many answers each prompt gets, 1 at least; {count} came")
    asked = [one for one in questions(prompts) for _ in range(count)]
    rows = [told.row(one) for one in asked]
    answers: dict[int, Answer] = {}
    for numbers in told.batches(rows):
        found = said_by(
            run.model,
            [rows[number] for number in numbers],
            pick=told.pick([first * count + number for number in numbers]),
            rules=told.rules,
            end=run.signs.end,
            longest=told.longest(rows[numbers[0]]),
            stop=told.stop,
        )
        answers |= zip(numbers, found, strict=True)
    return [told.made(one, rows[number], answers[number]) for number, one in enumerate(asked)]


def stream(run: Opened, prompt: str | Question, manner: Manner | None = None, *, number: int = 0) -> Iterator[str]:
    """How one text goes on, piece by piece: put together, what `generate` says of it as prompt of this number."""
    told = _Told(run.asked_to("generate"), _seeded(manner or Manner()))
    row = told.row(*questions([prompt]))
    longest = told.longest(row)
    said = streamed(run.model, row, pick=told.pick([number]), rules=told.rules, end=run.signs.end, longest=longest)
    return spoken(said, told.stop, row)


def _seeded(manner: Manner) -> Manner:
    """Torch's generator starts alike in every process: a seed is drawn from elsewhere."""
    if manner.seed is not None or manner.temperature == 0:
        return manner
    return replace(manner, seed=randbelow(1 << 32))


class _Told:
    """A model and a manner, as the loop wants to know them."""

    def __init__(self, run: Opened, manner: Manner) -> None:
        self.run, self.manner = run, manner
        self.context = speaker_for(run.model).context
        self.stop = Stop(run.tokenizer, manner.stop)
        m, self.rules = manner, list[Rule]()
        if m.temperature < 0:
            raise ConfigError(f"a temperature is 0, for the likeliest word, or above; {m.temperature} came")
        self.drawn = likeliest() if m.temperature == 0 else sample(m.temperature, m.top_k, m.top_p, m.min_p, m.seed)
        if m.repetition != 1:
            self.rules.append(repetition_penalty(m.repetition))
        if m.schema is not None:
            self.rules.append(json_schema(run.tokenizer, m.schema, end=next(iter(run.signs.end), None)))

    def pick(self, numbers: Sequence[int]) -> Pick:
        """Dice by the number that an answer has among all, not by its place in a batch."""

        def numbered(scores: Tensor, said: Sequence[Said]) -> Tensor:
            return self.drawn(scores, [replace(one, number=numbers[one.number]) for one in said])

        return numbered

    def row(self, one: Question) -> list[int]:
        """The ids of a prompt, for which there has to be room."""
        signs = self.run.signs
        row = [*signs.before, *self.run.tokenizer.encode([one.text])[0]] or list(signs.begin)
        if not row:
            raise one.fault(f"{self.run.name} has no sign to begin a text with", "give it a few words to go on from")
        room = None if self.context is None else self.context - len(row)
        wanted = self.manner.longest
        if room is not None and room < (wanted or 1):
            what = f"{wanted or 1:,} new tokens after a prompt of {len(row):,} do not fit into {self.context:,} places"
            raise one.fault(what, f"--longest {room}, or a shorter prompt" if room > 0 else "shorten it")
        return row

    def longest(self, row: Sequence[int]) -> int:
        """New tokens that there may be. It depends on the prompt alone, so that neighbours do not change it."""
        room = LONGEST if self.context is None else self.context - len(row)
        return min(LONGEST, room) if self.manner.longest is None else self.manner.longest

    def batches(self, rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Numbers of prompts that are alike in length and have as much to say."""
        batch: list[int] = []
        for number in sorted(range(len(rows)), key=lambda number: -len(rows[number])):
            first = rows[batch[0]] if batch else rows[number]
            is_full = (len(batch) + 1) * (len(first) + self.longest(first)) > PLACES or len(batch) == TOGETHER
            if batch and (is_full or self.longest(first) != self.longest(rows[number])):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    def made(self, one: Question, row: Sequence[int], answer: Answer) -> Continued:
        pieces = self.run.pieces(answer.ids, row)
        seed = None if self.manner.temperature == 0 else self.manner.seed
        log_probability = answer.log_probability
        return Continued(one.text, answer.text or "", answer.reason, log_probability, answer.tokens, pieces, seed)
