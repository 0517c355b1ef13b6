"""How long something takes, by trying it."""

import time
from collections.abc import Callable


def quickest(work: Callable[[], object], tries: int = 2) -> float:
    """Seconds of the quickest try: the first one also warms up, and others may be at work too.

    >>> quickest(lambda: sum(range(1000))) < 1
    True
    """
    spent = list[float]()
    for _ in range(tries):
        began = time.monotonic()
        work()
        spent.append(time.monotonic() - began)
    return min(spent)
