"""How many of the processor's cores to compute on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(jobs: int | None) -> Iterator[None]:
    """So many of the processor's cores to compute on; torch's own number where None, all of them for -1."""
    before = torch.get_num_threads()
    if jobs is not None:
        torch.set_num_threads(int(jobs) if jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + int(jobs)))
    try:
        yield
    finally:
        if jobs is not None:
            torch.set_num_threads(before)
