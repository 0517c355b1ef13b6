"""What a whole sequence is worth: its log-probability, set against its length and against what it left out."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softlook.base.errors import ConfigError

LengthPenalty = Callable[[int], float]
"""What the log-probability of so many words, the end included, is divided by: a number above 0."""


def power(exponent: float) -> LengthPenalty:
    """The length to a power, as Hugging Face's `length_penalty`: 0 for none, 1 for the mean of a word.

    >>> power(0.5)(9)
    3.0
    """
    if not math.isfinite(exponent):
        raise ConfigError(f"a length penalty is a number, and 0 is none; {exponent} came")
    return lambda length: float(length**exponent)


def gnmt(exponent: float) -> LengthPenalty:
    """((5 + length) / 6) to a power, as Wu et al. 2016 have it.

    >>> gnmt(1.0)(1), gnmt(1.0)(7)
    (1.0, 2.0)
    """
    if not math.isfinite(exponent):
        raise ConfigError(f"a length penalty is a number, and 0 is none; {exponent} came")
    return lambda length: float(((5 + length) / 6) ** exponent)


def uncovered(looks: Float[Tensor, "*B S"], present: Bool[Tensor, "*#B S"] | None = None) -> Float[Tensor, "*B"]:
    """How much of the source was never looked at (Wu et al. 2016): 0 where each word got a whole look, else below.

    `looks` are the weights that each word of the source got, added up.

    >>> uncovered(torch.tensor([[1.5, 1.0], [1.0, 0.5]]))
    tensor([ 0.0000, -0.6931])
    """
    logs = looks.clamp(min=torch.finfo(torch.float32).tiny, max=1.0).log()
    return (logs if present is None else logs.masked_fill(~present, 0.0)).sum(-1)
