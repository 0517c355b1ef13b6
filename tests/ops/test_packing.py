"""Packing sequences of different lengths into one row."""

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError
from softlook.ops.packing import pack

ROWS = [torch.tensor([5, 6, 7]), torch.tensor([], dtype=torch.long), torch.tensor([8, 9])]


def test_unpack_inverts_pack() -> None:
    packed = pack(ROWS)
    again = packed.unpack(packed.ids)
    assert len(again) == len(ROWS)
    for one, other in zip(again, ROWS, strict=True):
        assert_close(one, other)


def test_every_sequence_starts_at_position_zero_and_attends_to_itself_only() -> None:
    packed = pack(ROWS)
    assert packed.positions.tolist() == [[0, 1, 2, 0, 1]]
    assert packed.document_ids.tolist() == [[0, 0, 0, 2, 2]]
    expected = torch.block_diag(torch.ones(3, 3), torch.ones(2, 2)).bool()
    assert_close(packed.mask.to_dense((1, 1, 5, 5))[0, 0], expected)


def test_pack_without_sequences_and_unpack_of_another_length_raise_errors() -> None:
    with pytest.raises(ShapeError, match="pack expects at least one sequence, got none"):
        pack([])
    with pytest.raises(ShapeError, match=r"a row of 5 tokens, got \(1, 4\)"):
        pack(ROWS).unpack(torch.zeros(1, 4))
