"""Batches are values that hold tensors: moved, counted and cut without knowing what they are."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from softlook.train.examples import labelled, pairs
from softlook.train.tensors import each, parted, rows, there
from tests.train.tiny import framed, sentences
from tests.train.tiny import rows as packed

EXAMPLES: list[Any] = [
    packed(sentences()[:7]),
    pairs([([1, 2], [3]), ([4], [5, 6]), ([7], [8])], begin=1, end=2),
    labelled([([5, 6], [7], 1), ([8], [], 0)], join=framed, room=6),
    {"a": torch.arange(5), "b": [torch.arange(10).view(5, 2), "words"]},
]


def tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    each(value, lambda tensor: found.append(tensor) or tensor)
    return found


@pytest.mark.parametrize("batch", EXAMPLES, ids=lambda batch: type(batch).__name__)
@given(parts=st.integers(1, 9))
def test_pieces_put_together_are_the_whole(batch: Any, parts: int) -> None:
    pieces = parted(batch, parts)
    assert len(pieces) == min(parts, rows(batch))
    assert {type(piece) for piece in pieces} == {type(batch)}
    for whole, *cut in zip(tensors(batch), *map(tensors, pieces), strict=True):
        assert torch.equal(torch.cat(cut), whole)
    sizes = [rows(piece) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1


def test_what_has_no_rows_goes_with_every_piece() -> None:
    whole = (torch.arange(4), torch.tensor(0.5), torch.arange(3))
    for piece in parted(whole, 2):
        assert torch.equal(piece[1], whole[1])
        assert torch.equal(piece[2], whole[2])


def test_a_batch_may_know_better_how_it_comes_apart() -> None:
    @dataclass(frozen=True)
    class Transposed:
        columns: Tensor

        def parted(self, parts: int) -> list["Transposed"]:
            return [Transposed(piece) for piece in self.columns.chunk(parts, 1)]

    assert [piece.columns.shape for piece in parted(Transposed(torch.zeros(3, 4)), 2)] == [(3, 2), (3, 2)]


def test_everything_is_moved_and_nothing_else_changed() -> None:
    for batch in EXAMPLES:
        moved = there(batch, torch.device("meta"))
        assert all(tensor.is_meta for tensor in tensors(moved))
        assert type(moved) is type(batch)
    assert each(["a", 3, None], torch.neg) == ["a", 3, None]
    assert rows("no tensors at all") == 1
