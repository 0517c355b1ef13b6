"""One line that says how far learning has come."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from softlook.tabular.learning.fitting import Epoch


@contextmanager
def telling(verbose: int | bool, file: TextIO | None = None) -> Iterator[Callable[[Epoch], None]]:
    """Gives what says each epoch: on one line that is written over, or on a line each where nobody sits at a terminal.

    At the end, also at a sudden one, the last line stays, and what comes next begins on a new one.

    >>> with telling(True, sys.stdout) as tell:
    ...     tell({"epoch": 3, "loss": 0.51234, "held_out_loss": 0.6, "is_best": True, "seconds": 1.25})
    epoch 3: loss 0.5123, held out 0.6000, the best so far (1.2 s)
    """
    out = file or sys.stderr
    best: list[Epoch] = []
    is_open = False

    def tell(epoch: Epoch) -> None:
        nonlocal is_open
        if epoch.get("is_best"):
            best[:] = [epoch]
        is_open = out.isatty()
        out.write(f"\r\x1b[2K{_line(epoch, best)}" if is_open else f"{_line(epoch, best)}\n")
        out.flush()

    try:
        yield tell if verbose else lambda epoch: None
    finally:
        if is_open:
            out.write("\n")


def _line(epoch: Epoch, best: list[Epoch]) -> str:
    parts = [f"loss {epoch['loss']:.4f}"]
    if "held_out_loss" in epoch:
        parts.append(f"held out {epoch['held_out_loss']:.4f}")
        if epoch["is_best"]:
            parts.append("the best so far")
        elif best:
            parts.append(f"best {best[0]['held_out_loss']:.4f} in epoch {best[0]['epoch']}")
    return f"epoch {epoch['epoch']}: {', '.join(parts)} ({epoch['seconds']:.1f} s)"
