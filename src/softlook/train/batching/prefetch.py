"""Prefetching of batches in a background thread."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
END = object()


def prefetch(source: Iterator[T], count: int) -> Generator[T]:
    """Yield the items of `source` in order, preparing up to `count` of them in a background thread.

    >>> list(prefetch(iter("abc"), 2))
    ['a', 'b', 'c']
    """
    if not count:
        yield from source
        return
    with ThreadPoolExecutor(1, "softlook-prefetch") as pool:
        pending = deque(pool.submit(next, source, END) for _ in range(count))
        try:
            while (item := pending.popleft().result()) is not END:
                pending.append(pool.submit(next, source, END))
                yield item  # pyright: ignore[reportReturnType]  (it is not END)
        finally:
            pool.shutdown(cancel_futures=True)
