"""One line that says how far learning has come."""

import sys
from collections.abc import Callable
from typing import TextIO

from softlook.tabular.fitting import Epoch


def teller(verbose: int | bool, file: TextIO | None = None) -> Callable[[Epoch], None]:
    """Says each epoch on one line that is written over, or on a line each where nobody sits at a terminal.

    >>> teller(True, sys.stdout)({"epoch": 3, "loss": 0.51234, "held_out_loss": 0.6, "is_best": True, "seconds": 1.25})
    epoch 3: loss 0.5123, held out 0.6000, the best so far (1.2 s)
    """
    out = file or sys.stderr
    best: list[Epoch] = []

    def tell(epoch: Epoch) -> None:
        if epoch.get("is_best"):
            best[:] = [epoch]
        clear, ends = ("\x1b[2K", "\r") if out.isatty() else ("", "\n")
        out.write(clear + _line(epoch, best) + ends)
        out.flush()

    return tell if verbose else lambda epoch: None


def _line(epoch: Epoch, best: list[Epoch]) -> str:
    parts = [f"loss {epoch['loss']:.4f}"]
    if "held_out_loss" in epoch:
        parts.append(f"held out {epoch['held_out_loss']:.4f}")
        if epoch["is_best"]:
            parts.append("the best so far")
        elif best:
            parts.append(f"best {best[0]['held_out_loss']:.4f} in epoch {best[0]['epoch']}")
    return f"epoch {epoch['epoch']}: {', '.join(parts)} ({epoch['seconds']:.1f} s)"
