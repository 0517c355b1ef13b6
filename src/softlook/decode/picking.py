"""Which word it shall be: the likeliest, or one that is drawn. Choices are values, and know nothing of models."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.said import Said

Pick = Callable[[Tensor, Sequence[Said]], Tensor]
"""Scores (N, V) of what may come next, and the N sequences it comes after -> the ids (N,) that are chosen."""
COLDEST = 1e-6
"""The lowest temperature: below it numbers run over, and the likeliest word is all there is anyway."""


def likeliest() -> Pick:
    """The word with the greatest score; of equals the one with the least id.

    >>> likeliest()(torch.tensor([[0.1, 0.7, 0.2]]), [Said([5])])
    tensor([1])
    """
    return Likeliest()


@dataclass(frozen=True)
class Likeliest:
    """No dice."""

    def __call__(self, scores: Float[Tensor, "N V"], said: Sequence[Said]) -> Int[Tensor, " N"]:
        return scores.argmax(-1)


def sample(
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
) -> Pick:
    """A word is drawn by how likely it is: after the temperature, among the best k, then among those that p needs.

    With a seed it is the same at every run, whoever else is in the batch: each word of each sequence has dice of its
    own. Without one, torch's generator is asked.

    >>> pick, scores = sample(temperature=0.8, top_k=2, seed=7), torch.tensor([[3.0, 1.0, 3.1]])
    >>> {int(pick(scores, [Said([5], number=number)])) for number in range(50)} == {0, 2}
    True
    """
    return Sample(temperature, top_k, top_p, min_p, seed)


@dataclass(frozen=True)
class Sample:
    """Dice, and what is left to throw them for."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        self.warped(torch.zeros(1, 1))  # each number is refused where it is used; better before a model has worked

    def warped(self, scores: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """The scores that are drawn by: -inf for words that are out.

        The largest is 0 before the temperature divides them, so that none overflows.
        """
        scores = tempered(scores - scores.amax(-1, keepdim=True), self.temperature)
        scores = scores if self.top_k is None else top_k(scores, self.top_k)
        scores = scores if self.top_p is None else top_p(scores, self.top_p)
        return scores if self.min_p is None else min_p(scores, self.min_p)

    def __call__(self, scores: Float[Tensor, "N V"], said: Sequence[Said]) -> Int[Tensor, " N"]:
        return drawn(self.warped(scores), self._dice(said).to(scores.device))

    def _dice(self, said: Sequence[Said]) -> Float[Tensor, " N"]:
        if self.seed is None:
            return torch.rand(len(said), dtype=torch.float64)
        return torch.tensor([dice(self.seed, one.number, len(one.new)) for one in said], dtype=torch.float64)


def tempered(scores: Float[Tensor, "N V"], temperature: float) -> Float[Tensor, "N V"]:
    """Cold makes the likely likelier, warm makes all more alike.

    >>> tempered(torch.tensor([[1.0, 2.0]]), 0.5)
    tensor([[2., 4.]])
    """
    if not COLDEST <= temperature < math.inf:
        raise ConfigError(
            f"a temperature is a number from {COLDEST} up; {temperature} came. For the likeliest word, pick=likeliest()"
        )
    return scores / temperature


def top_k(scores: Float[Tensor, "N V"], k: int) -> Float[Tensor, "N V"]:
    """Only the best k stay, and whatever is as good as the last of them.

    >>> top_k(torch.tensor([[1.0, 3.0, 2.0]]), 2)
    tensor([[-inf, 3., 2.]])
    """
    if k < 1 or k != int(k):
        raise ConfigError(f"top_k is how many words stay, 1 at least; {k} came. Leave it out to keep them all")
    last = scores.topk(min(int(k), scores.shape[-1])).values[..., -1:]
    return scores.masked_fill(scores < last, -torch.inf)


def top_p(scores: Float[Tensor, "N V"], p: float) -> Float[Tensor, "N V"]:
    """Only as many of the best stay as together have a probability of p; one always does.

    Of two that are alike, the one with the smaller id comes first.

    >>> top_p(torch.tensor([[0.1, 0.6, 0.3]]).log(), 0.7).exp()
    tensor([[0.0000, 0.6000, 0.3000]])
    """
    _is_share("top_p", p)
    if p == 1:
        return scores
    ordered, order = scores.sort(dim=-1, descending=True, stable=True)
    chances = ordered.softmax(-1)
    before = chances.cumsum(-1) - chances
    out = before >= p
    out[..., 0] = False
    return scores.masked_fill(out.scatter(-1, order, out), -torch.inf)


def min_p(scores: Float[Tensor, "N V"], p: float) -> Float[Tensor, "N V"]:
    """Only those stay that are at least p times as likely as the likeliest, which therefore does.

    >>> min_p(torch.tensor([[0.1, 0.6, 0.3]]).log(), 0.4).exp()
    tensor([[0.0000, 0.6000, 0.3000]])
    """
    _is_share("min_p", p)
    chances = scores.softmax(-1)
    return scores.masked_fill(chances < p * chances.amax(-1, keepdim=True), -torch.inf)


def drawn(scores: Float[Tensor, "N V"], dice: Float[Tensor, " N"]) -> Int[Tensor, " N"]:
    """The word at which the probabilities, added up, pass the dice, from 0 up to 1. One that has none is never drawn.

    Every id is one of the vocabulary, even where scores are NaN: on a GPU an id beyond it would end the process.
    Whether scores are a distribution is for the caller to check.

    >>> drawn(torch.tensor([[0.25, 0.0, 0.75]]).log().expand(3, 3), torch.tensor([0.2, 0.3, 0.9]))
    tensor([0, 2, 2])
    """
    passed = scores.double().softmax(-1).cumsum(-1)
    return torch.searchsorted(passed, dice.double()[:, None] * passed[:, -1:], right=True)[:, 0].clamp(
        max=scores.shape[-1] - 1
    )


def dice(seed: int, number: int, word: int) -> float:
    """From 0 up to 1, evenly; always the same for this word of this sequence, on any machine.

    >>> dice(7, 0, 0) == dice(7, 0, 0) != dice(7, 0, 1)
    True
    """
    thrown = blake2b(f"{seed} {number} {word}".encode(), digest_size=8).digest()
    return (int.from_bytes(thrown, "big") >> 12) / 2**52


def _is_share(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ConfigError(f"{name} is a share of the probability, from 0 to 1; {p} came")
