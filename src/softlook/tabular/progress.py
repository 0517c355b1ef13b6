"""Progress line of a fit."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from softlook.tabular.training.loop import Epoch, EpochCallback


@contextmanager
def progress_printer(verbose: int | bool, file: TextIO | None = None) -> Iterator[EpochCallback]:
    """A callback that prints each epoch: one line that is overwritten on a terminal, otherwise one line each.

    >>> with progress_printer(True, sys.stdout) as callback:
    ...     callback({"epoch": 3, "loss": 0.51234, "val_loss": 0.6, "is_best": True, "seconds": 1.25})
    epoch 3: loss 0.5123, val_loss 0.6000, best so far (1.2 s)
    """
    out = file or sys.stderr
    best: list[Epoch] = []
    is_open = False

    def print_epoch(epoch: Epoch) -> None:
        nonlocal is_open
        if epoch.get("is_best"):
            best[:] = [epoch]
        is_open = out.isatty()
        out.write(f"\r\x1b[2K{_line(epoch, best)}" if is_open else f"{_line(epoch, best)}\n")
        out.flush()

    try:
        yield print_epoch if verbose else lambda epoch: None
    finally:
        if is_open:
            out.write("\n")


def _line(epoch: Epoch, best: list[Epoch]) -> str:
    parts = [f"loss {epoch['loss']:.4f}"]
    if "val_loss" in epoch:
        parts.append(f"val_loss {epoch['val_loss']:.4f}")
        if epoch["is_best"]:
            parts.append("best so far")
        elif best:
            parts.append(f"best {best[0]['val_loss']:.4f} in epoch {best[0]['epoch']}")
    return f"epoch {epoch['epoch']}: {', '.join(parts)} ({epoch['seconds']:.1f} s)"
