"""Things made ready in the background come in the same order, and so do their errors."""

import threading
import time
from collections.abc import Iterator
from itertools import count, islice

import pytest

from softlook.train.ahead import ahead


@pytest.mark.parametrize("many", [0, 1, 3, 50])
def test_the_order_is_the_same(many: int) -> None:
    assert list(ahead(iter(range(20)), many)) == list(range(20))


def test_no_more_than_asked_for_is_made_ahead() -> None:
    made: list[int] = []
    source = ahead((made.append(i) or i for i in count()), 3)
    assert list(islice(source, 4)) == [0, 1, 2, 3]
    time.sleep(0.05)
    assert len(made) <= 4 + 3 + 1
    source.close()


def test_they_are_made_while_one_is_busy() -> None:
    def slow() -> Iterator[int]:
        for i in range(5):
            time.sleep(0.03)
            yield i

    began = time.monotonic()
    for _ in ahead(slow(), 2):
        time.sleep(0.03)
    assert time.monotonic() - began < 5 * 0.06


def test_an_error_comes_where_it_would_have_come() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError

    got: list[int] = []
    with pytest.raises(ZeroDivisionError):
        got.extend(ahead(broken(), 3))
    assert got == [1, 2] or got == []
    source = ahead(broken(), 3)
    assert [next(source), next(source)] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        next(source)


def test_no_thread_is_left_behind() -> None:
    source = ahead(iter(range(100)), 4)
    next(source)
    source.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("softlook-batches")]
