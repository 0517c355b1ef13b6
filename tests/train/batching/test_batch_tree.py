"""Batches are nested structures of tensors: they are moved, counted and split generically."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from softlook.base.tensors import map_tensors
from softlook.train.batching.collate import batch_size, collate_classification, collate_seq2seq, split_batch, to_device
from tests.train.tiny import join_pair, sentences
from tests.train.tiny import rows as packed

EXAMPLES: list[Any] = [
    packed(sentences()[:7]),
    collate_seq2seq([([1, 2], [3]), ([4], [5, 6]), ([7], [8])], bos_id=1, eos_id=2),
    collate_classification([([5, 6], [7], 1), ([8], [], 0)], join=join_pair, max_length=6),
    {"a": torch.arange(5), "b": [torch.arange(10).view(5, 2), "words"]},
]


def tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    map_tensors(value, lambda tensor: found.append(tensor) or tensor)
    return found


@pytest.mark.parametrize("batch", EXAMPLES, ids=lambda batch: type(batch).__name__)
@given(chunks=st.integers(1, 9))
def test_split_batch_concatenates_to_the_batch(batch: Any, chunks: int) -> None:
    micro_batches = split_batch(batch, chunks)
    assert len(micro_batches) == min(chunks, batch_size(batch))
    assert {type(piece) for piece in micro_batches} == {type(batch)}
    for whole, *parts in zip(tensors(batch), *map(tensors, micro_batches), strict=True):
        assert torch.equal(torch.cat(parts), whole)
    sizes = [batch_size(piece) for piece in micro_batches]
    assert max(sizes) - min(sizes) <= 1


def test_tensors_without_rows_are_in_every_micro_batch() -> None:
    whole = (torch.arange(4), torch.tensor(0.5), torch.arange(3))
    for piece in split_batch(whole, 2):
        assert torch.equal(piece[1], whole[1])
        assert torch.equal(piece[2], whole[2])


def test_a_batch_may_split_itself() -> None:
    @dataclass(frozen=True)
    class Transposed:
        columns: Tensor

        def split_into(self, chunks: int) -> list["Transposed"]:
            return [Transposed(piece) for piece in self.columns.chunk(chunks, 1)]

    assert [piece.columns.shape for piece in split_batch(Transposed(torch.zeros(3, 4)), 2)] == [(3, 2), (3, 2)]


def test_to_device_moves_every_tensor() -> None:
    for batch in EXAMPLES:
        moved = to_device(batch, torch.device("meta"))
        assert all(tensor.is_meta for tensor in tensors(moved))
        assert type(moved) is type(batch)
    assert map_tensors(["a", 3, None], torch.neg) == ["a", 3, None]
    assert batch_size("no tensors at all") == 1
