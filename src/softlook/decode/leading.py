"""One word more for sequences that have to say something: room for those who are on their way to it."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.decode.outlook import Outlook, Prospect
from softlook.decode.phrases import Phrases, shared_out
from softlook.decode.search import Candidates, Choice, Wanted


class Way(NamedTuple):
    """One word more after one beam."""

    total: float
    beam: int
    word: int
    own: float
    missing: int
    """How many words of the phrases would still be missing."""


def led(
    prospect: Prospect,
    seen: Outlook,
    scores: Float[Tensor, "N K"],
    said: Int[Tensor, "N K t"],
    musts: list[Phrases],
    wanted: Wanted,
) -> tuple[Candidates, Choice]:
    """The candidates of each sequence and what becomes of them.

    Candidates are the likeliest words and those that phrases begin or go on with. Whoever could not say everything in
    the room that is left is none, and nobody ends before everything is said: so what is found has said it.
    """
    told, length = said.tolist(), said.shape[2] + 1
    everyone = _ways(prospect, seen, scores, told, musts)
    chosen = [_one(ways, words, must, wanted, length) for ways, words, must in zip(everyone, told, musts, strict=True)]
    return _as_tensors(chosen, wanted, scores.device)


def _ways(
    prospect: Prospect, seen: Outlook, scores: Tensor, told: list[list[list[int]]], musts: list[Phrases]
) -> list[dict[tuple[int, int], tuple[float, float]]]:
    """For each sequence, beams and words: what they would have in all, and the model's own log-probability."""
    K = scores.shape[1]
    wishes = [sorted(must.next(words)) for several, must in zip(told, musts, strict=True) for words in several]
    most = max(map(len, wishes))
    filled = [[*wish, *seen.words[row, :1].tolist() * most][:most] for row, wish in enumerate(wishes)]
    more = prospect.of(torch.tensor(filled, device=scores.device).view(len(filled), most))
    words, log, own = (torch.cat(both, 1).tolist() for both in zip(_parts(seen), _parts(more), strict=True))
    made: list[dict[tuple[int, int], tuple[float, float]]] = []
    for n, totals in enumerate(scores.tolist()):
        rows = [(k, n * K + k) for k in range(K) if totals[k] > -torch.inf]
        made.append(
            {
                (k, word): (totals[k] + score, mine)
                for k, row in rows
                for word, score, mine in zip(words[row], log[row], own[row], strict=True)
                if score > -torch.inf
            }
        )
    return made


def _parts(seen: Outlook) -> tuple[Tensor, Tensor, Tensor]:
    return seen.words, seen.scores, seen.own


def _one(
    ways: dict[tuple[int, int], tuple[float, float]],
    said: list[list[int]],
    must: Phrases,
    wanted: Wanted,
    length: int,
) -> tuple[list[Way], list[int], list[int]]:
    """One sequence: its candidates, best first, and the places of those that go on and of those that are whole."""
    left = wanted.longest - length
    every = [
        Way(total, beam, word, own, must.missing(said[beam] if word in wanted.ends else [*said[beam], word]))
        for (beam, word), (total, own) in ways.items()
    ]
    able = sorted((w for w in every if w.missing <= (0 if w.word in wanted.ends else left)), reverse=True)
    done = [place for place, way in enumerate(able) if way.missing == 0]
    whole = [place for place in done[: wanted.beams] if left == 0 or able[place].word in wanted.ends]
    open_ones = [place for place, way in enumerate(able) if left and way.word not in wanted.ends]
    banks = [[place for place in open_ones if able[place].missing == count] for count in range(must.missing([]) + 1)]
    return able, shared_out(banks, wanted.beams), whole


def _as_tensors(
    chosen: list[tuple[list[Way], list[int], list[int]]], wanted: Wanted, device: torch.device
) -> tuple[Candidates, Choice]:
    N, K, width = len(chosen), wanted.beams, max(1, *(len(able) for able, _, _ in chosen))
    nothing = Way(-torch.inf, 0, 0, 0.0, 0)
    rows = [[*able, *[nothing] * (width - len(able))] for able, _, _ in chosen]
    columns = [torch.tensor([[way[i] for way in row] for row in rows], device=device) for i in range(4)]
    totals, beams, words, own = columns
    kept = torch.tensor([[*on, *[width - 1] * (K - len(on))] for _, on, _ in chosen], device=device)
    scores = torch.tensor(
        [[*(able[place].total for place in on), *[-torch.inf] * (K - len(on))] for able, on, _ in chosen], device=device
    )
    finished = torch.zeros(N, width, dtype=torch.bool, device=device)
    for row, (_, _, whole) in enumerate(chosen):
        finished[row, whole] = True
    return Candidates(totals, beams, words, own), Choice(kept, scores, finished)
