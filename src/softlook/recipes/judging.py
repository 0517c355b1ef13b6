"""How right a classifier is, counted from what it said and what was wanted."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any


def judged(said: Sequence[int], wanted: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """Accuracy, F1 and Matthews' correlation; F1 of the last class where there are two, else the mean over classes.

    >>> judged([1, 0, 1, 1], [1, 0, 0, 1], ["no", "yes"])
    {'accuracy': 0.75, 'f1': 0.8, 'mcc': 0.577...}
    """
    right = sum(one == other for one, other in zip(said, wanted, strict=True))
    every = [_f1(said, wanted, number) for number in range(len(names))]
    f1 = every[1] if len(names) == 2 else sum(every) / max(len(every), 1)
    return {"accuracy": right / max(len(wanted), 1), "f1": f1, "mcc": correlation(said, wanted)}


def correlation(said: Sequence[int], wanted: Sequence[int]) -> float:
    """Matthews' correlation for any number of classes (Gorodkin, 2004): 1 always right, 0 no better than chance."""
    right = sum(one == other for one, other in zip(said, wanted, strict=True))
    count, told, true = len(wanted), Counter(said), Counter(wanted)
    both = sum(told[name] * true[name] for name in true)
    spread = (count**2 - sum(n * n for n in told.values())) * (count**2 - sum(n * n for n in true.values()))
    return (right * count - both) / math.sqrt(spread) if spread else 0.0


def by_class(said: Sequence[int], wanted: Sequence[int], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """For each class how many there are, and how it fares."""
    true = Counter(wanted)
    return {name: {"examples": true[i], "f1": round(_f1(said, wanted, i), 4)} for i, name in enumerate(names)}


def _f1(said: Sequence[int], wanted: Sequence[int], name: int) -> float:
    hits = sum(one == other == name for one, other in zip(said, wanted, strict=True))
    return 2 * hits / max(sum(one == name for one in said) + sum(other == name for other in wanted), 1)
