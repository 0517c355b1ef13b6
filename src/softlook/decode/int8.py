"""Weights in one byte each, by torch's own quantised kernels: a quarter of the memory to read for every word.

Each row of a weight has a scale of its own; what goes in is brought to bytes anew at every call, with one scale for all
of it. How much that costs is measured, not promised.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.decode.packed import remade

Engine = Literal["fbgemm", "onednn"]
LINEAR = torch.ops.quantized.linear_dynamic._op
"""The kernel itself: what torch puts around it in Python takes as long as a small layer."""
WIDE, FEW = 8192, 64
"""From so many words on, a layer that scores them is kept in two ways: for fewer rows than that, and for more."""
STEPS = 127
"""How many steps a byte has on each side of zero."""


class Int8Linear(nn.Module):
    """A linear layer with one byte for each weight.

    >>> layer, x = nn.Linear(64, 32), torch.randn(4, 64)
    >>> with torch.no_grad():
    ...     small = Int8Linear(layer.weight, layer.bias)
    ...     bool(((small(x) - layer(x)).abs() < 0.05).all())
    True
    """

    def __init__(
        self, weight: Float[Tensor, "M C"], bias: Float[Tensor, " M"] | None, engine: Engine = "fbgemm"
    ) -> None:
        super().__init__()
        bias = None if bias is None else bias.clone()  # what is packed refers to it
        scales = (weight.abs().amax(1) / STEPS).clamp(min=torch.finfo(torch.float32).tiny)
        with _engine(engine), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # making such tensors is to go from torch one day
            small = torch.quantize_per_channel(weight, scales.double(), torch.zeros(len(scales)).long(), 0, torch.qint8)
            self.packed = self.many = torch.ops.quantized.linear_prepack(small, bias)
            if engine == "fbgemm" and len(weight) >= WIDE and "onednn" in torch.backends.quantized.supported_engines:
                with _engine("onednn"):
                    self.many = torch.ops.quantized.linear_prepack(small, bias)
        self.few = FEW * weight.shape[1]
        self.reduced = not torch.cpu._is_vnni_supported()
        """Without VNNI sums of products of full bytes overflow: what goes in has one bit less then."""

    def forward(self, x: Float[Tensor, "*places C"]) -> Float[Tensor, "*places M"]:
        return LINEAR(x, self.packed if x.numel() < self.few else self.many, self.reduced)


def int8(model: nn.Module, engine: Engine = "fbgemm") -> nn.Module:
    """A copy for decoding on a CPU whose linear layers have one byte for each weight; vectors of words stay exact.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> ids = torch.tensor([[3, 1, 4]])
    >>> with torch.no_grad():
    ...     bool(((int8(model)(ids) - model(ids)).abs() < 0.05).all())
    True
    """
    if engine not in torch.backends.quantized.supported_engines:
        raise ConfigError(
            f"this build of torch has no {engine!r} for weights of one byte; "
            f"it has {', '.join(torch.backends.quantized.supported_engines)}"
        )
    return remade(model, lambda weight, bias: Int8Linear(weight, bias, engine))


@contextmanager
def _engine(name: Engine) -> Iterator[None]:
    """Which kernels weights are packed for is torch's own setting for the whole process: it is put back."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
