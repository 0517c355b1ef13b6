"""Layers everyone knows, rebuilt as multi-head attention: what they look at is fixed, not worked out from the input.

In both, a head looks at one place, so that its map is one-hot, and passes on what stands there (W^V = I). The layer's
own weights are W^O, which joins what the heads bring.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.attention import MultiHead

Pair = tuple[int, int]
NOWHERE = -1


class OnePlaceEach(MultiHead):
    """Multi-head attention in which every head looks at one place, or at none, whatever stands there.

    W^Q = W^K = 0: nothing is compared. A mask leaves one key, whose weight is then 1; the one key head and the one
    value head serve all, as W^V = I is the same for each. A query that sees nothing gets zeros.
    """

    def __init__(self, dim: int, heads: int, to_out: nn.Linear) -> None:
        super().__init__(dim, heads, kv_heads=1, head_width=dim, bias=False)
        self.to_out = to_out
        self.to(to_out.weight)
        nn.init.zeros_(self.to_query.weight)
        nn.init.zeros_(self.to_key.weight)
        nn.init.eye_(self.to_value.weight)

    def look(self, x: Float[Tensor, "B S C"], places: Int[Tensor, "H T"]) -> Float[Tensor, "B T _"]:
        """Output t: W^O of what the heads find, head h at place `places[h, t]` of x."""
        empty = x.new_zeros(x.shape[0], places.shape[1], x.shape[2])  # an output has nothing to ask with
        query, (key, value) = self.split(self.to_query(empty)), self.keys_values(x)
        mask = places[None, :, :, None] == torch.arange(x.shape[1], device=x.device)
        return self.join(self.mix(query, key, value, mask))


class LinearAsAttention(OnePlaceEach):
    """A fully connected layer as attention over the numbers of its input. Made by `attention_from_linear`."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(1, linear.in_features, _joined(linear.weight, linear.bias))

    def forward(self, x: Float[Tensor, "*places J"]) -> Float[Tensor, "*places _"]:
        J = self.to_out.in_features
        if x.shape[-1] != J:
            raise ShapeError(f"this layer looks at {J} numbers, one head each; {x.shape[-1]} came")
        each_its_own = torch.arange(J, device=x.device)[:, None]
        return self.look(x.reshape(-1, J, 1), each_its_own).reshape(*x.shape[:-1], -1)


class ConvolutionAsAttention(OnePlaceEach):
    """A convolution as attention over places. Made by `attention_from_convolution`."""

    def __init__(self, conv: nn.Conv1d | nn.Conv2d) -> None:
        kernel = _ungrouped(conv).mT  # (outputs, offsets, C): head by head, as the heads stand side by side
        super().__init__(conv.in_channels, kernel.shape[1], _joined(kernel.flatten(1), conv.bias))
        self.axes, self.padding_mode = len(conv.kernel_size), conv.padding_mode
        self.kernel, self.stride, self.dilation = (_pair(n) for n in (conv.kernel_size, conv.stride, conv.dilation))
        self.padding = _padding(conv)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, positions) or (B, C, rows, columns), or without a batch, as the layer itself takes it."""
        C, axes = self.to_value.in_features, self.axes
        if x.ndim == axes + 1:
            return self(x[None])[0]
        if x.ndim != axes + 2 or x.shape[1] != C:
            raise ShapeError(f"this layer wants (batch, {C} channels, {axes} more axes); {tuple(x.shape)} came")
        places, size = self.places(_pair(x.shape[2:]), x.device)
        return self.look(x.flatten(2).mT, places).mT.unflatten(2, size[-axes:])

    def places(self, space: Pair, device: torch.device) -> tuple[Int[Tensor, "H T"], Pair]:
        """Where each head of each output looks, and how the outputs are laid out.

        The places are numbered, from 1; the numbers are padded and cut into windows as the convolution would do it.
        """
        numbers = torch.arange(1, 1 + space[0] * space[1], dtype=torch.float64, device=device).view(1, 1, *space)
        (left, right), (above, below) = reversed(self.padding)
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        padded = F.pad(numbers, (left, right, above, below), mode)
        size = self._size(_pair(padded.shape[2:]))
        windows = F.unfold(padded, self.kernel, dilation=self.dilation, stride=self.stride)
        return windows[0].long() + NOWHERE, size

    def _size(self, room: Pair) -> Pair:
        """How many outputs there are in each direction."""
        far_down, far_right = (d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        if far_down > room[0] or far_right > room[1]:
            raise ShapeError(
                f"the kernel reaches over {far_down} x {far_right} places; {room[0]} x {room[1]} are there"
            )
        return (room[0] - far_down) // self.stride[0] + 1, (room[1] - far_right) // self.stride[1] + 1


def attention_from_linear(linear: nn.Linear) -> LinearAsAttention:
    """Multi-head attention that gives what a fully connected layer gives.

    The J numbers of an input vector are the J elements, one feature each, and there is one head for each of them and
    one query for all. Over heads and keys the map is the identity, softmax(log I) = I, so head j brings x_j, and

        y = W^O [x_1 ... x_J] + b,   W^O = the layer's weights.

    What attention would work out from the input, whom to look at, is fixed here.

    >>> linear = nn.Linear(5, 3)
    >>> x = torch.randn(2, 5)
    >>> torch.allclose(attention_from_linear(linear)(x), linear(x), atol=1e-5)
    True
    """
    return LinearAsAttention(linear)


def attention_from_convolution(conv: nn.Module) -> ConvolutionAsAttention:
    """Multi-head attention that gives what a convolution gives, a Conv1d or a Conv2d.

    Every position or pixel is an element, and there is one head for each offset d of the kernel: k of them, or k x k.
    From output t, head d looks at the one place that lies d away from t and brings the vector there, so

        y_t = W^O [x_{t+d} for all offsets d] + b,   W^O = the kernel.

    Beyond the edge there is nothing to look at, and a head brings zeros; with another `padding_mode` it looks at the
    place that the padding repeats. Stride and dilation change the places, groups put zeros into W^O.

    >>> conv = nn.Conv1d(4, 6, kernel_size=3, padding=1)
    >>> x = torch.randn(2, 4, 9)
    >>> torch.allclose(attention_from_convolution(conv)(x), conv(x), atol=1e-5)
    True
    """
    if not isinstance(conv, nn.Conv1d | nn.Conv2d):
        raise ConfigError(f"a Conv1d or a Conv2d can be written as attention here; {type(conv).__name__} came")
    return ConvolutionAsAttention(conv)


def _joined(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """W^O and the bias on top, as copies."""
    out = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).to(weight)
    with torch.no_grad():
        out.weight.copy_(weight)
        if bias is not None:
            out.bias.copy_(bias)
    return out


def _ungrouped(conv: nn.Conv1d | nn.Conv2d) -> Tensor:
    """The kernel over all channels, (outputs, C, offsets), with zeros where a group does not look."""
    parts = conv.weight.detach().flatten(2).chunk(conv.groups)
    offsets = [torch.block_diag(*(part[..., offset] for part in parts)) for offset in range(parts[0].shape[2])]
    return torch.stack(offsets, 2)


def _padding(conv: nn.Conv1d | nn.Conv2d) -> tuple[Pair, Pair]:
    """How many places are added above and below, and left and right."""
    if conv.padding == "same":
        totals = [dilation * (k - 1) for k, dilation in zip(conv.kernel_size, conv.dilation, strict=True)]
    else:
        totals = [0] * len(conv.kernel_size) if isinstance(conv.padding, str) else [2 * n for n in conv.padding]
    sides = [(total // 2, total - total // 2) for total in totals]
    return (sides[0], sides[1]) if len(sides) == 2 else ((0, 0), sides[0])


def _pair(sizes: tuple[int, ...] | torch.Size) -> Pair:
    """Rows and columns; a line is one row."""
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (1, sizes[0])
