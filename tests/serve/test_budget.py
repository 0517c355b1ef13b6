"""Admission charges what a request can take, no more: how many run at once is what the memory allows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.models import Llama, LlamaConfig
from softlook.serve import budget
from softlook.serve.asking import Ask, Ticket
from softlook.serve.budget import Plan, bytes_per_position, cache_positions
from softlook.serve.continuing import ContinuingDesk
from softlook.serve.slots import allocated

CHAT = Ask((5,) * 500, limit=4096)


@pytest.fixture(scope="module")
def large() -> Any:
    """A Llama of 8 billion parameters, without memory for them."""
    with torch.device("meta"):
        config = LlamaConfig(vocab=128_256, context=8192, dim=4096, depth=32, heads=32, kv_heads=8, hidden=14_336)
        return Llama(config).to(torch.bfloat16)


def at_once(desk: ContinuingDesk, asks: Iterator[Ask]) -> int:
    """How many come in before one has no room."""
    beside: list[Ticket] = []
    while desk.has_room(ticket := Ticket(next(asks), lambda *_: None), beside):
        beside.append(ticket)
    return len(beside)


@contextmanager
def free(size: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "_free_memory", lambda: int(size * 2**30))
        yield


def forever(*asks: Ask) -> Iterator[Ask]:
    while True:
        yield from asks


@pytest.mark.parametrize(("gib", "chats"), [(2.0, 3), (8.0, 12), (32.0, 45), (64.0, 64)])
def test_so_many_chats_of_an_8b_llama_run_at_once(large: Any, gib: float, chats: int) -> None:
    assert bytes_per_position(large) == 2 * 32 * 8 * 128 * 2
    desk = ContinuingDesk(large, places=cache_positions(large, gib))
    assert at_once(desk, forever(CHAT)) == chats


def test_by_default_a_share_of_what_is_free_is_for_caches(large: Any) -> None:
    with free(64):
        assert cache_positions(large) == 16 * 2**30 // bytes_per_position(large)
        assert cache_positions(large, models=4) == cache_positions(large) // 4
    with free(0):
        assert cache_positions(large) == budget.LEAST // bytes_per_position(large)


def test_a_long_request_beside_short_ones_is_charged_for_itself_alone(large: Any) -> None:
    desk = ContinuingDesk(large, places=cache_positions(large, 2.0))
    asks = iter([*[Ask((5,) * 50, limit=50)] * 30, *[CHAT] * 9])
    assert at_once(desk, asks) == 30 + 2


@given(
    room=st.integers(100, 20_000),
    batches=st.lists(st.lists(st.integers(1, 3000), min_size=1, max_size=4), min_size=1, max_size=3),
    new=st.lists(st.integers(1, 3000), max_size=12),
)
def test_a_plan_charges_each_batch_for_its_rows_and_its_longest(
    room: int, batches: list[list[int]], new: list[int]
) -> None:
    plan = Plan(room, [(rows, 0) for rows in batches])
    joined: dict[int, list[int]] = dict(enumerate(map(list, batches)))
    for places in new:
        before = plan.used
        number = plan.add(places)
        joined.setdefault(number, []).append(places)
        opened = number >= len(batches) and len(joined[number]) == 1
        assert plan.used <= room or opened
        assert plan.used >= before
    assert plan.used == sum(allocated(len(rows), max(rows)) for rows in joined.values())
