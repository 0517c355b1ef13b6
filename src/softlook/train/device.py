"""What to compute on, and with which numbers."""

from contextlib import AbstractContextManager, nullcontext

import torch

from softlook.base.errors import ConfigError
from softlook.train.ranks import local_rank
from softlook.train.settings import Precision

KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(wanted: str = "auto") -> torch.device:
    """The device asked for; where it is left open, cuda before mps before cpu, and a GPU for each process."""
    if wanted != "auto":
        try:
            device = torch.device(wanted)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as fault:
            reason = str(fault).splitlines()[0]
            reason = "cpu, cuda, cuda:1 or mps are some" if reason.startswith("Expected one of") else reason
            raise ConfigError(f"there is no device {wanted!r} here: {reason}. Leave it out, or try cpu.") from None
        return device if device != torch.device("cuda") else torch.device("cuda", local_rank() or 0)
    if torch.cuda.is_available():
        return torch.device("cuda", local_rank() or 0)
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def choose_precision(wanted: Precision, device: torch.device) -> torch.dtype:
    """Half the bits where the device is made for it: bfloat16 on a GPU, single precision elsewhere."""
    if wanted != "auto":
        return KINDS[wanted]
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def working_in(kind: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Compute in `kind`; the weights themselves stay in single precision."""
    return nullcontext() if kind == torch.float32 else torch.autocast(device.type, kind)
