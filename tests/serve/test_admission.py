"""Admission charges what a request can take, no more: how many run at once is what the memory allows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.models import Llama, LlamaConfig
from softlook.serve.engine import kv_cache
from softlook.serve.engine.continuous_batcher import ContinuousBatcher
from softlook.serve.engine.kv_cache import AdmissionPlan, allocated_positions, bytes_per_position, cache_capacity
from softlook.serve.engine.request import EngineRequest, ScheduledRequest

CHAT = EngineRequest((5,) * 500, max_new_tokens=4096)


@pytest.fixture(scope="module")
def large() -> Any:
    """A Llama of 8 billion parameters, without memory for them."""
    with torch.device("meta"):
        config = LlamaConfig(vocab_size=128_256, context=8192, dim=4096, depth=32, heads=32, kv_heads=8, hidden=14_336)
        return Llama(config).to(torch.bfloat16)


def at_once(scheduler: ContinuousBatcher, requests: Iterator[EngineRequest]) -> int:
    """How many come in before one has no room."""
    beside: list[ScheduledRequest] = []
    while scheduler.can_admit(scheduled := ScheduledRequest(next(requests), lambda *_: None), beside):
        beside.append(scheduled)
    return len(beside)


@contextmanager
def free(size: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "_free_memory", lambda: int(size * 2**30))
        yield


def forever(*requests: EngineRequest) -> Iterator[EngineRequest]:
    while True:
        yield from requests


@pytest.mark.parametrize(("gib", "chats"), [(2.0, 3), (8.0, 12), (32.0, 45), (64.0, 64)])
def test_so_many_chats_of_an_8b_llama_run_at_once(large: Any, gib: float, chats: int) -> None:
    assert bytes_per_position(large) == 2 * 32 * 8 * 128 * 2
    scheduler = ContinuousBatcher(large, max_positions=cache_capacity(large, gib))
    assert at_once(scheduler, forever(CHAT)) == chats


def test_the_default_cache_size_is_a_fraction_of_the_free_memory(large: Any) -> None:
    with free(64):
        assert cache_capacity(large) == 16 * 2**30 // bytes_per_position(large)
        assert cache_capacity(large, num_models=4) == cache_capacity(large) // 4
    with free(0):
        assert cache_capacity(large) == kv_cache.MIN_CACHE_BYTES // bytes_per_position(large)


def test_a_long_request_is_charged_only_for_itself(large: Any) -> None:
    scheduler = ContinuousBatcher(large, max_positions=cache_capacity(large, 2.0))
    requests = iter([*[EngineRequest((5,) * 50, max_new_tokens=50)] * 30, *[CHAT] * 9])
    assert at_once(scheduler, requests) == 30 + 2


@given(
    room=st.integers(100, 20_000),
    batches=st.lists(st.lists(st.integers(1, 3000), min_size=1, max_size=4), min_size=1, max_size=3),
    new=st.lists(st.integers(1, 3000), max_size=12),
)
def test_a_plan_charges_each_batch_for_its_rows_and_its_longest(
    room: int, batches: list[list[int]], new: list[int]
) -> None:
    plan = AdmissionPlan(room, [(rows, 0) for rows in batches])
    joined: dict[int, list[int]] = dict(enumerate(map(list, batches)))
    for places in new:
        before = plan.used
        number = plan.add(places)
        joined.setdefault(number, []).append(places)
        opened = number >= len(batches) and len(joined[number]) == 1
        assert plan.used <= room or opened
        assert plan.used >= before
    assert plan.used == sum(allocated_positions(len(rows), max(rows)) for rows in joined.values())
