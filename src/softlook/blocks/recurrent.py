"""Recurrent encoder and attention decoders (Bahdanau, Luong)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ShapeError
from softlook.base.tensors import can_read
from softlook.blocks.alignment import AlignmentModel, EncodedSource
from softlook.ops.masks import padding


class RecurrentEncoder(nn.Module):
    """GRU encoder, bidirectional by default. Right padding does not change the states of a row.

    >>> states, last = RecurrentEncoder(8, 16)(torch.randn(2, 5, 8), torch.tensor([5, 3]))
    >>> states.shape, last.shape
    (torch.Size([2, 5, 32]), torch.Size([2, 16]))
    """

    def __init__(self, dim: int, hidden: int, *, bidirectional: bool = True) -> None:
        super().__init__()
        self.forward_gru = nn.GRU(dim, hidden, batch_first=True)
        self.backward_gru = nn.GRU(dim, hidden, batch_first=True) if bidirectional else None
        self.width = 2 * hidden if bidirectional else hidden

    def train(self, mode: bool = True) -> "RecurrentEncoder":
        """The GRUs stay in training mode, in which alone cuDNN computes gradients; they have no dropout."""
        super().train(mode)
        self.forward_gru.train()
        if self.backward_gru is not None:
            self.backward_gru.train()
        return self

    def forward(
        self, x: Float[Tensor, "B S C"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S E"], Float[Tensor, "B M"]]:
        """The states of all positions, and the final state of the last direction."""
        states, _ = self.forward_gru(x)
        if self.backward_gru is None:
            return states, states[torch.arange(x.shape[0], device=x.device), lengths - 1]
        backward, _ = self.backward_gru(reverse_rows(x, lengths))
        backward = reverse_rows(backward, lengths)
        return torch.cat([states, backward], -1), backward[:, 0]


@dataclass(frozen=True, eq=False)
class DecoderState:
    """The state of a recurrent decoder between two tokens."""

    state: Float[Tensor, "B M"]
    step: int = 0
    fed: Float[Tensor, "B A"] | None = None
    """The attentional vector of the token before, with input feeding."""

    def reorder(self, rows: Int[Tensor, " N"]) -> "DecoderState":
        """Select rows of the batch."""
        return DecoderState(self.state[rows], self.step, None if self.fed is None else self.fed[rows])


class RecurrentCache:
    """The encoded source and the decoder's state between two calls. The caller owns it."""

    def __init__(self) -> None:
        self.state: DecoderState | None = None
        self.source: EncodedSource | None = None

    @property
    def length(self) -> int:
        """Number of target tokens so far."""
        return 0 if self.state is None else self.state.step

    def encoded(self, encode: Callable[[], EncodedSource]) -> EncodedSource:
        """The source, encoded at the first call."""
        if self.source is None:
            self.source = encode()
        return self.source

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        """Select rows of the batch, in this order: hypotheses that are kept, copied or dropped."""
        self.state = None if self.state is None else self.state.reorder(rows)
        self.source = None if self.source is None else self.source.reorder(rows)


class BahdanauDecoder(nn.Module):
    """Bahdanau's decoder: the state before a step attends; the context enters the step and the readout.

    c = align(s, source); s' = GRU([x; c], s); output = maxout(W [s'; x; c]). The GRU is torch's, which resets the state
    after its product, not before as in the paper.

    - `align`: the attention, with queries of width `hidden`.
    - `encoder_dim`: width of the encoder's states; `last_dim`: width of its final state.
    - `readout`: width of the output.

    >>> from softlook.blocks import GlobalWindow, concat_alignment
    >>> align, states = concat_alignment(16, 12, GlobalWindow()), torch.randn(2, 7, 12)
    >>> decoder = BahdanauDecoder(8, 16, align, encoder_dim=12, last_dim=6, readout=10)
    >>> source = make_source(states, torch.randn(2, 6), torch.tensor([7, 4]), align, padded=True)
    >>> output, state = decoder(torch.randn(2, 3, 8), source, decoder.initial_state(source))
    >>> output.shape, state.step
    (torch.Size([2, 3, 10]), 3)
    """

    def __init__(
        self, dim: int, hidden: int, align: AlignmentModel, *, encoder_dim: int, last_dim: int, readout: int
    ) -> None:
        super().__init__()
        self.align = align
        self.to_initial = nn.Linear(last_dim, hidden)
        self.cell = nn.GRUCell(dim + encoder_dim, hidden)
        self.to_out = nn.Linear(hidden + dim + encoder_dim, 2 * readout)

    def initial_state(self, source: EncodedSource) -> DecoderState:
        """tanh(W last)."""
        return DecoderState(self.to_initial(source.last).tanh())

    def forward(
        self, x: Float[Tensor, "B T C"], source: EncodedSource, initial: DecoderState
    ) -> tuple[Float[Tensor, "B T A"], DecoderState]:
        state, contexts, states = initial.state, [], []
        for step, token in enumerate(x.unbind(1)):
            contexts.append(self.align(state, source, initial.step + step))
            state = self.cell(torch.cat([token, contexts[-1]], -1), state)
            states.append(state)
        output = self.to_out(torch.cat([torch.stack(states, 1), x, torch.stack(contexts, 1)], -1))
        return output.unflatten(-1, (-1, 2)).amax(-1), DecoderState(state, initial.step + x.shape[1])


class LuongDecoder(nn.Module):
    """Luong's decoder: the state after a step attends; context and state give the output.

    s' = GRU(x, s); c = align(s', source); output = tanh(W [c; s']). With `input_feeding`, the output of the token
    before enters the step as well.

    >>> from softlook.blocks import LocalMonotonic, dot_alignment
    >>> align, states = dot_alignment(16, 16, LocalMonotonic(2)), torch.randn(2, 7, 16)
    >>> decoder = LuongDecoder(8, 16, align, encoder_dim=16, last_dim=6, readout=10, input_feeding=True)
    >>> source = make_source(states, torch.randn(2, 6), torch.tensor([7, 4]), align, padded=True)
    >>> output, state = decoder(torch.randn(2, 3, 8), source, decoder.initial_state(source))
    >>> output.shape, state.fed.shape
    (torch.Size([2, 3, 10]), torch.Size([2, 10]))
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        align: AlignmentModel,
        *,
        encoder_dim: int,
        last_dim: int,
        readout: int,
        input_feeding: bool = False,
    ) -> None:
        super().__init__()
        self.align = align
        self.to_initial = nn.Linear(last_dim, hidden)
        self.cell = nn.GRUCell(dim + readout if input_feeding else dim, hidden)
        self.to_out = nn.Linear(encoder_dim + hidden, readout)
        self.input_feeding = input_feeding

    def initial_state(self, source: EncodedSource) -> DecoderState:
        """tanh(W last), and zeros to feed."""
        state = self.to_initial(source.last).tanh()
        fed = state.new_zeros(state.shape[0], self.to_out.out_features) if self.input_feeding else None
        return DecoderState(state, fed=fed)

    def forward(
        self, x: Float[Tensor, "B T C"], source: EncodedSource, initial: DecoderState
    ) -> tuple[Float[Tensor, "B T A"], DecoderState]:
        state, fed, outputs = initial.state, initial.fed, []
        for step, token in enumerate(x.unbind(1)):
            state = self.cell(token if fed is None else torch.cat([token, fed], -1), state)
            context = self.align(state, source, initial.step + step)
            outputs.append(self.to_out(torch.cat([context, state], -1)).tanh())
            fed = outputs[-1] if self.input_feeding else None
        return torch.stack(outputs, 1), DecoderState(state, initial.step + x.shape[1], fed)


def row_lengths(padding_mask: Bool[Tensor, "B S"] | None, ids: Int[Tensor, "B S"]) -> Int[Tensor, " B"]:
    """Number of tokens of each right-padded row.

    >>> row_lengths(torch.tensor([[True, True, False]]), torch.tensor([[5, 3, 0]]))
    tensor([2])
    """
    B, S = ids.shape
    if padding_mask is None:
        return torch.full((B,), S, device=ids.device)
    lengths = padding_mask.sum(1)
    if can_read(padding_mask):
        if not bool((padding_mask == (torch.arange(S) < lengths[:, None])).all()):
            raise ShapeError("a recurrent encoder requires rows that are padded on the right only")
        if not bool(lengths.all()):
            raise ShapeError(f"row {int(lengths.argmin())} of the source has no token")
    return lengths


def make_source(states: Tensor, last: Tensor, lengths: Tensor, align: AlignmentModel, *, padded: bool) -> EncodedSource:
    """An encoded source from the states of an encoder."""
    mask = padding(lengths) if padded else None
    return EncodedSource(align.keys(states), states[:, None], lengths, last, mask)


def reverse_rows(x: Float[Tensor, "B S C"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S C"]:
    """Each row reversed within its own length; padding stays in place.

    >>> reverse_rows(torch.tensor([[[1.0], [2.0], [0.0]]]), torch.tensor([2])).flatten()
    tensor([2., 1., 0.])
    """
    positions = torch.arange(x.shape[1], device=x.device)
    reverse = lengths[:, None] - 1 - positions
    return x.gather(1, torch.where(reverse < 0, positions, reverse)[..., None].expand_as(x))
