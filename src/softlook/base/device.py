"""Choice of device, and its memory."""

import os

import torch

from softlook.base.errors import ConfigError

TRAINING_BYTES = 16
"""Bytes per trained parameter: weight, gradient and two Adam moments in float32."""


def local_rank() -> int | None:
    """Rank of this process on its machine; None if neither torchrun nor `launch` started it."""
    return int(os.environ["LOCAL_RANK"]) if {"LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys() else None


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; "auto" is cuda, then mps, then cpu, with one GPU per local rank."""
    if name != "auto":
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            reason = "expected cpu, cuda, cuda:1 or mps" if reason.startswith("Expected one of") else reason
            raise ConfigError(f"device {name!r} is not available: {reason}. Leave it out, or use cpu.") from None
        return device if device != torch.device("cuda") else torch.device("cuda", local_rank() or 0)
    if torch.cuda.is_available():
        return torch.device("cuda", local_rank() or 0)
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def total_memory(device: torch.device) -> int:
    """Return the total memory of a device in bytes."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_trainable(parameters: int, device: torch.device) -> None:
    """Raise ConfigError if a model of this size cannot be trained in the memory of the device.

    >>> check_trainable(10**15, torch.device("cpu"))
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: training 1,000,000,000,000,000 parameters takes at least 16,000,000.0 GB, ...
    """
    needed, total = TRAINING_BYTES * parameters, total_memory(device)
    if needed > total:
        raise ConfigError(
            f"training {parameters:,} parameters takes at least {needed / 1e9:,.1f} GB, and {device.type} has "
            f"{total / 1e9:,.1f} GB. Reduce size.dim, size.hidden or size.depth."
        )
