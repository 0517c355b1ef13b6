"""Rows on disk: every row once per epoch, in random order."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.tabular.preprocessing.rows import RowSource, TableTensors
from softlook.tabular.training.row_store import DiskRows, MemoryBudget, RowStore, validation_mask
from softlook.train.rng import make_generator

SMALL = MemoryBudget(0, 1000, 2000)


def rows(count: int, start: int = 0) -> TableTensors:
    """Rows that are identified by their number, sorted by class."""
    number = torch.arange(start, start + count)
    numbers = torch.stack([number.float(), torch.full((count,), torch.nan)], 1)
    return TableTensors(numbers, (number % 300)[:, None], number // 100, 1.0 + (number % 2).float())


def store_rows(folder: Path, budget: MemoryBudget = SMALL) -> TableTensors | DiskRows | None:
    store = RowStore(folder, expected_rows=1000, budget=budget, max_code=300, seed=0)
    for start in range(0, 1000, 70):
        store.add(rows(min(70, 1000 - start), start))
    return store.rows()


def epoch(source: RowSource, number: int, start: int = 0) -> list[TableTensors]:
    return list(source.batches(64, make_generator(0, number), start))


def test_rows_within_the_budget_stay_in_memory(tmp_path: Path) -> None:
    stored = store_rows(tmp_path, MemoryBudget(0, 100_000, 1))
    assert isinstance(stored, TableTensors) and not list(tmp_path.iterdir())
    assert torch.equal(stored.categories, rows(1000).categories) and torch.equal(stored.weight, rows(1000).weight)  # pyright: ignore


def test_an_epoch_holds_every_complete_row_once(tmp_path: Path) -> None:
    stored = store_rows(tmp_path)
    assert isinstance(stored, DiskRows) and len(stored) == 1000 and stored.dtype["categories"].base == np.uint16
    batches = epoch(stored.normalize_weights(), 1)
    assert [len(batch) for batch in batches] == [64] * 15 + [40]
    for batch in batches:
        number = batch.numbers[:, 0].long()
        expected = rows(1000).take(number)
        assert batch.numbers[:, 1].isnan().all()
        assert torch.equal(batch.categories, expected.categories) and torch.equal(batch.targets, expected.targets)  # pyright: ignore
        torch.testing.assert_close(batch.weight, expected.weight / 1.5)  # pyright: ignore
    assert sorted(torch.cat([batch.numbers[:, 0] for batch in batches]).tolist()) == list(range(1000))


def test_every_batch_is_a_sample_of_the_whole_table_even_if_that_is_sorted(tmp_path: Path) -> None:
    stored = store_rows(tmp_path)
    assert isinstance(stored, DiskRows)
    for batch in epoch(stored, 1)[:-1]:
        assert batch.targets is not None
        assert len(batch.targets.unique()) >= 9, "of ten classes, by which the table is sorted"


def test_epochs_differ_and_each_is_reproducible_from_any_start(tmp_path: Path) -> None:
    stored = store_rows(tmp_path)
    assert isinstance(stored, DiskRows)
    one, again, other = (torch.cat([batch.numbers[:, 0] for batch in epoch(stored, number)]) for number in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
    rest = torch.cat([batch.numbers[:, 0] for batch in epoch(stored, 1, start=128)])
    assert torch.equal(rest, one[128:])


def test_no_more_than_the_window_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store_rows(tmp_path)
    assert isinstance(stored, DiskRows)
    sizes: list[int] = []
    concatenate = np.concatenate
    monkeypatch.setattr(
        np, "concatenate", lambda parts: sizes.append(sum(part.nbytes for part in parts)) or concatenate(parts)
    )
    epoch(stored, 1)
    assert len(sizes) > 5 and max(sizes) <= SMALL.window + 63 * stored.dtype.itemsize


def test_a_store_without_rows_is_empty(tmp_path: Path) -> None:
    store = RowStore(tmp_path, expected_rows=0, budget=SMALL, max_code=1, seed=0)
    store.add(rows(0))
    assert store.rows() is None


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200), st.floats(0, 0.9), st.integers(0, 99))
def test_the_split_is_stratified_and_every_class_keeps_a_training_row(
    labels: list[int], fraction: float, seed: int
) -> None:
    codes = np.unique(labels, return_inverse=True)[1]
    mask = validation_mask(len(codes), fraction, seed=seed, codes=codes)
    for code in range(codes.max() + 1):
        count, taken = (codes == code).sum(), mask[codes == code].sum()
        assert taken < count
        assert abs(taken - fraction * count) <= 1


def test_the_seed_determines_the_split() -> None:
    one, same, other = (validation_mask(100, 0.3, seed=seed) for seed in (1, 1, 2))
    assert (one == same).all() and (one != other).any()
