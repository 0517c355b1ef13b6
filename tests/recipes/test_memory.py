"""Bytes are counted where they lie, once, and said in words."""

from array import array
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from softlook.recipes.memory import Memory, held_by, in_words, memory_of
from softlook.recipes.trial import Trial
from softlook.train.store import Store, gathered, write_store

NUMBERS = list(range(1000, 11_000))


@dataclass
class Holder:
    held: Any


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [x, x], lambda x: Holder(x), lambda x: {"a": (x,)}], ids=range(4)
)
def test_tensors_are_found_wherever_they_are_held(wrap: Any) -> None:
    assert 40_000 <= held_by([wrap(torch.zeros(10_000))]) < 41_000


def test_views_of_the_same_numbers_count_once() -> None:
    numbers = array("i", NUMBERS)
    view, tensor = memoryview(numbers), torch.frombuffer(numbers, dtype=torch.int32)
    assert held_by([numbers, view, view[10:], tensor, tensor[5:]]) == 40_000


def test_models_are_counted_elsewhere() -> None:
    assert held_by([SimpleNamespace(model=nn.Linear(1000, 1000))]) < 1000


def test_long_lists_are_reckoned_from_some_of_them() -> None:
    lists = [[number * 1000 + each for each in range(10)] for number in range(5000)]
    whole = sum(each.__sizeof__() for row in lists for each in (row, *row))
    assert 0.8 * whole < held_by([lists]) < 1.4 * whole


def test_a_store_counts_as_its_ids(tmp_path: Path) -> None:
    examples = [(list(range(10)),)] * 100
    kept = gathered(examples, vocab=20)
    assert 2 * 1000 + 8 * 101 <= held_by([kept]) < 2 * 1000 + 8 * 101 + 1000
    write_store(examples, tmp_path / "store", vocab=20)
    assert held_by([Store.open(tmp_path / "store")]) >= 2 * 1000 + 8 * 101


def test_data_on_disk_take_no_memory() -> None:
    trial = Trial(pace=0.1, weights=100, gradients=100, optimizer=200, activations=50)
    inside = memory_of(trial, 7, is_averaged=True, is_on_disk=False)
    beside = memory_of(trial, 7, is_averaged=False, is_on_disk=True)
    assert (inside.total, beside.total) == (557, 450)
    assert beside.to_json()["data_on_disk"] == 7
    assert "data 1 kB" in str(inside)
    assert "stay on disk" in str(beside)
    assert "averaged" not in str(beside)


def test_memory_is_said_in_units_that_suit_it() -> None:
    said = str(Memory(4_000_000, 4_000_000, 8_000_000, 0, 2_000_000_000, 3_000))
    assert said.startswith("about 2.0 GB beside Python and torch themselves (weights 4.0 MB, gradients 4.0 MB")
    assert [in_words(size) for size in (0, 5e5, 5e6)] == ["1 kB", "500 kB", "5.0 MB"]
