"""Rows on their way to a model."""

import torch

from softlook.tabular.rows import Rows, together

ROWS = Rows(torch.arange(14.0).view(7, 2), torch.arange(7)[:, None], torch.arange(7), torch.ones(7))


def test_rows_that_are_split_come_in_their_order_and_are_whole_together() -> None:
    parts = list(ROWS.split(3))
    assert [len(part) for part in parts] == [3, 3, 1]
    for own, part in zip(ROWS.parts(), together(parts).parts(), strict=True):
        assert own is not None and part is not None and torch.equal(own, part)


def test_no_rows_are_no_parts() -> None:
    assert not list(ROWS.take(slice(0)).split(3))
