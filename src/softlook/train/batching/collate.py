"""Batches: collation of ids into padded batches, moving to a device, splitting into micro-batches.

A batch is any value that holds tensors: a tensor, a dataclass, or tuples, lists and dicts of such.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.base.tensors import map_tensors, truncate_pair
from softlook.losses import IGNORE_INDEX

Ids = Sequence[int]
JoinFn = Callable[[Ids, Ids], tuple[list[int], list[int]]]
"""Ids of a text and of a second one, possibly empty -> ids with special tokens, and token type ids."""


@dataclass(frozen=True)
class Seq2SeqBatch:
    """Source and target sequences for an encoder-decoder (teacher forcing)."""

    source: Int[Tensor, "B S"]
    source_mask: Bool[Tensor, "B S"]
    decoder_input: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]


@dataclass(frozen=True)
class PackedBatch:
    """Documents packed into rows for causal language modeling: ids, next-token labels, document and position ids."""

    ids: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]
    document_ids: Int[Tensor, "B T"]
    positions: Int[Tensor, "B T"]


@dataclass(frozen=True)
class MaskedLMBatch:
    """Masked texts with labels at the masked positions, and next-sentence labels (BERT)."""

    ids: Int[Tensor, "B T"]
    padding_mask: Bool[Tensor, "B T"]
    token_types: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]
    next_sentence_labels: Int[Tensor, " B"]


@dataclass(frozen=True)
class ClassificationBatch:
    """Texts or text pairs with labels: classes, or a row of targets for each text."""

    ids: Int[Tensor, "B T"]
    padding_mask: Bool[Tensor, "B T"]
    token_types: Int[Tensor, "B T"]
    labels: Int[Tensor, " B"] | Float[Tensor, "B K"]


@dataclass(frozen=True)
class TokenClassificationBatch:
    """Texts with a label at some of their tokens, such as the first token of each word."""

    ids: Int[Tensor, "B T"]
    padding_mask: Bool[Tensor, "B T"]
    token_types: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]


def pad_sequences(rows: Sequence[Ids], pad_id: int = 0, *, pad_to_multiple_of: int = 1) -> Int[Tensor, "B T"]:
    """Pad sequences on the right to the longest of them, rounded up to a multiple.

    >>> pad_sequences([[1, 2], [3]], pad_id=9)
    tensor([[1, 2],
            [3, 9]])
    """
    length = _round_up(max(map(len, rows), default=0), pad_to_multiple_of)
    if not length:
        return torch.empty(len(rows), 0, dtype=torch.long)
    flat = array("q", [pad_id]) * (len(rows) * length)  # three times as fast as torch.tensor on nested lists
    for number, row in enumerate(rows):
        flat[number * length : number * length + len(row)] = array("q", row)
    return torch.frombuffer(flat, dtype=torch.long).view(len(rows), length)


def make_padding_mask(rows: Sequence[Ids], *, pad_to_multiple_of: int = 1) -> Bool[Tensor, "B T"]:
    """True at tokens, False at padding.

    >>> make_padding_mask([[1, 2], [3]])
    tensor([[ True,  True],
            [ True, False]])
    """
    lengths = torch.tensor([len(row) for row in rows])
    return torch.arange(_round_up(max(map(len, rows), default=0), pad_to_multiple_of)) < lengths[:, None]


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def collate_seq2seq(
    examples: Sequence[tuple[Ids, Ids]], *, bos_id: int, eos_id: int, pad_id: int = 0, pad_to_multiple_of: int = 1
) -> Seq2SeqBatch:
    """Batch of (source, target) ids: sources end with EOS, decoder inputs start with BOS, labels end with EOS.

    `pad_to_multiple_of` limits the number of different lengths: some GPU kernels are compiled once per length.

    >>> collate_seq2seq([([5, 6], [7])], bos_id=1, eos_id=2).labels
    tensor([[7, 2]])
    """
    sources = [[*source, eos_id] for source, _ in examples]
    decoder_inputs = [[bos_id, *target] for _, target in examples]
    labels = [[*target, eos_id] for _, target in examples]
    pad = partial(pad_sequences, pad_to_multiple_of=pad_to_multiple_of)
    source_mask = make_padding_mask(sources, pad_to_multiple_of=pad_to_multiple_of)
    return Seq2SeqBatch(pad(sources, pad_id), source_mask, pad(decoder_inputs, pad_id), pad(labels, IGNORE_INDEX))


def collate_classification(
    examples: Sequence[tuple[Ids, Ids, Any]],
    *,
    join: JoinFn,
    max_length: int,
    pad_id: int = 0,
    collate_labels: Callable[[Sequence[Any]], Tensor] = torch.tensor,
) -> ClassificationBatch:
    """Batch of (first text, second text, label); a row has at most `max_length` tokens besides the special ones.

    `collate_labels` makes a tensor of labels that are not class indices.

    >>> join = lambda first, second: ([3, *first, 4], [0] * (len(first) + 2))
    >>> collate_classification([([5, 6], [], 1)], join=join, max_length=8).ids
    tensor([[3, 5, 6, 4]])
    """
    joined = [join(*truncate_pair(first, second, max_length, keep_end=True)) for first, second, _ in examples]
    rows, token_types = [ids for ids, _ in joined], [types for _, types in joined]
    labels = collate_labels([label for *_, label in examples])
    return ClassificationBatch(pad_sequences(rows, pad_id), make_padding_mask(rows), pad_sequences(token_types), labels)


def collate_token_classification(
    examples: Sequence[tuple[Ids, Ids, Ids]], *, pad_id: int = 0
) -> TokenClassificationBatch:
    """Batch of (ids with special tokens, token types, labels); IGNORE_INDEX where a token has no label.

    >>> collate_token_classification([([3, 5, 4], [0, 0, 0], [IGNORE_INDEX, 1, IGNORE_INDEX])]).labels
    tensor([[-100,    1, -100]])
    """
    rows, token_types, labels = ([example[number] for example in examples] for number in range(3))
    return TokenClassificationBatch(
        pad_sequences(rows, pad_id),
        make_padding_mask(rows),
        pad_sequences(token_types),
        pad_sequences(labels, IGNORE_INDEX),
    )


@runtime_checkable
class Splittable(Protocol):
    """A batch with its own way to split itself."""

    def split_into(self, chunks: int) -> list[Any]: ...


def to_device(value: Any, device: torch.device) -> Any:
    """Move a batch to a device; the copy to a GPU is asynchronous."""
    return map_tensors(value, lambda tensor: tensor.to(device, non_blocking=device.type == "cuda"))


def batch_size(value: Any) -> int:
    """Number of examples in a batch: the length of its first tensor, or 1 without one.

    >>> batch_size((torch.zeros(3, 2), torch.zeros(3)))
    3
    """
    found: list[int] = []
    map_tensors(value, lambda tensor: found.append(len(tensor) if tensor.ndim else 1) or tensor)
    return found[0] if found else 1


def split_batch(batch: Any, chunks: int) -> list[Any]:
    """Split a batch into micro-batches, at most one per example.

    >>> split_batch((torch.tensor([1, 2, 3]), torch.tensor(0.5)), 2)
    [(tensor([1]), tensor(0.5000)), (tensor([2, 3]), tensor(0.5000))]
    """
    if chunks == 1:
        return [batch]
    if isinstance(batch, Splittable):
        return batch.split_into(chunks)
    count = batch_size(batch)
    bounds = [count * i // chunks for i in range(chunks + 1)]

    def rows(start: int, end: int) -> Any:
        return map_tensors(batch, lambda tensor: tensor[start:end] if tensor.ndim and len(tensor) == count else tensor)

    return [rows(start, end) for start, end in pairwise(bounds) if start < end]
