"""Rows on their way to a model."""

import torch

from softlook.tabular.preprocessing.rows import TableTensors, concat_rows, sample_rows

ROWS = TableTensors(torch.arange(14.0).view(7, 2), torch.arange(7)[:, None], torch.arange(7), torch.ones(7))


def test_rows_that_are_split_come_in_their_order_and_are_whole_together() -> None:
    parts = list(ROWS.split(3))
    assert [len(part) for part in parts] == [3, 3, 1]
    for own, part in zip(ROWS.parts(), concat_rows(parts).parts(), strict=True):
        assert own is not None and part is not None and torch.equal(own, part)


def test_some_rows_are_whole_rows_each_at_most_once_in_an_order_of_chance() -> None:
    for most, count in ((3, 3), (7, 7), (100, 7)):
        some, again, other = (sample_rows(ROWS, most, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
        assert len(some) == len(some.categories.unique()) == count
        for own, part in zip(ROWS.take(some.categories[:, 0]).parts(), some.parts(), strict=True):
            assert own is not None and part is not None and torch.equal(own, part)
        assert torch.equal(some.numbers, again.numbers) and not torch.equal(some.numbers, other.numbers)


def test_chosen_cells_are_those_of_other_rows_and_all_else_stays() -> None:
    others = ROWS.take(torch.arange(6, -1, -1))
    column = ROWS.replace_cells(torch.tensor([False, True, False]), others)
    assert torch.equal(column.numbers, torch.stack([ROWS.numbers[:, 0], others.numbers[:, 1]], 1))
    assert torch.equal(column.categories, ROWS.categories) and column.target is ROWS.target
    cells = torch.zeros(7, 3, dtype=torch.bool)
    cells[2, 2] = True
    single = ROWS.replace_cells(cells, others)
    assert torch.equal(single.numbers, ROWS.numbers)
    assert single.categories[:, 0].tolist() == [0, 1, 4, 3, 4, 5, 6]


def test_no_rows_are_no_parts() -> None:
    assert not list(ROWS.take(slice(0)).split(3))
