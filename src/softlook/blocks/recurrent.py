"""Attention as it began: a recurrent decoder that looks at all the states of the encoder, not only at the last."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ShapeError
from softlook.base.tracing import can_read
from softlook.blocks.alignment import Alignment, Source
from softlook.ops.masks import padding


class RecurrentEncoder(nn.Module):
    """Reads a sequence word by word with gated recurrent units, and backwards as well.

    A row that is filled up on the right is read as though it were alone: backwards, it begins at its own last word.

    >>> read, last = RecurrentEncoder(8, 16)(torch.randn(2, 5, 8), torch.tensor([5, 3]))
    >>> read.shape, last.shape
    (torch.Size([2, 5, 32]), torch.Size([2, 16]))
    """

    def __init__(self, dim: int, hidden: int, *, bidirectional: bool = True) -> None:
        super().__init__()
        self.forwards = nn.GRU(dim, hidden, batch_first=True)
        self.backwards = nn.GRU(dim, hidden, batch_first=True) if bidirectional else None
        self.width = 2 * hidden if bidirectional else hidden

    def train(self, mode: bool = True) -> "RecurrentEncoder":
        """cuDNN takes a gradient back through recurrent layers in training mode only, so they stay in it.

        Nothing is dropped inside them: the mode changes no answer.
        """
        super().train(mode)
        self.forwards.train()
        if self.backwards is not None:
            self.backwards.train()
        return self

    def forward(
        self, x: Float[Tensor, "B S C"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S E"], Float[Tensor, "B M"]]:
        """What was read up to and from each word, and the state that the last direction ended in."""
        read, _ = self.forwards(x)
        if self.backwards is None:
            return read, at(read, lengths - 1)
        back, _ = self.backwards(reversed_rows(x, lengths))
        back = reversed_rows(back, lengths)
        return torch.cat([read, back], -1), back[:, 0]


@dataclass(frozen=True, eq=False)
class Carried:
    """What a recurrent decoder hands on from one word to the next."""

    state: Float[Tensor, "B M"]
    step: int = 0
    fed: Float[Tensor, "B A"] | None = None
    """The attentional vector of the word before, where it is fed back."""

    def select(self, rows: Int[Tensor, " N"]) -> "Carried":
        """These rows of the batch."""
        return Carried(self.state[rows], self.step, None if self.fed is None else self.fed[rows])


class RecurrentMemory:
    """What stands between two calls of a recurrent decoder. It belongs to whoever loops, and starts empty."""

    def __init__(self) -> None:
        self.carried: Carried | None = None
        self.source: Source | None = None

    @property
    def length(self) -> int:
        """How many words came by so far."""
        return 0 if self.carried is None else self.carried.step

    def recall(self, make: Callable[[], Source]) -> Source:
        """The source: read once, and then remembered."""
        if self.source is None:
            self.source = make()
        return self.source

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Go on with these rows of the batch: hypotheses that are kept, copied or dropped."""
        self.carried = None if self.carried is None else self.carried.select(rows)
        self.source = None if self.source is None else self.source.select(rows)


class BahdanauDecoder(nn.Module):
    """The state *before* a step asks; what it finds goes into the step beside the word, and into what is said.

    c = align(s, source); s' = GRU([x; c], s); said = maxout(W [s'; x; c]). The gated unit is torch's, which resets
    the old state after its product, not before it as the paper writes.

    - `align`: the look-up, by states `hidden` wide.
    - `other`: width of what is looked up; `last`: width of the state in which reading ended.
    - `readout`: width of what is said.

    >>> from softlook.blocks import Everywhere, by_concat
    >>> align, read, lengths = by_concat(16, 12, Everywhere()), torch.randn(2, 7, 12), torch.tensor([7, 4])
    >>> decoder = BahdanauDecoder(8, 16, align, other=12, last=6, readout=10)
    >>> source = read_source(read, torch.randn(2, 6), lengths, align, ragged=True)
    >>> said, carried = decoder(torch.randn(2, 3, 8), source, decoder.start(source))
    >>> said.shape, carried.step
    (torch.Size([2, 3, 10]), 3)
    """

    def __init__(self, dim: int, hidden: int, align: Alignment, *, other: int, last: int, readout: int) -> None:
        super().__init__()
        self.align = align
        self.to_start = nn.Linear(last, hidden)
        self.cell = nn.GRUCell(dim + other, hidden)
        self.to_out = nn.Linear(hidden + dim + other, 2 * readout)

    def start(self, source: Source) -> Carried:
        """tanh(W last): what is known before the first word."""
        return Carried(self.to_start(source.last).tanh())

    def forward(
        self, x: Float[Tensor, "B T C"], source: Source, carried: Carried
    ) -> tuple[Float[Tensor, "B T A"], Carried]:
        state, found, states = carried.state, [], []
        for step, word in enumerate(x.unbind(1)):
            found.append(self.align(state, source, carried.step + step))
            state = self.cell(torch.cat([word, found[-1]], -1), state)
            states.append(state)
        said = self.to_out(torch.cat([torch.stack(states, 1), x, torch.stack(found, 1)], -1))
        return said.unflatten(-1, (-1, 2)).amax(-1), Carried(state, carried.step + x.shape[1])


class LuongDecoder(nn.Module):
    """The state *after* a step asks; what it finds and the state together make what is said.

    s' = GRU(x, s); c = align(s', source); said = tanh(W [c; s']). With `feeding`, what was said at the
    last word goes into the step beside the new one, so that it knows where was looked before.

    >>> from softlook.blocks import Monotonic, by_dot
    >>> align, read, lengths = by_dot(16, 16, Monotonic(2)), torch.randn(2, 7, 16), torch.tensor([7, 4])
    >>> decoder = LuongDecoder(8, 16, align, other=16, last=6, readout=10, feeding=True)
    >>> source = read_source(read, torch.randn(2, 6), lengths, align, ragged=True)
    >>> said, carried = decoder(torch.randn(2, 3, 8), source, decoder.start(source))
    >>> said.shape, carried.fed.shape
    (torch.Size([2, 3, 10]), torch.Size([2, 10]))
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        align: Alignment,
        *,
        other: int,
        last: int,
        readout: int,
        feeding: bool = False,
    ) -> None:
        super().__init__()
        self.align = align
        self.to_start = nn.Linear(last, hidden)
        self.cell = nn.GRUCell(dim + readout if feeding else dim, hidden)
        self.to_out = nn.Linear(other + hidden, readout)
        self.feeding = feeding

    def start(self, source: Source) -> Carried:
        """tanh(W last), and nothing said yet."""
        state = self.to_start(source.last).tanh()
        nothing = state.new_zeros(state.shape[0], self.to_out.out_features) if self.feeding else None
        return Carried(state, fed=nothing)

    def forward(
        self, x: Float[Tensor, "B T C"], source: Source, carried: Carried
    ) -> tuple[Float[Tensor, "B T A"], Carried]:
        state, fed, said = carried.state, carried.fed, []
        for step, word in enumerate(x.unbind(1)):
            state = self.cell(word if fed is None else torch.cat([word, fed], -1), state)
            said.append(self.to_out(torch.cat([self.align(state, source, carried.step + step), state], -1)).tanh())
            fed = said[-1] if self.feeding else None
        return torch.stack(said, 1), Carried(state, carried.step + x.shape[1], fed)


def lengths_of(present: Bool[Tensor, "B S"] | None, ids: Int[Tensor, "B S"]) -> Int[Tensor, " B"]:
    """How many words each row has; they stand on the left.

    >>> lengths_of(torch.tensor([[True, True, False]]), torch.tensor([[5, 3, 0]]))
    tensor([2])
    """
    B, S = ids.shape
    if present is None:
        return torch.full((B,), S, device=ids.device)
    lengths = present.sum(1)
    if can_read(present):
        if not bool((present == (torch.arange(S) < lengths[:, None])).all()):
            raise ShapeError("a recurrent encoder reads rows that are filled up on the right; present has other holes")
        if not bool(lengths.all()):
            raise ShapeError(f"row {int(lengths.argmin())} of the source has no word: there is nothing to read")
    return lengths


def read_source(read: Tensor, last: Tensor, lengths: Tensor, align: Alignment, *, ragged: bool) -> Source:
    """What a decoder looks up in, from what an encoder read."""
    mask = padding(lengths) if ragged else None
    return Source(align.keys(read), read[:, None], lengths, last, mask)


def reversed_rows(x: Float[Tensor, "B S C"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S C"]:
    """Each row back to front within its own length; what fills it up stays where it is.

    >>> reversed_rows(torch.tensor([[[1.0], [2.0], [0.0]]]), torch.tensor([2])).flatten()
    tensor([2., 1., 0.])
    """
    places = torch.arange(x.shape[1], device=x.device)
    turned = lengths[:, None] - 1 - places
    return x.gather(1, torch.where(turned < 0, places, turned)[..., None].expand_as(x))


def at(x: Float[Tensor, "B S C"], place: Int[Tensor, " B"]) -> Float[Tensor, "B C"]:
    """One vector of each row."""
    return x[torch.arange(x.shape[0], device=x.device), place]
