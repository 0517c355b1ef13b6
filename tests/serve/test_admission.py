"""Admission reserves the cache that a request can use, no more: memory determines the number of concurrent requests."""

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
def llama_8b() -> Any:
    """A Llama of 8 billion parameters on the meta device."""
    with torch.device("meta"):
        config = LlamaConfig(vocab_size=128_256, context=8192, dim=4096, depth=32, heads=32, kv_heads=8, hidden=14_336)
        return Llama(config).to(torch.bfloat16)


def num_admitted(scheduler: ContinuousBatcher, requests: Iterator[EngineRequest]) -> int:
    """The number of requests admitted before one does not fit."""
    admitted: list[ScheduledRequest] = []
    while scheduler.can_admit(scheduled := ScheduledRequest(next(requests), lambda *_: None), admitted):
        admitted.append(scheduled)
    return len(admitted)


@contextmanager
def free_memory(size: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "_free_memory", lambda: int(size * 2**30))
        yield


def repeat_forever(*requests: EngineRequest) -> Iterator[EngineRequest]:
    while True:
        yield from requests


@pytest.mark.parametrize(("gib", "chats"), [(2.0, 3), (8.0, 12), (32.0, 45), (64.0, 64)])
def test_cache_size_determines_the_number_of_concurrent_chats(llama_8b: Any, gib: float, chats: int) -> None:
    assert bytes_per_position(llama_8b) == 2 * 32 * 8 * 128 * 2
    scheduler = ContinuousBatcher(llama_8b, max_positions=cache_capacity(llama_8b, gib))
    assert num_admitted(scheduler, repeat_forever(CHAT)) == chats


def test_the_default_cache_size_is_a_fraction_of_the_free_memory(llama_8b: Any) -> None:
    with free_memory(64):
        assert cache_capacity(llama_8b) == 16 * 2**30 // bytes_per_position(llama_8b)
        assert cache_capacity(llama_8b, num_models=4) == cache_capacity(llama_8b) // 4
    with free_memory(0):
        assert cache_capacity(llama_8b) == kv_cache.MIN_CACHE_BYTES // bytes_per_position(llama_8b)


def test_a_long_request_is_charged_only_for_itself(llama_8b: Any) -> None:
    scheduler = ContinuousBatcher(llama_8b, max_positions=cache_capacity(llama_8b, 2.0))
    requests = iter([*[EngineRequest((5,) * 50, max_new_tokens=50)] * 30, *[CHAT] * 9])
    assert num_admitted(scheduler, requests) == 30 + 2


@given(
    capacity=st.integers(100, 20_000),
    batches=st.lists(st.lists(st.integers(1, 3000), min_size=1, max_size=4), min_size=1, max_size=3),
    new=st.lists(st.integers(1, 3000), max_size=12),
)
def test_a_plan_counts_rows_times_the_longest_row_of_each_batch(
    capacity: int, batches: list[list[int]], new: list[int]
) -> None:
    plan = AdmissionPlan(capacity, [(rows, 0) for rows in batches])
    batches_after: dict[int, list[int]] = dict(enumerate(map(list, batches)))
    for positions in new:
        before = plan.used
        number = plan.add(positions)
        batches_after.setdefault(number, []).append(positions)
        is_new_batch = number >= len(batches) and len(batches_after[number]) == 1
        assert plan.used <= capacity or is_new_batch
        assert plan.used >= before
    assert plan.used == sum(allocated_positions(len(rows), max(rows)) for rows in batches_after.values())
