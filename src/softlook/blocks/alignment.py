"""Alignment of recurrent decoders (Bahdanau, Luong)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore
from softlook.ops.masks import Mask, dense, padding
from softlook.ops.scores import dot


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """An encoded source sequence, with keys computed once."""

    key: Float[Tensor, "B 1 S A"]
    value: Float[Tensor, "B 1 S E"]
    lengths: Int[Tensor, " B"]
    """Number of tokens of each row."""
    last: Float[Tensor, "B M"]
    """The final state of the encoder."""
    mask: Mask | None = None
    """Padding mask, if rows differ in length."""

    def reorder(self, rows: Int[Tensor, " N"]) -> "EncodedSource":
        """Select rows of the batch, in this order; a row may occur several times or not at all."""
        lengths = self.lengths[rows]
        mask = None if self.mask is None else padding(lengths)
        return EncodedSource(self.key[rows], self.value[rows], lengths, self.last[rows], mask)


class GlobalWindow(nn.Module):
    """Global attention (Luong et al. 2015): all source positions."""

    def forward(self, state: Float[Tensor, "B M"], source: EncodedSource, step: int) -> tuple[Mask | None, Tensor]:
        """The mask of this step, and the values."""
        return source.mask, source.value


class LocalMonotonic(nn.Module):
    """Luong's local-m: step t attends to source positions t - window to t + window.

    Beyond the end of the source no position is left; the output is zeros.

    >>> align, states = dot_alignment(1, 1, LocalMonotonic(1)), torch.tensor([[[1.0], [2.0], [4.0], [8.0]]])
    >>> source = EncodedSource(align.keys(states), states[:, None], torch.tensor([4]), torch.zeros(1, 1))
    >>> align(torch.zeros(1, 1), source, 0), align(torch.zeros(1, 1), source, 9)
    (tensor([[1.5000]]), tensor([[0.]]))
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = check_window(window)

    def forward(self, state: Float[Tensor, "B M"], source: EncodedSource, step: int) -> tuple[Mask | None, Tensor]:
        positions = torch.arange(source.value.shape[2], device=state.device)
        return window_mask(((positions - step).abs() <= self.window)[None], source.mask), source.value


class PositionPredictor(nn.Module):
    """Luong's aligned position: length * sigmoid(v . tanh(W state)), a real number."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.to_hidden = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, 1, bias=False)

    def forward(self, state: Float[Tensor, "B M"], lengths: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        return lengths * self.to_out(self.to_hidden(state).tanh())[:, 0].sigmoid()


class LocalPredictive(nn.Module):
    """Luong's local-p: a window around a position predicted from the state, weighted by a Gaussian.

    As published, the Gaussian of standard deviation window / 2 multiplies the weights after the softmax, so they sum to
    less than 1. It multiplies the values here, which is equivalent; attention maps show the weights before it. The
    edges of the window pass no gradient: the predictor learns through the Gaussian.

    >>> align, states = dot_alignment(2, 2, LocalPredictive(2, window=3)), torch.randn(1, 9, 2)
    >>> source = EncodedSource(align.keys(states), states[:, None], torch.tensor([9]), torch.zeros(1, 2))
    >>> align(torch.randn(1, 2), source, 0).shape
    torch.Size([1, 2])
    """

    def __init__(self, dim: int, window: int) -> None:
        super().__init__()
        self.predictor, self.window = PositionPredictor(dim), check_window(window)

    def forward(self, state: Float[Tensor, "B M"], source: EncodedSource, step: int) -> tuple[Mask | None, Tensor]:
        center = self.predictor(state, source.lengths)
        distance = torch.arange(source.value.shape[2], device=state.device) - center[:, None]
        gaussian = (-2 * (distance / self.window).square()).exp()  # -distance^2 / (2 (window / 2)^2)
        return window_mask(distance.abs() <= self.window, source.mask), source.value * gaussian[:, None, :, None]


class AdditiveScore(nn.Module):
    """Bahdanau's additive score of projected queries and keys: v . tanh(query + key).

    With the two projections before it, it is `softlook.scores.additive`.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.randn(width) / width**0.5)

    def forward(self, query: Float[Tensor, "B H T A"], key: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32  # as for other scores
        hidden = query.to(dtype)[..., :, None, :] + key.to(dtype)[..., None, :, :]
        return hidden.tanh() @ self.vector.to(dtype)


class AlignmentModel(nn.Module):
    """Attention of a recurrent decoder: one head, one query per step.

    - `to_query`, `to_key`: projections of the decoder's state and of the encoder's states.
    - `core`: the attention function, with its score.
    - `window`: which source positions a step attends to.
    """

    def __init__(self, to_query: nn.Module, to_key: nn.Module, core: AttentionCore, window: nn.Module) -> None:
        super().__init__()
        self.to_query, self.to_key, self.core, self.window = to_query, to_key, core, window

    def keys(self, encoder_states: Float[Tensor, "B S E"]) -> Float[Tensor, "B 1 S A"]:
        """Keys of the encoder's states."""
        return self.to_key(encoder_states)[:, None]

    def forward(self, state: Float[Tensor, "B M"], source: EncodedSource, step: int) -> Float[Tensor, "B E"]:
        mask, value = self.window(state, source, step)
        return self.core(self.to_query(state)[:, None, None], source.key, value, mask)[:, 0, 0]


def dot_alignment(dim: int, encoder_dim: int, window: nn.Module) -> AlignmentModel:
    """Luong's dot score: state . encoder_state, which need one width.

    >>> dot_alignment(4, 4, GlobalWindow()).keys(torch.ones(1, 3, 4)).shape
    torch.Size([1, 1, 3, 4])
    """
    if dim != encoder_dim:
        raise ConfigError(
            f"the dot score requires states of equal width, got decoder {dim} and encoder {encoder_dim}. "
            "Use the general or the concat score, or a unidirectional encoder."
        )
    return AlignmentModel(nn.Identity(), nn.Identity(), AttentionCore(score=dot()), window)


def general_alignment(dim: int, encoder_dim: int, window: nn.Module) -> AlignmentModel:
    """Luong's general score: state . W . encoder_state.

    >>> general_alignment(3, 4, GlobalWindow()).to_query(torch.ones(1, 3)).shape
    torch.Size([1, 4])
    """
    return AlignmentModel(nn.Linear(dim, encoder_dim, bias=False), nn.Identity(), AttentionCore(score=dot()), window)


def concat_alignment(dim: int, encoder_dim: int, window: nn.Module) -> AlignmentModel:
    """Bahdanau's additive score, Luong's concat: v . tanh(W state + U encoder_state).

    >>> concat_alignment(3, 4, GlobalWindow()).keys(torch.ones(1, 5, 4)).shape
    torch.Size([1, 1, 5, 3])
    """
    to_query, to_key = nn.Linear(dim, dim, bias=False), nn.Linear(encoder_dim, dim, bias=False)
    return AlignmentModel(to_query, to_key, AttentionCore(score=AdditiveScore(dim)), window)


def window_mask(visible: Tensor, mask: Mask | None) -> Mask:
    """A mask of the visible positions, (B or 1, S), and of the padding."""
    window = dense(visible[:, None, None])
    return window if mask is None else window & mask


def check_window(window: int) -> int:
    if window < 1:
        raise ConfigError(f"the window of local attention must be at least 1, got {window}")
    return window
