"""What may come next, and how likely it is: the best few of very many words, found in one look."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.decode.rules import Rule
from softlook.decode.said import Said

BLOCK = 128
"""Words whose best one is found first: only the blocks of the best are searched."""
MANY = 2048
"""Words from which on blocks are worth it."""
ROWS = 32
"""Rows looked at together: so many that what is made of them stays near the processor."""


@dataclass(frozen=True)
class Outlook:
    """The best few words after each sequence, best first. (B, W) each."""

    words: Int[Tensor, "B W"]
    scores: Float[Tensor, "B W"]
    """Log-probabilities, and what rules made of them."""
    own: Float[Tensor, "B W"]
    """The model's own log-probabilities."""


class Prospect:
    """What may come next after each of several sequences, by a model's scores and by rules.

    As in Hugging Face's beam search, rules see log-probabilities, and what they leave is not made to sum to one again.
    """

    def __init__(self, scores: Float[Tensor, "B V"], rules: Sequence[Rule] = (), said: Sequence[Said] = ()) -> None:
        self.raw = scores.float()
        self.own = self.ruled = None
        if rules:
            self.own = self.ruled = self.raw.log_softmax(-1)
            for rule in rules:
                self.ruled = rule(self.ruled, said)

    def best(self, width: int) -> Outlook:
        """The best `width` words of each row, or as many as there are."""
        if self.own is None or self.ruled is None:
            scores, words = best_words(self.raw, width)
            return Outlook(words, scores, scores)
        scores, words = self.ruled.topk(min(width, self.ruled.shape[-1]))
        return Outlook(words, scores, self.own.gather(1, words))

    def of(self, words: Int[Tensor, "B W"]) -> Outlook:
        """These words."""
        if self.own is None or self.ruled is None:
            self.own = self.ruled = self.raw.log_softmax(-1)
        return Outlook(words, self.ruled.gather(1, words), self.own.gather(1, words))


def best_words(scores: Float[Tensor, "B V"], width: int) -> tuple[Float[Tensor, "B W"], Int[Tensor, "B W"]]:
    """Log-probabilities of the best so many words, best first, and which they are: exactly those of a full search.

    >>> best_words(torch.tensor([[0.0, 0.0, 9.0]]), 1)[1]
    tensor([[2]])
    """
    width = min(width, scores.shape[-1])
    if scores.shape[-1] < max(MANY, 4 * width * BLOCK) or scores.device.type != "cpu":
        found, words = scores.log_softmax(-1).topk(width)
        return found, words
    parts = [_best(part, width) for part in scores.split(ROWS)]
    if len(parts) == 1:
        return parts[0]
    found, words = zip(*parts, strict=True)
    return torch.cat(found), torch.cat(words)


def _best(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    words = _places(scores, width)
    return scores.log_softmax(-1).gather(1, words), words


def _places(scores: Tensor, width: int) -> Tensor:
    """A word among the best stands in a block among the blocks with the best bests, or behind all whole blocks."""
    count = scores.shape[-1] // BLOCK
    rest = scores[:, count * BLOCK :]
    blocks = scores[:, : count * BLOCK].unflatten(1, (count, BLOCK))
    chosen = blocks.amax(-1).topk(width).indices
    inside = blocks.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    if rest.shape[1]:
        inside, chosen = torch.cat([inside, rest], 1), torch.nn.functional.pad(chosen, (0, 1), value=count)
    places = inside.topk(width).indices
    return chosen.gather(1, places.div(BLOCK, rounding_mode="floor")) * BLOCK + places.remainder(BLOCK)
