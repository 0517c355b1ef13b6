"""How the learning rate goes: from step 1 to the last. Each schedule is a function step -> share of the peak."""

import math
from collections.abc import Callable
from typing import Literal

Schedule = Callable[[int], float]
ScheduleName = Literal["inverse_root", "cosine", "constant", "stable_decay"]


def inverse_root(warmup: int, steps: int) -> Schedule:
    """Up in a straight line, then down with the root of the step, as Vaswani et al. do.

    >>> [round(inverse_root(4, 100)(step), 2) for step in (1, 4, 16, 64)]
    [0.25, 1.0, 0.5, 0.25]
    """
    return lambda step: min(step / max(warmup, 1), math.sqrt(max(warmup, 1) / step))


def cosine(warmup: int, steps: int, floor: float = 0.1) -> Schedule:
    """Up in a straight line, then down along half a cosine to `floor`.

    >>> [round(cosine(10, 110)(step), 2) for step in (5, 10, 60, 110)]
    [0.5, 1.0, 0.55, 0.1]
    """

    def share(step: int) -> float:
        done = min(max(step - warmup, 0) / max(steps - warmup, 1), 1.0)
        return min(step / max(warmup, 1), floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))

    return share


def constant(warmup: int, steps: int) -> Schedule:
    """Up in a straight line, and there it stays.

    >>> [constant(2, 10)(step) for step in (1, 2, 9)]
    [0.5, 1.0, 1.0]
    """
    return lambda step: min(step / max(warmup, 1), 1.0)


def stable_decay(warmup: int, steps: int, decay: float = 0.2) -> Schedule:
    """Up, level, and over the last `decay` of the steps down to nothing: the level part can be made longer later.

    >>> [round(stable_decay(10, 100)(step), 2) for step in (5, 50, 80, 90, 100)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    last = max(int(steps * decay), 1)
    return lambda step: min(step / max(warmup, 1), 1.0, max(steps - step, 0) / last)


SCHEDULES: dict[ScheduleName, Callable[[int, int], Schedule]] = {
    "inverse_root": inverse_root,
    "cosine": cosine,
    "constant": constant,
    "stable_decay": stable_decay,
}
