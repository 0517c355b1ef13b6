"""Rows as tensors."""

import torch

from softlook.tabular.preprocessing.rows import TableTensors, concat_rows, sample_rows

ROWS = TableTensors(torch.arange(14.0).view(7, 2), torch.arange(7)[:, None], torch.arange(7), torch.ones(7))


def test_splits_keep_the_order_and_concatenate_to_all_rows() -> None:
    parts = list(ROWS.split(3))
    assert [len(part) for part in parts] == [3, 3, 1]
    for expected, actual in zip(ROWS.tensors(), concat_rows(parts).tensors(), strict=True):
        assert expected is not None and actual is not None and torch.equal(expected, actual)


def test_a_sample_holds_complete_rows_without_replacement_in_random_order() -> None:
    for max_rows, count in ((3, 3), (7, 7), (100, 7)):
        sample, again, other = (sample_rows(ROWS, max_rows, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
        assert len(sample) == len(sample.categories.unique()) == count
        for expected, actual in zip(ROWS.take(sample.categories[:, 0]).tensors(), sample.tensors(), strict=True):
            assert expected is not None and actual is not None and torch.equal(expected, actual)
        assert torch.equal(sample.numbers, again.numbers) and not torch.equal(sample.numbers, other.numbers)


def test_only_masked_cells_are_replaced_by_those_of_other_rows() -> None:
    others = ROWS.take(torch.arange(6, -1, -1))
    column = ROWS.replace_cells(torch.tensor([False, True, False]), others)
    assert torch.equal(column.numbers, torch.stack([ROWS.numbers[:, 0], others.numbers[:, 1]], 1))
    assert torch.equal(column.categories, ROWS.categories) and column.targets is ROWS.targets
    mask = torch.zeros(7, 3, dtype=torch.bool)
    mask[2, 2] = True
    single = ROWS.replace_cells(mask, others)
    assert torch.equal(single.numbers, ROWS.numbers)
    assert single.categories[:, 0].tolist() == [0, 1, 4, 3, 4, 5, 6]


def test_splitting_no_rows_gives_no_parts() -> None:
    assert not list(ROWS.take(slice(0)).split(3))
