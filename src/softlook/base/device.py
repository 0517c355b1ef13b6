"""Choice of device."""

import os

import torch

from softlook.base.errors import ConfigError


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
