"""Many words without a look at any: a GPU chooses by itself, and what it said is read while it says on.

The host is some words behind. Whatever was said after an end is thrown away: rows know nothing of each other, so what
is kept is what word by word would have said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softlook.decode.captured.graphs import Graph
from softlook.decode.captured.parts import Plain
from softlook.decode.captured.plan import Plan
from softlook.decode.captured.speaker import FEWER, Captured
from softlook.decode.captured.step import State, scores
from softlook.decode.choosing import Asked, Row, Told, as_tokens, told
from softlook.decode.picking import Likeliest, Sample, dice, drawn
from softlook.decode.row_errors import LogitsError
from softlook.decode.said import Token

LINES = 32
"""Words that are said before anybody looks; a few at first."""
FIRST = 4


def can_run(asked: Asked) -> bool:
    """Can words be chosen without Python? Rules, and picks of one's own, are written in it."""
    return not asked.rules and isinstance(asked.pick, Likeliest | Sample)


def running(speaker: Captured, rows: Sequence[Row], new: Tensor, asked: Asked) -> Iterator[list[Token]]:
    """The words of all rows after these new ones, until the last is done. The rows take them in."""
    rows = list(rows)
    while rows:
        yield from _batch(speaker, rows, new, asked)
        going = [place for place, row in enumerate(rows) if row.going]
        rows = [rows[place] for place in going]
        if rows:
            speaker.select(torch.tensor(going, device=speaker.device))
            new = torch.tensor([row.new[-1:] for row in rows], device=speaker.device)


def _batch(speaker: Captured, rows: list[Row], new: Tensor, asked: Asked) -> Iterator[list[Token]]:
    """Until all rows are done, or so few are left that it pays to go on without the others."""
    left = max(row.limit - len(row.new) for row in rows)
    speaker.settle()
    speaker.make_room(left)
    assert speaker.state is not None
    speaker.state.ids.copy_(new[:, 0])
    recorded = _recorded(speaker, asked)
    said, lines, waiting = len(rows[0].new), FIRST, list[Lines]()
    while True:
        count = min(lines, left) if len(waiting) < 2 and not _few(rows) else 0
        if count:
            waiting.append(recorded.run(count, recorded.thrown(asked.pick, rows, said, count)))
            speaker.length += count
            left, said, lines = left - count, said + count, min(2 * lines, LINES)
            if left and len(waiting) < 2:
                continue
        if not waiting:
            return
        for tokens in waiting.pop(0).tokens():
            yield from _taken(rows, tokens, asked)
            if not any(row.going for row in rows):
                return


def _few(rows: list[Row]) -> bool:
    going = sum(row.going for row in rows)
    return going < len(rows) and going * FEWER <= len(rows)


def _taken(rows: list[Row], tokens: list[Token], asked: Asked) -> Iterator[list[Token]]:
    """One word of each row that was still under way."""
    going = [(row, token) for row, token in zip(rows, tokens, strict=True) if row.going]
    for row, token in going:
        is_broken = token.log_probability != token.log_probability
        row.take(LogitsError.of([row.number], len(row.new) + 1) if is_broken else token, asked.end)
    yield [token for row, token in going if row.error is None]


def _recorded(speaker: Captured, asked: Asked) -> "Recorded":
    """The graph for these places and this way to choose: one from before, if there is any."""
    state = speaker.state
    assert state is not None
    key = asked.pick, asked.top
    if key not in state.graphs:
        state.graphs = {key: Recorded(speaker.plan, speaker.parts, state, asked.pick, asked.top)}
    return state.graphs[key]


@dataclass
class Lines:
    """Words on their way to the host."""

    told: Told
    """(count, M) each, in the host's memory."""
    arrived: Any
    """When they are there; None where they are already."""

    def tokens(self) -> Iterator[list[Token]]:
        if self.arrived is not None:
            self.arrived.synchronize()
        for line in zip(*self.told, strict=True):
            yield as_tokens(Told(*line))


class Recorded:
    """A step that chooses its words by itself and writes down what there is to tell of them, line after line."""

    def __init__(self, plan: Plan, parts: Plain, state: State, pick: Any, top: int) -> None:
        rows, device = len(state.ids), state.ids.device
        whole, real = {"dtype": torch.long, "device": device}, {"dtype": torch.float32, "device": device}
        top = min(top, len(plan.head.weight))
        self.told = Told(
            torch.zeros(LINES, rows, **whole),
            torch.zeros(LINES, rows, **real),
            torch.ones(LINES, rows, **whole),
            torch.zeros(LINES, rows, top, **whole),
            torch.zeros(LINES, rows, top, **real),
        )
        self.dice = torch.zeros(LINES, rows, dtype=torch.float64, device=device)
        self.state, self.work = state, Graph(lambda: _step(plan, parts, state, pick, self.told, self.dice), device)

    def run(self, count: int, thrown: Tensor | None) -> Lines:
        """So many words of all rows; the host does not wait for them."""
        self.state.step.zero_()
        if thrown is not None:
            self.dice[:count].copy_(thrown, non_blocking=True)
        for _ in range(count):
            self.work()
        if self.state.ids.device.type != "cuda":
            return Lines(Told(*(part[:count].clone() for part in self.told)), None)
        held = Told(*(_on_host(part[:count]) for part in self.told))
        arrived = torch.cuda.Event()
        arrived.record()
        return Lines(held, arrived)

    def thrown(self, pick: Any, rows: list[Row], said: int, count: int) -> Tensor | None:
        """The dice for these words: those that each would have been told alone."""
        if not isinstance(pick, Sample):
            return None
        if pick.seed is None:
            return torch.rand(count, len(rows), dtype=torch.float64)
        thrown = [[dice(pick.seed, row.number, word) for row in rows] for word in range(said, said + count)]
        return torch.tensor(thrown, dtype=torch.float64)


def _on_host(part: Tensor) -> Tensor:
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)


def _step(plan: Plan, parts: Plain, state: State, pick: Any, lines: Told, thrown: Tensor) -> None:
    """Ask, choose, write down, and make the words those that are read next."""
    found = scores(plan, parts, state)
    if isinstance(pick, Likeliest) and not lines.top_ids.shape[-1]:
        parts.say(found, state.ids, lines.ids, lines.chances, state.step)
    else:
        found = found.float()
        ids = found.argmax(-1)
        if isinstance(pick, Sample):
            ids = drawn(pick.warped(found), thrown.index_select(0, state.step)[0])
        for line, part in zip(lines, told(found.log_softmax(-1), ids, lines.top_ids.shape[-1]), strict=True):
            line.index_copy_(0, state.step, part[None])
        state.ids.copy_(ids)
    state.past.at.add_(1)
    state.step.add_(1)
