"""Batches made ready while the model is busy with the one before."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Thing = TypeVar("Thing")
END = object()


def ahead(source: Iterator[Thing], count: int) -> Generator[Thing]:
    """The same things in the same order, up to `count` of them made in the background before they are asked for.

    >>> list(ahead(iter("abc"), 2))
    ['a', 'b', 'c']
    """
    if not count:
        yield from source
        return
    with ThreadPoolExecutor(1, "softlook-batches") as pool:
        waiting = deque(pool.submit(next, source, END) for _ in range(count))
        try:
            while (thing := waiting.popleft().result()) is not END:
                waiting.append(pool.submit(next, source, END))
                yield thing  # pyright: ignore[reportReturnType]  (it is not the end)
        finally:
            pool.shutdown(cancel_futures=True)
