"""Memory estimates."""

from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from softlook.recipes.profiling.step_benchmark import (
    MemoryEstimate,
    format_bytes,
    size_in_memory,
)
from softlook.train.batching.token_store import TokenStore, store_in_memory, write_store

NUMBERS = list(range(1000, 11_000))


@dataclass
class Wrapper:
    value: Any


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [x, x], lambda x: Wrapper(x), lambda x: {"a": (x,)}], ids=range(4)
)
def test_nested_tensors_are_counted(wrap: Any) -> None:
    assert 40_000 <= size_in_memory([wrap(torch.zeros(10_000))]) < 41_000


def test_views_of_one_buffer_count_once() -> None:
    numbers = array("i", NUMBERS)
    view, tensor = memoryview(numbers), torch.frombuffer(numbers, dtype=torch.int32)
    assert size_in_memory([numbers, view, view[10:], tensor, tensor[5:]]) == 40_000


def test_modules_are_not_counted() -> None:
    assert size_in_memory([SimpleNamespace(model=nn.Linear(1000, 1000))]) < 1000


def test_long_lists_are_extrapolated() -> None:
    lists = [[number * 1000 + item for item in range(10)] for number in range(5000)]
    total = sum(item.__sizeof__() for row in lists for item in (row, *row))
    assert 0.8 * total < size_in_memory([lists]) < 1.4 * total


def test_a_token_store_counts_as_its_ids(tmp_path: Path) -> None:
    examples = [(list(range(10)),)] * 100
    store = store_in_memory(examples, vocab_size=20)
    assert 2 * 1000 + 8 * 101 <= size_in_memory([store]) < 2 * 1000 + 8 * 101 + 1000
    write_store(examples, tmp_path / "store", vocab_size=20)
    assert size_in_memory([TokenStore.open(tmp_path / "store")]) >= 2 * 1000 + 8 * 101


def test_data_on_disk_needs_no_memory() -> None:
    in_memory = MemoryEstimate(weights=100, gradients=100, optimizer=200, activations=50, ema=100, data=7)
    on_disk = replace(in_memory, ema=0, data=0, data_on_disk=7)
    assert (in_memory.total, on_disk.total) == (557, 450)
    assert on_disk.to_json()["data_on_disk"] == 7
    assert "data 1 kB" in str(in_memory)
    assert "stay on disk" in str(on_disk)
    assert "EMA" not in str(on_disk)


def test_memory_is_formatted_with_units() -> None:
    text = str(
        MemoryEstimate(
            weights=4_000_000, gradients=4_000_000, optimizer=8_000_000, activations=2_000_000_000, data=3_000
        )
    )
    assert text.startswith("about 2.0 GB besides Python and torch (weights 4.0 MB, gradients 4.0 MB")
    assert [format_bytes(size) for size in (0, 5e5, 5e6)] == ["1 kB", "500 kB", "5.0 MB"]
