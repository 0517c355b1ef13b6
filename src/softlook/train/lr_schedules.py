"""Learning-rate schedules: functions step -> multiple of the peak."""

import math
from collections.abc import Callable
from typing import Literal

Schedule = Callable[[int], float]
ScheduleName = Literal["inverse_sqrt", "cosine", "constant", "wsd"]


def inverse_sqrt(warmup: int, steps: int) -> Schedule:
    """Linear warmup, then decay with the inverse square root of the step (Vaswani et al., 2017).

    >>> [round(inverse_sqrt(4, 100)(step), 2) for step in (1, 4, 16, 64)]
    [0.25, 1.0, 0.5, 0.25]
    """
    return lambda step: min(step / max(warmup, 1), math.sqrt(max(warmup, 1) / step))


def cosine(warmup: int, steps: int, floor: float = 0.1) -> Schedule:
    """Linear warmup, then cosine decay to `floor` (Loshchilov & Hutter, 2017).

    >>> [round(cosine(10, 110)(step), 2) for step in (5, 10, 60, 110)]
    [0.5, 1.0, 0.55, 0.1]
    """

    def multiplier(step: int) -> float:
        progress = min(max(step - warmup, 0) / max(steps - warmup, 1), 1.0)
        return min(step / max(warmup, 1), floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))

    return multiplier


def constant(warmup: int, steps: int) -> Schedule:
    """Linear warmup, then constant.

    >>> [constant(2, 10)(step) for step in (1, 2, 9)]
    [0.5, 1.0, 1.0]
    """
    return lambda step: min(step / max(warmup, 1), 1.0)


def wsd(warmup: int, steps: int, decay: float = 0.2) -> Schedule:
    """Warmup-stable-decay: linear warmup, constant, then linear decay to 0 over the last `decay` of the steps.

    The constant phase can be extended later.

    >>> [round(wsd(10, 100)(step), 2) for step in (5, 50, 80, 90, 100)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    decay_steps = max(int(steps * decay), 1)
    return lambda step: min(step / max(warmup, 1), 1.0, max(steps - step, 0) / decay_steps)


SCHEDULES: dict[ScheduleName, Callable[[int, int], Schedule]] = {
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "constant": constant,
    "wsd": wsd,
}
