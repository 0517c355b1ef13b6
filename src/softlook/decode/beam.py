"""Beam search: several likely beginnings are kept, and the best whole sequence wins."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.decode.speaking import Speaker


@dataclass(frozen=True, order=True)
class Hypothesis:
    """A sequence that reached its end."""

    score: float
    """Its log-probability, divided by its length to the power of the length penalty."""
    ids: list[int] = field(compare=False)
    """Without the end."""
    log_probability: float = field(compare=False)


@dataclass
class Search:
    """The search for one sequence: what is finished, and whether anything better can still come."""

    beams: int
    penalty: float
    longest: int
    finished: list[Hypothesis] = field(default_factory=list)

    def add(self, ids: list[int], length: int, log_probability: float) -> None:
        """Keep a finished sequence of this `length`, its end counted in, among the best so many."""
        score = log_probability / length**self.penalty
        self.finished = sorted([*self.finished, Hypothesis(score, ids, log_probability)], reverse=True)[: self.beams]

    def is_over(self, best_alive: float, length: int) -> bool:
        """Can no sequence still under way, whatever follows, get among the finished ones?

        A log-probability only falls. With a penalty above 0 the best that can come of one is not to fall at all and to
        be divided by the greatest length; with none or a negative one, by the least.
        """
        if len(self.finished) < self.beams:
            return False
        most = self.longest if self.penalty > 0 else length + 1
        return best_alive / most**self.penalty <= self.finished[-1].score


@torch.no_grad()
def beam(
    speaker: Speaker,
    start: Int[Tensor, "N T"],
    *,
    end: int,
    longest: int,
    beams: int = 4,
    penalty: float = 1.0,
) -> list[list[Hypothesis]]:
    """The best `beams` whole sequences for each start, best first.

    >>> from softlook.decode import Continuing
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> found = beam(Continuing(model), torch.tensor([[3, 1]]), end=0, longest=5, beams=3)
    >>> len(found[0]), found[0][0].score >= found[0][1].score
    (3, True)
    """
    N, device = len(start), start.device
    searches = [Search(beams, penalty, longest) for _ in range(N)]
    under_way = list(range(N))
    scores = torch.full((N, beams), -torch.inf, device=device)
    scores[:, 0] = 0  # all beams begin alike: only one of them counts at first
    said = torch.empty(N, beams, 0, dtype=torch.long, device=device)
    logits = speaker.next(start).repeat_interleave(beams, 0)
    speaker.select(torch.arange(N, device=device).repeat_interleave(beams))
    for length in range(longest):
        room = length + 1 < longest
        scores, said, parents = _extend(logits, scores, said, end, [searches[n] for n in under_way], room)
        best = scores[:, 0].tolist()
        going = [i for i, n in enumerate(under_way) if room and not searches[n].is_over(best[i], length + 1)]
        if not going:
            break
        keep = torch.tensor(going, device=device)
        under_way = [under_way[i] for i in going]
        scores, said, parents = scores[keep], said[keep], parents[keep]
        speaker.select(parents.flatten())
        logits = speaker.next(said[:, :, -1].reshape(-1, 1))
    return [search.finished for search in searches]


class Candidates(NamedTuple):
    """One word more: the best so many ways to go on from each sequence's beams, best first. (N, 2K) each."""

    totals: Tensor
    beams: Tensor
    words: Tensor
    ends: Tensor


def _extend(
    logits: Float[Tensor, "NK V"],
    scores: Float[Tensor, "N K"],
    said: Int[Tensor, "N K t"],
    end: int,
    searches: list[Search],
    room: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """One word more: finished sequences go to their search, the best others go on.

    Twice as many candidates as beams are looked at, since at most one of each beam's can be its end. Where there is no
    `room` for another word, what there is has to do.
    """
    (N, K), V = scores.shape, logits.shape[-1]
    totals = scores[:, :, None] + logits.float().log_softmax(-1).view(N, K, V)
    top, places = totals.flatten(1).topk(min(2 * K, K * V))
    words = places % V
    found = Candidates(top, places // V, words, words == end if room else torch.ones_like(words, dtype=torch.bool))
    _finish(found, said, end, searches)
    scores, chosen = top.masked_fill(found.ends, -torch.inf).topk(K)
    beams, words = found.beams.gather(1, chosen), words.gather(1, chosen)
    said = torch.cat([said.gather(1, beams[..., None].expand(-1, -1, said.shape[-1])), words[..., None]], -1)
    parents = beams + torch.arange(N, device=beams.device)[:, None] * K
    return scores, said, parents


def _finish(found: Candidates, said: Int[Tensor, "N K t"], end: int, searches: list[Search]) -> None:
    """Hand what ends here to its search. Only the best `beams` candidates may end: the others were not in the beam."""
    K = said.shape[1]
    for row, place in (found.ends[:, :K] & found.totals[:, :K].isfinite()).nonzero().tolist():
        ids = said[row, found.beams[row, place]].tolist()
        word = int(found.words[row, place])
        searches[row].add(ids if word == end else [*ids, word], len(ids) + 1, found.totals[row, place].item())
