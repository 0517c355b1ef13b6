"""Device memory, and whether a model can be trained in it."""

import os

import torch

from softlook.base.errors import ConfigError

TRAINING_BYTES = 16
"""Bytes per trained parameter: weight, gradient and two Adam moments in float32."""


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
