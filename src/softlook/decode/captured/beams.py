"""Beam search that stays on the GPU: candidates, what is kept and what is whole are worked out in the captured step.

It finds what `Beams` finds, where nobody asks for more than the best sequences. The host only looks now and then
whether anything is left to do.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.decode.captured.graphs import Graph
from softlook.decode.captured.speaker import Captured
from softlook.decode.captured.step import scores
from softlook.decode.outlook import Outlook
from softlook.decode.search import Candidates, Found, Hypothesis, Wanted, candidates, choose

LOOK = 4
"""Words between two looks at what is left."""


@dataclass
class Kinds:
    """What there is of N sequences with K ways each; history, (N, L, K), is written once and never moved."""

    totals: Tensor
    """(N, K): what each way has in all."""
    parents: Tensor
    words: Tensor
    own: Tensor
    """Of each way at each length: where it came from, its last word, and that word's log-probability."""
    found: Tensor
    """(N, K): scores of the whole sequences, best first; -inf where there are fewer."""
    found_length: Tensor
    found_beam: Tensor
    found_word: Tensor
    found_own: Tensor
    """Of each: its length with its end, the way it came from, and its last word or end."""
    over: Tensor
    """(N,): nothing better can come."""

    def only(self, rows: Tensor) -> "Kinds":
        """Of these sequences alone."""
        return Kinds(*(getattr(self, field.name).index_select(0, rows) for field in fields(self)))


class CapturedBeams:
    """A search under way."""

    def __init__(self, speaker: Captured, start: Tensor, lengths: Tensor | None, wanted: Wanted) -> None:
        self.speaker, self.start, self.lengths, self.wanted = speaker, start, lengths, wanted
        device, N, K, L = start.device, len(start), wanted.beams, wanted.longest
        divisors = [wanted.penalty(length) for length in range(1, L + 1)]
        double = {"dtype": torch.float64, "device": device}
        self.divisors, self.kindest = (
            torch.tensor([1.0, *divisors], **double),
            torch.tensor(Found(wanted).kindest, **double),
        )
        self.ends = torch.tensor(wanted.ends, device=device)
        whole, real = torch.zeros(N, L, K, dtype=torch.long, device=device), torch.zeros(N, L, K, device=device)
        none = torch.full((N, K), -torch.inf, **double)
        ways = torch.zeros(N, K, dtype=torch.long, device=device)
        self.all = Kinds(
            torch.zeros(N, 1, device=device), whole, whole.clone(), real, none, ways, ways.clone(), ways.clone(),
            torch.zeros(N, K, device=device), torch.zeros(N, dtype=torch.bool, device=device),
        )  # fmt: skip
        self.numbers = list(range(N))
        self.results: list[list[Hypothesis]] = [[] for _ in range(N)]

    def run(self) -> list[list[Hypothesis]]:
        if self._first():
            said = 1
            while said < self.wanted.longest and self.numbers:
                said = self._several(said)
        self._finish(torch.arange(len(self.numbers), device=self.start.device))
        return self.results

    def _first(self) -> bool:
        """The first word: all ways of a sequence are one as yet. Is there anything to do behind it?"""
        made, wanted = self.speaker.next(self.start, self.lengths), self.wanted
        found = self.speaker.parts.best_words(made, wanted.width + len(wanted.ends))
        length = torch.ones(1, dtype=torch.long, device=made.device)
        self._advance(found, length)
        if wanted.longest == 1 or bool(self.all.over.all()):
            return False
        rows = torch.arange(len(made), device=made.device).repeat_interleave(wanted.beams)
        self.speaker.follow(rows, None)
        self.speaker.make_room(wanted.longest - 1)
        assert self.speaker.state is not None
        self.speaker.state.ids.copy_(self.all.words[:, 0].flatten())
        self.speaker.state.step.fill_(2)
        return True

    def _several(self, said: int) -> int:
        """Words until nothing is left, or only half of the sequences; how many were said then."""
        state, count = self.speaker.state, len(self.numbers)
        assert state is not None
        graph, looks = Graph(self._word, state.ids.device), list[tuple[Tensor, torch.cuda.Event | None]]()
        left = count
        while said < self.wanted.longest and 2 * left > count:
            words = min(LOOK, self.wanted.longest - said)
            looks.append(_sent([graph() for _ in range(words)][-1]))
            said += words
            if len(looks) > 1:
                left = _arrived(*looks.pop(0))
        if 2 * left <= count and said < self.wanted.longest:
            self._leave()
        return said

    def _word(self) -> Tensor:
        """One more word of all ways; how many sequences are not over, and whether scores are no numbers."""
        speaker, state, K = self.speaker, self.speaker.state, self.wanted.beams
        assert state is not None and state.past.paths is not None
        made = scores(speaker.plan, speaker.parts, state)
        found = speaker.parts.best_words(made, self.wanted.width + len(self.wanted.ends))
        parents, words = self._advance(found, state.step)
        rows = parents + torch.arange(len(parents), device=parents.device)[:, None] * K
        state.past.paths.copy_(state.past.paths.index_select(0, rows.flatten()))
        state.ids.copy_(words.flatten())
        state.past.at.add_(1)
        state.step.add_(1)
        return torch.stack([(~self.all.over).sum(), self.all.totals.isnan().sum()])

    def _advance(self, found: tuple[Tensor, Tensor], length: Tensor) -> tuple[Tensor, Tensor]:
        """From the best words after each way to the ways that go on and the sequences that are whole."""
        (chances, words), wanted, every = found, self.wanted, self.all
        early = torch.isin(words, self.ends) & (length <= wanted.shortest)
        seen = candidates(Outlook(words, chances.masked_fill(early, -torch.inf), chances), every.totals, wanted.width)
        ends = torch.isin(seen.words, self.ends)
        choice = choose(seen, ends, wanted.beams, last=True)
        whole = choice.finished & (ends | (length == wanted.longest)) & ~every.over[:, None]
        self._keep_best(seen, whole, length)
        parents, said, own = (part.gather(1, choice.kept) for part in (seen.beams, seen.words, seen.own))
        for history, new in ((every.parents, parents), (every.words, said), (every.own, own)):
            history.index_copy_(1, length - 1, new[:, None])
        if every.totals.shape == choice.scores.shape:
            every.totals.copy_(choice.scores)
        else:
            every.totals = choice.scores
        best, worst = choice.scores.amax(1).double(), every.found[:, -1]
        every.over |= (best == -torch.inf) | (best / self.kindest[length] <= worst)
        return parents, said

    def _keep_best(self, seen: Candidates, whole: Tensor, length: Tensor) -> None:
        """Whole sequences take their places among the best."""
        every, K = self.all, self.wanted.beams
        new = (seen.totals.double() / self.divisors[length]).masked_fill(~whole, -torch.inf)
        best, places = torch.cat([every.found, new], 1).topk(K)
        lengths = length.expand_as(seen.words)
        pairs = (
            (every.found_length, lengths), (every.found_beam, seen.beams),
            (every.found_word, seen.words), (every.found_own, seen.own),
        )  # fmt: skip
        for old, added in pairs:
            old.copy_(torch.cat([old, added], 1).gather(1, places))
        every.found.copy_(best)

    def _leave(self) -> None:
        """Those who are over leave with what they found."""
        over = self.all.over
        done, going = over.nonzero()[:, 0], (~over).nonzero()[:, 0]
        self._finish(done)
        ways = going[:, None] * self.wanted.beams + torch.arange(self.wanted.beams, device=going.device)
        self.speaker.follow(
            ways.flatten(), going if self.speaker.state and self.speaker.state.lengths is not None else None
        )
        self.all, self.numbers = self.all.only(going), [self.numbers[row] for row in going.tolist()]

    def _finish(self, rows: Tensor) -> None:
        """Write down what these sequences found."""
        every = self.all.only(rows)
        if bool(every.totals.isnan().any()):
            raise WeightsError("the model's scores are no numbers (NaN). Its weights are broken, or too large")
        said, own = _backwards(every)
        columns = (part.tolist() for part in (every.found, every.found_length, said, own))
        for row, several in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            self.results[self.numbers[row]] = [self._hypothesis(*one) for one in zip(*several, strict=True) if one[1]]

    def _hypothesis(self, score: float, length: int, said: list[int], own: list[float]) -> Hypothesis:
        ids, told = said[:length], own[:length]
        end = ids[-1] if ids[-1] in self.wanted.ends else None
        return Hypothesis(score, ids if end is None else ids[:-1], sum(told), told, end)


def _backwards(every: Kinds) -> tuple[Tensor, Tensor]:
    """The words of whole sequences and their log-probabilities, (N, K, L), from the last to the first."""
    (N, L, K), beam = every.words.shape, every.found_beam
    said, own = every.words.new_zeros(N, K, L), every.own.new_zeros(N, K, L)
    last = (every.found_length - 1).clamp(min=0)[..., None]
    said.scatter_(2, last, every.found_word[..., None])
    own.scatter_(2, last, every.found_own[..., None])
    for at in reversed(range(L)):
        before = at < every.found_length - 1
        for column, history in ((said, every.words), (own, every.own)):
            column[:, :, at] = torch.where(before, history[:, at].gather(1, beam), column[:, :, at])
        beam = torch.where(before, every.parents[:, at].gather(1, beam), beam)
    return said, own


def _sent(going: Tensor) -> "tuple[Tensor, torch.cuda.Event | None]":
    if going.device.type != "cuda":
        return going.clone(), None
    held, event = torch.empty(going.shape, dtype=going.dtype, pin_memory=True), torch.cuda.Event()
    held.copy_(going, non_blocking=True)
    event.record()
    return held, event


def _arrived(going: Tensor, event: "torch.cuda.Event | None") -> int:
    if event is not None:
        event.synchronize()
    return int(going[0])
