"""The ways of a beam search in fixed places, and what one more word makes of them, by torch's own operations."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from softlook.decode.outlook import Outlook
from softlook.decode.search import Candidates, Found, Wanted, candidates, choose


@dataclass
class Aims:
    """What a search wants, where its kernels can read it: one search's are written over the last one's."""

    divisors: Tensor
    """(L + 1,): by how many words there are, what a whole sequence's total is divided by."""
    kindest: Tensor
    """(L + 1,): and the largest such number that may still come."""
    ends: Tensor
    """(E,)"""
    limits: Tensor
    """(2,): the shortest and the longest."""

    @staticmethod
    def room(longest: int, ends: int, device: torch.device) -> "Aims":
        many = torch.ones(longest + 1, dtype=torch.float64, device=device)
        whole = torch.zeros(ends + 2, dtype=torch.long, device=device)
        return Aims(many, many.clone(), whole[2:], whole[:2])

    def aim(self, wanted: Wanted) -> None:
        """From now on at this."""
        divisors = [1.0, *(wanted.penalty(length) for length in range(1, wanted.longest + 1))]
        for place, values in ((self.divisors, divisors), (self.kindest, Found(wanted).kindest)):
            place[: len(values)] = torch.tensor(values, dtype=torch.float64)
        self.ends.copy_(torch.tensor(wanted.ends))
        self.limits.copy_(torch.tensor([wanted.shortest, wanted.longest]))


@dataclass
class Ways:
    """What there is of N sequences with K ways each; history, (N, L, K), is written once and never moved by a step."""

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

    @staticmethod
    def room(sequences: int, ways: int, longest: int, device: torch.device) -> "Ways":
        whole: dict[str, Any] = {"dtype": torch.long, "device": device}
        near, far = (sequences, ways), (sequences, longest, ways)
        return Ways(
            totals=torch.zeros(near, device=device),
            parents=torch.zeros(far, **whole),
            words=torch.zeros(far, **whole),
            own=torch.zeros(far, device=device),
            found=torch.zeros(near, dtype=torch.float64, device=device),
            found_length=torch.zeros(near, **whole),
            found_beam=torch.zeros(near, **whole),
            found_word=torch.zeros(near, **whole),
            found_own=torch.zeros(near, device=device),
            over=torch.zeros(sequences, dtype=torch.bool, device=device),
        )

    def first(self, sequences: int) -> "Ways":
        """Of the first so many alone, in the same places."""
        return Ways(*(getattr(self, field.name)[:sequences] for field in fields(self)))

    def begin(self, sequences: int) -> None:
        """Nothing is found yet; only so many sequences are anybody's."""
        self.totals.zero_()
        self.found.fill_(-torch.inf)
        self.found_length.zero_()
        self.over.zero_()
        self.over[sequences:] = True

    def move(self, rows: Tensor) -> None:
        """These come first from now on."""
        for field in fields(self):
            part: Tensor = getattr(self, field.name)
            part[: len(rows)] = part.index_select(0, rows)


def advance(found: tuple[Tensor, Tensor], totals: Tensor, ways: Ways, aims: Aims, length: Tensor) -> Tensor:
    """From the best words after each way, and what it has in all, to the ways that go on: from whom each does, (N, K).

    What is whole with this word, the one that makes `length` (1,) of them, takes its place among what was found.
    """
    (chances, words), K, E = found, ways.totals.shape[1], len(aims.ends)
    out = (torch.isin(words, aims.ends) & (length <= aims.limits[0])) | (totals.view(-1, 1) == -torch.inf)
    seen = candidates(Outlook(words, chances.masked_fill(out, -torch.inf), chances), totals, (1 + E) * K)
    ends = torch.isin(seen.words, aims.ends)
    choice = choose(seen, ends, K, last=True)
    _keep_best(seen, choice.finished & (ends | (length == aims.limits[1])) & ~ways.over[:, None], ways, aims, length)
    parents, said, own = (part.gather(1, choice.kept) for part in (seen.beams, seen.words, seen.own))
    for history, new in ((ways.parents, parents), (ways.words, said), (ways.own, own)):
        history.index_copy_(1, length - 1, new[:, None])
    scores = choice.scores.masked_fill(ways.over[:, None], -torch.inf)  # whoever is over cannot fail any more
    ways.totals.copy_(scores)
    best = scores.amax(1).double()
    ways.over |= (best == -torch.inf) | (best / aims.kindest[length] <= ways.found[:, -1])
    return parents


def _keep_best(seen: Candidates, whole: Tensor, ways: Ways, aims: Aims, length: Tensor) -> None:
    """Whole sequences take their places among the best."""
    new = (seen.totals.double() / aims.divisors[length]).masked_fill(~whole, -torch.inf)
    best, places = torch.cat([ways.found, new], 1).topk(ways.found.shape[1])
    pairs = (
        (ways.found_length, length.expand_as(seen.words)), (ways.found_beam, seen.beams),
        (ways.found_word, seen.words), (ways.found_own, seen.own),
    )  # fmt: skip
    for old, added in pairs:
        old.copy_(torch.cat([old, added], 1).gather(1, places))
    ways.found.copy_(best)


def backwards(ways: Ways, rows: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Words of the whole sequences in these rows and their log-probabilities, (R, K, L), from the last to the first."""
    lengths, beam, word, last = (
        part.index_select(0, rows) for part in (ways.found_length, ways.found_beam, ways.found_word, ways.found_own)
    )
    parents, words, chances = (part.index_select(0, rows) for part in (ways.parents, ways.words, ways.own))
    said, own = words.new_zeros(*beam.shape, longest), chances.new_zeros(*beam.shape, longest)
    end = (lengths - 1).clamp(min=0)[..., None]
    said.scatter_(2, end, word[..., None])
    own.scatter_(2, end, last[..., None])
    for at in reversed(range(longest - 1)):
        before = at < lengths - 1
        for column, history in ((said, words), (own, chances)):
            column[:, :, at] = torch.where(before, history[:, at].gather(1, beam), column[:, :, at])
        beam = torch.where(before, parents[:, at].gather(1, beam), beam)
    return said.int(), own
