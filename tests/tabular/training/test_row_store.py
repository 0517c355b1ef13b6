"""Rows on disk: the same rows, each once an epoch, in an order of chance."""

from pathlib import Path

import numpy as np
import pytest
import torch

from softlook.tabular.preprocessing.rows import RowSource, TableTensors
from softlook.tabular.training.row_store import DiskRows, MemoryBudget, RowStore
from softlook.train.rng import make_generator

SMALL = MemoryBudget(0, 1000, 2000)


def rows(count: int, start: int = 0) -> TableTensors:
    """Rows that can be told apart by their number, class after class."""
    number = torch.arange(start, start + count)
    numbers = torch.stack([number.float(), torch.full((count,), torch.nan)], 1)
    return TableTensors(numbers, (number % 300)[:, None], number // 100, 1.0 + (number % 2).float())


def stored(folder: Path, budget: MemoryBudget = SMALL) -> TableTensors | DiskRows | None:
    shelf = RowStore(folder, expected_rows=1000, budget=budget, max_code=300, seed=0)
    for start in range(0, 1000, 70):
        shelf.add(rows(min(70, 1000 - start), start))
    return shelf.rows()


def epoch(found: RowSource, number: int, start: int = 0) -> list[TableTensors]:
    return list(found.batches(64, make_generator(0, number), start))


def test_what_has_room_stays_in_memory(tmp_path: Path) -> None:
    found = stored(tmp_path, MemoryBudget(0, 100_000, 1))
    assert isinstance(found, TableTensors) and not list(tmp_path.iterdir())
    assert torch.equal(found.categories, rows(1000).categories) and torch.equal(found.weight, rows(1000).weight)  # pyright: ignore


def test_an_epoch_has_every_row_once_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    found = stored(tmp_path)
    assert isinstance(found, DiskRows) and len(found) == 1000 and found.dtype["codes"].base == np.uint16
    batches = epoch(found.normalize_weights(), 1)
    assert [len(batch) for batch in batches] == [64] * 15 + [40]
    for batch in batches:
        number = batch.numbers[:, 0].long()
        targets = rows(1000).take(number)
        assert batch.numbers[:, 1].isnan().all()
        assert torch.equal(batch.categories, targets.categories) and torch.equal(batch.target, targets.target)  # pyright: ignore
        torch.testing.assert_close(batch.weight, targets.weight / 1.5)  # pyright: ignore
    assert sorted(torch.cat([batch.numbers[:, 0] for batch in batches]).tolist()) == list(range(1000))


def test_every_batch_is_like_the_whole_table_though_it_came_in_order(tmp_path: Path) -> None:
    found = stored(tmp_path)
    assert isinstance(found, DiskRows)
    for batch in epoch(found, 1)[:-1]:
        assert batch.target is not None
        assert len(batch.target.unique()) >= 9, "of ten classes that came one after another"


def test_epochs_differ_and_each_can_be_had_again(tmp_path: Path) -> None:
    found = stored(tmp_path)
    assert isinstance(found, DiskRows)
    one, again, other = (torch.cat([batch.numbers[:, 0] for batch in epoch(found, at)]) for at in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
    rest = torch.cat([batch.numbers[:, 0] for batch in epoch(found, 1, start=128)])
    assert torch.equal(rest, one[128:])


def test_no_more_than_the_window_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stored(tmp_path)
    assert isinstance(found, DiskRows)
    held: list[int] = []
    join = np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda parts: held.append(sum(part.nbytes for part in parts)) or join(parts))
    epoch(found, 1)
    assert len(held) > 5 and max(held) <= SMALL.window + 63 * found.dtype.itemsize


def test_nothing_is_nothing(tmp_path: Path) -> None:
    shelf = RowStore(tmp_path, expected_rows=0, budget=SMALL, max_code=1, seed=0)
    shelf.add(rows(0))
    assert shelf.rows() is None
