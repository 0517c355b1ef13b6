"""Linear layers and convolutions as multi-head attention."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.attention import MultiHeadAttention

Pair = tuple[int, int]
OUTSIDE = -1
"""The position of padding: no key."""


class OneHotAttention(MultiHeadAttention):
    """Multi-head attention with fixed one-hot maps: each head attends to one position, or to none.

    W^Q = W^K = 0, and a mask leaves one key, whose weight is 1. W^V = I, so one key and value head serves all. A fully
    masked query gets zeros. W^O holds the weights of the layer.
    """

    def __init__(self, dim: int, heads: int, to_out: nn.Linear) -> None:
        super().__init__(dim, heads, kv_heads=1, head_dim=dim, qkv_bias=False)
        self.to_out = to_out
        self.to(to_out.weight)
        nn.init.zeros_(self.to_query.weight)
        nn.init.zeros_(self.to_key.weight)
        nn.init.eye_(self.to_value.weight)

    def attend(self, x: Float[Tensor, "B S C"], positions: Int[Tensor, "H T"]) -> Float[Tensor, "B T _"]:
        """Output t is W^O of the concatenated heads, where head h attends to position `positions[h, t]` of x."""
        empty = x.new_zeros(x.shape[0], positions.shape[1], x.shape[2])  # queries carry no content
        query, (key, value) = self.split_heads(self.to_query(empty)), self.project_kv(x)
        mask = positions[None, :, :, None] == torch.arange(x.shape[1], device=x.device)
        return self.merge_heads(self.core(query, key, value, mask))


class LinearAsAttention(OneHotAttention):
    """A linear layer as attention over the elements of its input, from `attention_from_linear`."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(1, linear.in_features, _output_projection(linear.weight, linear.bias))

    def forward(self, x: Float[Tensor, "*positions J"]) -> Float[Tensor, "*positions _"]:
        J = self.to_out.in_features
        if x.shape[-1] != J:
            raise ShapeError(f"expected {J} features, got {x.shape[-1]}")
        own_element = torch.arange(J, device=x.device)[:, None]
        return self.attend(x.reshape(-1, J, 1), own_element).reshape(*x.shape[:-1], -1)


class ConvolutionAsAttention(OneHotAttention):
    """A convolution as attention over positions, from `attention_from_convolution`."""

    def __init__(self, conv: nn.Conv1d | nn.Conv2d) -> None:
        kernel = _dense_kernel(conv).mT  # (outputs, offsets, C): one head per offset
        super().__init__(conv.in_channels, kernel.shape[1], _output_projection(kernel.flatten(1), conv.bias))
        self.axes, self.padding_mode = len(conv.kernel_size), conv.padding_mode
        self.kernel, self.stride, self.dilation = (_pair(n) for n in (conv.kernel_size, conv.stride, conv.dilation))
        self.padding = _padding(conv)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, length) or (B, C, height, width), with or without a batch, as the convolution itself."""
        C, axes = self.to_value.in_features, self.axes
        if x.ndim == axes + 1:
            return self(x[None])[0]
        if x.ndim != axes + 2 or x.shape[1] != C:
            raise ShapeError(f"expected (batch, {C} channels, {axes} more axes), got {tuple(x.shape)}")
        positions, size = self.positions(_pair(x.shape[2:]), x.device)
        return self.attend(x.flatten(2).mT, positions).mT.unflatten(2, size[-axes:])

    def positions(self, space: Pair, device: torch.device) -> tuple[Int[Tensor, "H T"], Pair]:
        """The position that each head of each output attends to, and the output size.

        Positions are numbered from 1, then padded and unfolded as the convolution would do it.
        """
        indices = torch.arange(1, 1 + space[0] * space[1], dtype=torch.float64, device=device).view(1, 1, *space)
        (left, right), (above, below) = reversed(self.padding)
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        padded = F.pad(indices, (left, right, above, below), mode)
        size = self._size(_pair(padded.shape[2:]))
        windows = F.unfold(padded, self.kernel, dilation=self.dilation, stride=self.stride)
        return windows[0].long() + OUTSIDE, size

    def _size(self, padded: Pair) -> Pair:
        """Number of outputs along each axis."""
        height, width = (d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        if height > padded[0] or width > padded[1]:
            raise ShapeError(
                f"the dilated kernel is {height} x {width}, larger than the padded input, {padded[0]} x {padded[1]}"
            )
        return (padded[0] - height) // self.stride[0] + 1, (padded[1] - width) // self.stride[1] + 1


def attention_from_linear(linear: nn.Linear) -> LinearAsAttention:
    """Multi-head attention that is equivalent to a linear layer.

    The J elements of the input vector are the keys, with one head for each and one query for all. Over heads and keys
    the attention map is the identity, so head j returns x_j, and

        y = W^O [x_1 ... x_J] + b,   W^O = the weight of the layer.

    >>> linear = nn.Linear(5, 3)
    >>> x = torch.randn(2, 5)
    >>> torch.allclose(attention_from_linear(linear)(x), linear(x), atol=1e-5)
    True
    """
    return LinearAsAttention(linear)


def attention_from_convolution(conv: nn.Module) -> ConvolutionAsAttention:
    """Multi-head attention that is equivalent to a Conv1d or Conv2d (Cordonnier et al. 2020).

    Positions or pixels are the keys, with one head for each offset d of the kernel: k of them, or k x k. From output t,
    head d attends to the position t + d alone, so

        y_t = W^O [x_{t+d} for all offsets d] + b,   W^O = the kernel.

    Outside the input a head returns zeros; with another `padding_mode` it attends to the position that the padding
    repeats. Stride and dilation change the positions, groups put zeros into W^O.

    >>> conv = nn.Conv1d(4, 6, kernel_size=3, padding=1)
    >>> x = torch.randn(2, 4, 9)
    >>> torch.allclose(attention_from_convolution(conv)(x), conv(x), atol=1e-5)
    True
    """
    if not isinstance(conv, nn.Conv1d | nn.Conv2d):
        raise ConfigError(f"expected a Conv1d or Conv2d, got a {type(conv).__name__}")
    return ConvolutionAsAttention(conv)


def _output_projection(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """The output projection, with copies of the weight and bias."""
    out = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).to(weight)
    with torch.no_grad():
        out.weight.copy_(weight)
        if bias is not None:
            out.bias.copy_(bias)
    return out


def _dense_kernel(conv: nn.Conv1d | nn.Conv2d) -> Tensor:
    """The kernel over all channels, (outputs, C, offsets), with zeros between groups."""
    parts = conv.weight.detach().flatten(2).chunk(conv.groups)
    offsets = [torch.block_diag(*(part[..., offset] for part in parts)) for offset in range(parts[0].shape[2])]
    return torch.stack(offsets, 2)


def _padding(conv: nn.Conv1d | nn.Conv2d) -> tuple[Pair, Pair]:
    """Padding above and below, left and right."""
    if conv.padding == "same":
        totals = [dilation * (k - 1) for k, dilation in zip(conv.kernel_size, conv.dilation, strict=True)]
    else:
        totals = [0] * len(conv.kernel_size) if isinstance(conv.padding, str) else [2 * n for n in conv.padding]
    sides = [(total // 2, total - total // 2) for total in totals]
    return (sides[0], sides[1]) if len(sides) == 2 else ((0, 0), sides[0])


def _pair(sizes: tuple[int, ...] | torch.Size) -> Pair:
    """Height and width; a sequence has height 1."""
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (1, sizes[0])
