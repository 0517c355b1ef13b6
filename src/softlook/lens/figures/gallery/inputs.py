"""Inputs of the gallery: sentences, and random numbers that are the same in every process."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

SUSAN = ("Susan", "gave", "roses", "to", "Mary")
"""A sentence whose meaning depends on the order of its words."""


@contextmanager
def seed(number: int = 0) -> Iterator[None]:
    """Fix torch's random numbers within the block, and restore their state after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        yield


def random(*shape: int, number: int = 0) -> Tensor:
    """Standard normal numbers of a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(number))
