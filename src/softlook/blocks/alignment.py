"""Which words of the source does a state want now? The look-up of a recurrent decoder: one head, one query a step.

What is compared (`by_dot`, `by_general`, `by_concat`) and where it is looked for (`Everywhere`, `Monotonic`,
`Predicted`) are parts.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import Mixing
from softlook.ops.masks import Mask, dense, padding
from softlook.ops.scores import dot


@dataclass(frozen=True, eq=False)
class Source:
    """A sequence that was read and can be looked up in. Keys are made once, not at every step."""

    key: Float[Tensor, "B 1 S A"]
    value: Float[Tensor, "B 1 S E"]
    lengths: Int[Tensor, " B"]
    """How many of the S words are there."""
    last: Float[Tensor, "B M"]
    """The state in which reading ended."""
    mask: Mask | None = None
    """Hides what only fills a row up, where rows differ in length."""

    def select(self, rows: Int[Tensor, " N"]) -> "Source":
        """These rows of the batch, in this order; a row may come several times or not at all."""
        lengths = self.lengths[rows]
        mask = None if self.mask is None else padding(lengths)
        return Source(self.key[rows], self.value[rows], lengths, self.last[rows], mask)


class Everywhere(nn.Module):
    """Global attention: all of the source."""

    def forward(self, state: Float[Tensor, "B M"], source: Source, step: int) -> tuple[Mask | None, Tensor]:
        """Where this step may look, and the values there."""
        return source.mask, source.value


class Monotonic(nn.Module):
    """Luong's local-m: step t looks at words t - window to t + window, as though both sides kept pace.

    Past the end of the source there may be nothing left to look at; the answer is then zeros.

    >>> align, words = by_dot(1, 1, Monotonic(1)), torch.tensor([[[1.0], [2.0], [4.0], [8.0]]])
    >>> source = Source(align.keys(words), words[:, None], torch.tensor([4]), torch.zeros(1, 1))
    >>> align(torch.zeros(1, 1), source, 0), align(torch.zeros(1, 1), source, 9)
    (tensor([[1.5000]]), tensor([[0.]]))
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = at_least_one(window)

    def forward(self, state: Float[Tensor, "B M"], source: Source, step: int) -> tuple[Mask | None, Tensor]:
        places = torch.arange(source.value.shape[2], device=state.device)
        return both(((places - step).abs() <= self.window)[None], source.mask), source.value


class Centre(nn.Module):
    """Where in the source a state wants to look: length * sigmoid(vector . tanh(W state)), a point between words."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.to_hidden = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, 1, bias=False)

    def forward(self, state: Float[Tensor, "B M"], lengths: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        return lengths * self.to_out(self.to_hidden(state).tanh())[:, 0].sigmoid()


class Predicted(nn.Module):
    """Luong's local-p: look around a centre that the state itself tells, the less the farther from it.

    As published, the bell of width window / 2 is laid over the weights after the softmax, so they sum to less than
    one. It is laid over the values here, which is the same; the map that can be watched is the one before it.
    The hard edges of the window pass on no gradient; through the bell the centre learns.

    >>> align, words = by_dot(2, 2, Predicted(2, window=3)), torch.randn(1, 9, 2)
    >>> source = Source(align.keys(words), words[:, None], torch.tensor([9]), torch.zeros(1, 2))
    >>> align(torch.randn(1, 2), source, 0).shape
    torch.Size([1, 2])
    """

    def __init__(self, dim: int, window: int) -> None:
        super().__init__()
        self.centre, self.window = Centre(dim), at_least_one(window)

    def forward(self, state: Float[Tensor, "B M"], source: Source, step: int) -> tuple[Mask | None, Tensor]:
        centre = self.centre(state, source.lengths)
        distance = torch.arange(source.value.shape[2], device=state.device) - centre[:, None]
        bell = (-2 * (distance / self.window).square()).exp()  # the exponent is -distance^2 / (2 (window / 2)^2)
        return both(distance.abs() <= self.window, source.mask), source.value * bell[:, None, :, None]


class AdditiveScore(nn.Module):
    """vector . tanh(query + key): the small network of Bahdanau, for queries and keys that went through its weights.

    Together with the two projections before it, it is `softlook.scores.additive`.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.randn(width) / width**0.5)

    def forward(self, query: Float[Tensor, "B H T A"], key: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        numbers = torch.float64 if query.dtype == torch.float64 else torch.float32  # as for other scores
        hidden = query.to(numbers)[..., :, None, :] + key.to(numbers)[..., None, :, :]
        return hidden.tanh() @ self.vector.to(numbers)


class Alignment(nn.Module):
    """A state asks and the source answers: one soft look-up with one head.

    - `to_query`, `to_key`: what a state and what is read become before they are compared.
    - `mix`: the look-up, with its score; a boundary to watch at.
    - `span`: where to look.
    """

    def __init__(self, to_query: nn.Module, to_key: nn.Module, mix: Mixing, span: nn.Module) -> None:
        super().__init__()
        self.to_query, self.to_key, self.mix, self.span = to_query, to_key, mix, span

    def keys(self, read: Float[Tensor, "B S E"]) -> Float[Tensor, "B 1 S A"]:
        """What a state is compared with."""
        return self.to_key(read)[:, None]

    def forward(self, state: Float[Tensor, "B M"], source: Source, step: int) -> Float[Tensor, "B E"]:
        mask, value = self.span(state, source, step)
        return self.mix(self.to_query(state)[:, None, None], source.key, value, mask)[:, 0, 0]


def by_dot(dim: int, other: int, span: nn.Module) -> Alignment:
    """Luong's dot: state . word, of one width.

    >>> by_dot(4, 4, Everywhere()).keys(torch.ones(1, 3, 4)).shape
    torch.Size([1, 1, 3, 4])
    """
    if dim != other:
        raise ConfigError(
            f"a dot product wants one width, but the state is {dim} wide and a word of the source {other}. "
            "Use the general or the concat score, or read in one direction only."
        )
    return Alignment(nn.Identity(), nn.Identity(), Mixing(score=dot()), span)


def by_general(dim: int, other: int, span: nn.Module) -> Alignment:
    """Luong's general: state . W . word.

    >>> by_general(3, 4, Everywhere()).to_query(torch.ones(1, 3)).shape
    torch.Size([1, 4])
    """
    return Alignment(nn.Linear(dim, other, bias=False), nn.Identity(), Mixing(score=dot()), span)


def by_concat(dim: int, other: int, span: nn.Module) -> Alignment:
    """Bahdanau's additive score, which Luong calls concat: vector . tanh(W state + U word), as wide as the state.

    >>> by_concat(3, 4, Everywhere()).keys(torch.ones(1, 5, 4)).shape
    torch.Size([1, 1, 5, 3])
    """
    to_query, to_key = nn.Linear(dim, dim, bias=False), nn.Linear(other, dim, bias=False)
    return Alignment(to_query, to_key, Mixing(score=AdditiveScore(dim)), span)


def both(seen: Tensor, mask: Mask | None) -> Mask:
    """Words that are seen, (B or 1, S), and not hidden by a mask."""
    window = dense(seen[:, None, None])
    return window if mask is None else window & mask


def at_least_one(window: int) -> int:
    """A window that has two sides."""
    if window < 1:
        raise ConfigError(f"a local look wants a window of at least 1 word to each side; {window} came")
    return window
