"""Beam searches that take turns with everybody else, and answers of which is asked where they looked."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from softlook.decode import Hypothesis, power, speaker_for
from softlook.decode.alignment import looks
from softlook.decode.beams import Beams
from softlook.decode.rows import filled
from softlook.decode.search import Wanted
from softlook.decode.speaking import device_of
from softlook.serve.asking import Ticket
from softlook.serve.recovery import NonFiniteError


class SearchGroup:
    """Searches of one kind that began together. One word of all their ways is a turn."""

    def __init__(self, model: Any, tickets: Sequence[Ticket]) -> None:
        self.model, self.tickets, self.members = model, list(tickets), list(tickets)
        self.beams: Beams | None = None

    def turn(self) -> "list[SearchGroup]":
        """Bring all of them on by a word. Who is over is told, whoever else still searches."""
        if all(ticket.cancelled for ticket in self.tickets):
            return []
        self.beams = self._begun() if self.beams is None else self.beams
        self.beams.drop([number for number, ticket in enumerate(self.members) if ticket.cancelled])
        going = self.beams.under_way if self.beams.step() else []
        self._tell({*range(len(self.members))} - {*going}, self.beams)
        self.tickets = [self.members[number] for number in going]
        return [self] if going else []

    def restart(self, tickets: Sequence[Ticket]) -> "SearchGroup":
        """From the beginning: of a search nothing is told before its end."""
        return SearchGroup(self.model, tickets)

    def release(self) -> None:
        self.tickets, self.members, self.beams = [], [], None

    def _tell(self, numbers: set[int], beams: Beams) -> None:
        left = [number for number in numbers if not (self.members[number].over or self.members[number].cancelled)]
        whole = beams.whole() if left else []
        for number in left:
            if whole[number] and all(map(_is_finite, whole[number])):
                self.members[number].find(whole[number])
            else:
                self.members[number].fail(NonFiniteError("the scores of tokens"))

    def _begun(self) -> Beams:
        asks = [ticket.ask for ticket in self.members]
        one = asks[0]
        assert one.search is not None
        speaker = speaker_for(self.model, *filled([ask.source or () for ask in asks], device_of(self.model)))
        wanted = Wanted(
            ends=tuple(sorted(one.end)),
            longest=one.limit,
            shortest=0,
            beams=one.search.beams,
            groups=1,
            diversity=0.0,
            penalty=power(one.search.penalty),
            coverage=0.0,
            early_stopping="never" if one.habits is None else one.habits.early,
        )
        start = torch.tensor([ask.prompt for ask in asks], device=speaker.device)
        told: dict[str, Any] = {"musts": None, "looks": None, "align": False, "tell": None}
        return Beams(speaker, start, None, wanted, rules=one.rules(), **told)


class LookGroup:
    """Answers of which is asked where they looked. One reading is all it takes."""

    def __init__(self, model: Any, tickets: Sequence[Ticket]) -> None:
        self.model, self.tickets = model, list(tickets)

    def turn(self) -> "list[LookGroup]":
        left = [ticket for ticket in self.tickets if not ticket.cancelled]
        if not left:
            return []
        maps = looks(self.model, [ticket.ask.source or () for ticket in left], [ticket.ask.prompt for ticket in left])
        for ticket, found in zip(left, maps, strict=True):
            if found.isfinite().all():
                ticket.answer(found.clone())
            else:
                ticket.fail(NonFiniteError("attention weights"))
        return []

    def restart(self, tickets: Sequence[Ticket]) -> "LookGroup":
        return LookGroup(self.model, tickets)

    def release(self) -> None:
        self.tickets = []


def _is_finite(found: Hypothesis) -> bool:
    """-inf is a score too: of what a rule forbids, where nothing else was left."""
    return not math.isnan(found.score) and found.score < math.inf
