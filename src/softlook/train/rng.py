"""Random number generators: derived seeds, RNG state."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import torch
from torch import Tensor


def derive_seed(*numbers: int) -> int:
    """One seed from several numbers, such as a seed, an epoch and an offset: similar numbers give unrelated seeds."""
    return int.from_bytes(sha256(" ".join(map(str, numbers)).encode()).digest()[:4], "little")


def make_generator(*numbers: int) -> torch.Generator:
    """A CPU generator seeded by several numbers (`derive_seed`).

    >>> torch.rand(1, generator=make_generator(0, 1)) == torch.rand(1, generator=make_generator(0, 1))
    tensor([True])
    """
    return torch.Generator().manual_seed(derive_seed(*numbers))


def get_rng_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's global generators used by a model on `device`."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_rng_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Restore what `get_rng_states` returned. A device without a state in `states` keeps its own."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


@contextmanager
def preserve_rng_states(device: torch.device) -> Iterator[None]:
    """Restore the RNG states on exit."""
    before = get_rng_states(device)
    try:
        yield
    finally:
        set_rng_states(before, device)
