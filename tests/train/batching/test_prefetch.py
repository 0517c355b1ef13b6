"""Prefetched items and their errors keep their order."""

import threading
import time
from collections.abc import Iterator
from itertools import count, islice

import pytest

from softlook.train.batching.batches import prefetch


@pytest.mark.parametrize("size", [0, 1, 3, 50])
def test_prefetch_keeps_the_order(size: int) -> None:
    assert list(prefetch(iter(range(20)), size)) == list(range(20))


def test_prefetch_is_bounded() -> None:
    produced: list[int] = []
    source = prefetch((produced.append(i) or i for i in count()), 3)
    assert list(islice(source, 4)) == [0, 1, 2, 3]
    time.sleep(0.05)
    assert len(produced) <= 4 + 3 + 1
    source.close()


def test_prefetch_overlaps_with_the_consumer() -> None:
    def slow() -> Iterator[int]:
        for i in range(5):
            time.sleep(0.03)
            yield i

    start = time.monotonic()
    for _ in prefetch(slow(), 2):
        time.sleep(0.03)
    assert time.monotonic() - start < 5 * 0.06


def test_errors_are_raised_in_order() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError

    got: list[int] = []
    with pytest.raises(ZeroDivisionError):
        got.extend(prefetch(broken(), 3))
    assert got == [1, 2] or got == []
    source = prefetch(broken(), 3)
    assert [next(source), next(source)] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        next(source)


def test_closing_stops_the_thread() -> None:
    source = prefetch(iter(range(100)), 4)
    next(source)
    source.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("softlook-prefetch")]
