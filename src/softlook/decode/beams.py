"""A beam search under way: word after word, for many sequences at once."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.decode.branching import Branching, Looks
from softlook.decode.history import Candidate, Step, Tell
from softlook.decode.leading import led
from softlook.decode.outlook import Outlook, Prospect
from softlook.decode.penalties import uncovered
from softlook.decode.phrases import Phrases
from softlook.decode.row_errors import LogitsError, NoTokenLeftError, RowError, raised_for
from softlook.decode.rules import Rule
from softlook.decode.said import Said
from softlook.decode.search import Candidates, Choice, Found, Hypothesis, Wanted, best_of, candidates, choose
from softlook.decode.speaking import Speaker


class Beams:
    """All sequences that are under way, each in several ways: one at first, and then as many as there are beams."""

    def __init__(
        self,
        speaker: Speaker,
        start: Int[Tensor, "N T"],
        lengths: Int[Tensor, " N"] | None,
        wanted: Wanted,
        *,
        rules: Sequence[Rule],
        musts: list[Phrases] | None,
        looks: Looks | None,
        align: bool,
        tell: Tell | None,
    ) -> None:
        self.speaker, self.branching = speaker, Branching(speaker, wanted.beams)
        self.start, self.lengths, self.wanted, self.rules, self.musts = start, lengths, wanted, rules, musts
        self.looking, self.align, self.tell = looks, align, tell
        self.ends = torch.tensor(wanted.ends, device=start.device)
        self.found = [[Found(wanted) for _ in range(wanted.groups)] for _ in start]
        self.length, self.dropped = 0, set[int]()
        """Words that were said; the numbers of sequences that nobody wants any more."""
        self.errors: dict[int, RowError] = {}
        """Why sequences could not be searched on, by their numbers."""
        self.under_way = list(range(len(start)))
        """The numbers of the sequences that are still in the batch."""
        self.scores = torch.zeros(len(start), 1, device=start.device)
        """(N, K): what each way has in all."""
        self.said = torch.empty(len(start), 1, 0, dtype=torch.long, device=start.device)
        """(N, K, t): its words."""
        self.own = torch.empty(len(start), 1, 0, device=start.device)
        """(N, K, t): their log-probabilities by the model."""
        self.looks: Tensor | None = None
        """(N, K, t, S): where the model looked, if anybody asks."""

    def run(self) -> list[list[Hypothesis]]:
        # What a copy for decoding makes never learns. With other models it might: theirs may be kept for training.
        with torch.inference_mode() if self.branching.lean else nullcontext():
            while self.advance():
                pass
        found = self.whole()
        if self.rules and self.musts is None:
            lost = [number for number, several in enumerate(found) if not several and number not in self.dropped]
            self.errors |= {number: _no_token_left(number) for number in lost if number not in self.errors}
        if self.errors:
            raise raised_for(self.errors, found)
        return found

    def step(self) -> bool:
        """As `advance`, but an error where a sequence fails: its `rows` are the numbers of those that just failed.

        They have left the search by then: call it again, and the others are searched on.
        """
        before = set(self.errors)
        is_going = self.advance()
        new = {number: error for number, error in self.errors.items() if number not in before}
        if new:
            raise raised_for(new, ())
        return is_going

    def advance(self) -> bool:
        """One word more for all that are under way. False when nothing better can come of any of them.

        A sequence whose logits are no distribution leaves, with its reason in `errors`; the others are not affected.
        """
        if not self.under_way:
            return False
        self.length += 1
        parents = self._step(self._asked(self.length), self.length)
        going = self._going(self.length)
        if going:
            self._leave(going, parents, first=self.length == 1)
        else:
            self.under_way = []
        return bool(going)

    def whole(self) -> list[list[Hypothesis]]:
        """What was found for each sequence, best first."""
        return [best_of(found) for found in self.found]

    def drop(self, numbers: Collection[int]) -> None:
        """Nobody waits for these sequences any longer: they leave with the next word."""
        self.dropped |= set(numbers)

    def _asked(self, length: int) -> Float[Tensor, "B V"]:
        """What the model says to all that was said. Nobody keeps it: the next ones go where these were."""
        if length == 1:
            return self.branching.begin(self.start, self.lengths)
        return self.branching.next(self.said[:, :, -1].reshape(-1, 1))

    def _step(self, logits: Float[Tensor, "B V"], length: int) -> Int[Tensor, "N K"]:
        """One word more for all ways; which way each of the new ones goes on from."""
        prospect = Prospect(logits, self.rules, self._said() if self.rules else ())
        self._look()
        parts = self._led(prospect, length) if self.musts is not None else self._grouped(prospect, length)
        for number, (found, choice) in enumerate(parts):
            self._finish(found, choice, number, length)
        if self.tell is not None:
            self._report(parts, length)
        return self._go_on(parts)

    def _best(self, prospect: Prospect, width: int) -> Outlook:
        """The best so many words after each way. Sequences whose logits are no distribution fail, and have none."""
        seen = prospect.best(width)
        broken = seen.own[:, 0].isnan() | ~(seen.scores[:, 0] < torch.inf)  # NaN is sorted before all numbers
        if not bool(broken.any()):
            return seen
        alive = self.scores.flatten() > -torch.inf  # a way that does not count fails nobody
        for place in (broken & alive).view_as(self.scores).any(1).nonzero()[:, 0].tolist():
            number = self.under_way[place]
            own = seen.own[:, 0].isnan().view_as(self.scores)[place].any()
            self.errors[number] = LogitsError.of([number], self.length) if own else _no_token_left(number, self.length)
        return Outlook(seen.words, seen.scores.masked_fill(broken[:, None], -torch.inf), seen.own)

    def _grouped(self, prospect: Prospect, length: int) -> list[tuple[Candidates, Choice]]:
        """Group after group, each of which is told what those before it chose."""
        wanted, N, ways = self.wanted, *self.scores.shape
        before = (wanted.groups - 1) * wanted.each if wanted.diversity else 0
        seen = self._best(prospect, wanted.width + len(wanted.ends) + before)
        parts: list[tuple[Candidates, Choice]] = []
        for group in range(wanted.groups):
            first = 0 if ways == 1 else group * wanted.each
            own = slice(first, first + (1 if ways == 1 else wanted.each))
            chosen = [found.words.gather(1, choice.kept) for found, choice in parts]
            seen_here = self._priced(_rows(seen, N, own), N, chosen, length)
            found = candidates(seen_here, self.scores[:, own], wanted.width)
            found = found._replace(beams=found.beams + first) if first else found
            ends = self._are_ends(found.words)
            parts.append((found, choose(found, ends, wanted.each, last=length == wanted.longest)))
        return parts

    def _are_ends(self, words: Int[Tensor, "B W"]) -> Bool[Tensor, "B W"]:
        return words == self.ends if len(self.ends) == 1 else torch.isin(words, self.ends)

    def _priced(self, seen: Outlook, sequences: int, chosen: list[Tensor], length: int) -> Outlook:
        """An end that would come too early is none; what groups before have chosen costs something."""
        scores, words = seen.scores, seen.words
        if length <= self.wanted.shortest:
            scores = scores.masked_fill(self._are_ends(words), -torch.inf)
        if chosen and self.wanted.diversity:
            taken = torch.cat(chosen, 1)[:, None, None]  # (N, 1, 1, P)
            times = (words.view(sequences, -1, words.shape[1])[..., None] == taken).sum(-1)
            scores = scores - self.wanted.diversity * times.view_as(scores)
        return Outlook(words, scores, seen.own)

    def _led(self, prospect: Prospect, length: int) -> list[tuple[Candidates, Choice]]:
        """Ways that have to say something are led there."""
        assert self.musts is not None
        seen = self._best(prospect, self.wanted.width + len(self.wanted.ends))
        seen = self._priced(seen, len(self.scores), [], length)
        musts = [self.musts[number] for number in self.under_way]
        return [led(prospect, seen, self.scores, self.said, musts, self.wanted)]

    def _look(self) -> None:
        if self.looking is not None:
            here = self.looking.of(*self.scores.shape)[:, :, None]
            self.looks = here if self.looks is None else torch.cat([self.looks, here], 2)

    def _finish(self, found: Candidates, choice: Choice, group: int, length: int) -> None:
        """Hand what is whole to those who keep it."""
        rows, places = choice.finished.nonzero(as_tuple=True)
        if not len(rows):
            return
        ways = found.beams[rows, places]
        columns = self.said[rows, ways], self.own[rows, ways], found.words[rows, places], found.own[rows, places]
        shapes = self._shapes(rows, ways)
        values = zip(rows.tolist(), found.totals[rows, places].tolist(), *(c.tolist() for c in columns), strict=True)
        for (row, total, said, own, word, last), (left_out, alignment) in zip(values, shapes, strict=True):
            end = word if word in self.wanted.ends else None
            told = [*own, last]
            score = total / self.wanted.penalty(length) + left_out
            ids = said if end is not None else [*said, word]
            whole = Hypothesis(score, ids, sum(told), told, end, alignment)
            self.found[self.under_way[row]][group].add(whole)

    def _shapes(self, rows: Tensor, ways: Tensor) -> list[tuple[float, list[list[float]] | None]]:
        """What it costs each of them to have left out some of the source, and where each looked."""
        if self.looks is None:
            return [(0.0, None)] * len(rows)
        looks, present = self.looks[rows, ways], getattr(self.speaker, "present", None)
        costs = self.wanted.coverage * uncovered(looks.sum(1), None if present is None else present[rows])
        shown = looks.tolist() if self.align else [None] * len(rows)
        return list(zip(costs.tolist(), shown, strict=True))

    def _go_on(self, parts: list[tuple[Candidates, Choice]]) -> Int[Tensor, "N K"]:
        """The new ways: what each has in all, and what it has said."""
        parents, words, own = (
            _joined([part.gather(1, choice.kept) for part, choice in several])
            for several in (
                [(found.beams, choice) for found, choice in parts],
                [(found.words, choice) for found, choice in parts],
                [(found.own, choice) for found, choice in parts],
            )
        )
        self.scores = _joined([choice.scores for _, choice in parts])
        self.said = torch.cat([_of(self.said, parents), words[..., None]], -1)
        self.own = torch.cat([_of(self.own, parents), own[..., None]], -1)
        self.looks = (
            None if self.looks is None else _of(self.looks.flatten(2), parents).unflatten(2, self.looks.shape[2:])
        )
        return parents

    def _going(self, length: int) -> list[int]:
        """The places of sequences that are not over."""
        if length == self.wanted.longest:
            return []
        best = self.scores.unflatten(1, (self.wanted.groups, -1)).amax(-1).tolist()
        every = enumerate(zip(self.under_way, best, strict=True))
        return [
            place
            for place, (number, row) in every
            if number not in self.dropped
            and number not in self.errors
            and not all(found.is_over(value, length) for found, value in zip(self.found[number], row, strict=True))
        ]

    def _leave(self, going: list[int], parents: Int[Tensor, "N K"], *, first: bool) -> None:
        """Whoever is over leaves, and the model follows those who go on."""
        keep = None if len(going) == len(self.under_way) else torch.tensor(going, device=parents.device)
        rows = parents + torch.arange(len(parents), device=parents.device)[:, None] * self.wanted.beams
        if keep is not None:
            rows, self.under_way = rows[keep], [self.under_way[place] for place in going]
            self.scores, self.said, self.own = self.scores[keep], self.said[keep], self.own[keep]
            self.looks = None if self.looks is None else self.looks[keep]
        if keep is not None or not first:  # at first all ways are alike
            self.branching.follow(rows.flatten(), keep)

    def _said(self) -> list[Said]:
        """What rules are told of each way."""
        starts: list[list[int]] = self.start.tolist()
        if self.lengths is not None:
            starts = [row[-length:] for row, length in zip(starts, self.lengths.tolist(), strict=True)]
        ways = zip(self.under_way, self.said.tolist(), strict=True)
        return [Said(starts[number], words, number) for number, several in ways for words in several]

    def _report(self, parts: list[tuple[Candidates, Choice]], length: int) -> None:
        assert self.tell is not None
        last = length == self.wanted.longest
        for place, number in enumerate(self.under_way):
            told: list[Candidate] = []
            for group, (found, choice) in enumerate(parts):
                told += _told(found, choice, place, None if last else group * self.wanted.each)
            self.tell(Step(number, length, tuple(told)))


def _no_token_left(number: int, length: int | None = None) -> NoTokenLeftError:
    at = "" if length is None else f" at new token {length}"
    return NoTokenLeftError(
        f"the rules leave no token, or no finite score, to any beam of row {number}{at}. Allow an end, or fewer rules",
        [number],
    )


def _told(found: Candidates, choice: Choice, place: int, first: int | None) -> list[Candidate]:
    """The candidates of one sequence and group, with what became of them; its `first` beam, where any go on."""
    kept = zip(choice.kept[place].tolist(), choice.scores[place].tolist(), strict=True)
    goes_on = {at: number for number, (at, score) in enumerate(kept, first or 0) if score > -torch.inf}
    goes_on = {} if first is None else goes_on
    columns = (part[place].tolist() for part in (*found, choice.finished))
    return [
        Candidate(
            word, parent, total, own,
            "finished" if finished else "kept" if number in goes_on else "dropped", goes_on.get(number),
        )
        for number, (total, parent, word, own, finished) in enumerate(zip(*columns, strict=True))
        if total > -torch.inf
    ]  # fmt: skip


def _rows(seen: Outlook, sequences: int, own: slice) -> Outlook:
    """What was seen by some of the ways of each sequence."""
    if sequences * (own.stop - own.start) == len(seen.words):
        return seen
    every = (seen.words, seen.scores, seen.own)
    return Outlook(*(part.view(sequences, -1, part.shape[1])[:, own].flatten(0, 1) for part in every))


def _of(state: Tensor, parents: Int[Tensor, "N K"]) -> Tensor:
    """What the new ways have from those they go on from."""
    return state.gather(1, parents[..., None].expand(-1, -1, state.shape[2]))


def _joined(parts: list[Tensor]) -> Tensor:
    """What all groups have, side by side."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
