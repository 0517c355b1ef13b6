"""Sequences of different lengths in one row."""

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError
from softlook.ops.packing import pack

ROWS = [torch.tensor([5, 6, 7]), torch.tensor([], dtype=torch.long), torch.tensor([8, 9])]


def test_what_was_packed_can_be_unpacked() -> None:
    packed = pack(ROWS)
    again = packed.unpack(packed.ids)
    assert len(again) == len(ROWS)
    for one, other in zip(again, ROWS, strict=True):
        assert_close(one, other)


def test_every_document_begins_at_position_nought_and_sees_itself_alone() -> None:
    packed = pack(ROWS)
    assert packed.positions.tolist() == [[0, 1, 2, 0, 1]]
    assert packed.documents.tolist() == [[0, 0, 0, 2, 2]]
    wanted = torch.block_diag(torch.ones(3, 3), torch.ones(2, 2)).bool()
    assert_close(packed.mask.dense((1, 1, 5, 5))[0, 0], wanted)


def test_nothing_to_pack_and_a_row_of_another_length_are_errors() -> None:
    with pytest.raises(ShapeError, match="pack wants at least one sequence; none came"):
        pack([])
    with pytest.raises(ShapeError, match=r"this row has 5 places; \(1, 4\) came"):
        pack(ROWS).unpack(torch.zeros(1, 4))
