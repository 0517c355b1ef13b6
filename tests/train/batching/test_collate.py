"""Lists of ids are collated to batches: no token is lost, and padding has no label."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook.base.tensors import truncate_pair
from softlook.losses import IGNORE_INDEX
from softlook.train.batching.collate import (
    Ids,
    collate_classification,
    collate_seq2seq,
    make_padding_mask,
    pad_sequences,
)

ids = st.lists(st.integers(5, 30), max_size=8)


@given(st.lists(ids, min_size=1, max_size=5))
def test_padding_mask_marks_the_tokens(rows: list[list[int]]) -> None:
    padded, mask = pad_sequences(rows, 9), make_padding_mask(rows)
    assert padded.shape == mask.shape == (len(rows), max(map(len, rows)))
    for row, padded_row, row_mask in zip(rows, padded, mask, strict=True):
        assert padded_row[row_mask].tolist() == row
        assert (padded_row[~row_mask] == 9).all()


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=4))
def test_labels_are_decoder_inputs_shifted_by_one(examples: list[tuple[list[int], list[int]]]) -> None:
    batch = collate_seq2seq(examples, bos_id=1, eos_id=2)
    for i, (source, target) in enumerate(examples):
        assert batch.source[i][batch.source_mask[i]].tolist() == [*source, 2]
        assert batch.decoder_input[i][: len(target) + 1].tolist() == [1, *target]
        assert batch.labels[i][: len(target) + 1].tolist() == [*target, 2]
        assert (batch.labels[i][len(target) + 1 :] == IGNORE_INDEX).all()


@given(ids, ids, st.integers(0, 20))
def test_truncate_pair_uses_the_whole_max_length(one: list[int], other: list[int], max_length: int) -> None:
    a, b = truncate_pair(one, other, max_length)
    if other or len(one) <= max_length:
        assert (list(a), list(b)) == (one[: len(a)], other[: len(b)])
    assert len(a) + len(b) == min(max_length, len(one) + len(other))
    if len(a) < len(one) and len(b) < len(other):
        assert abs(len(a) - len(b)) <= 1


@given(ids, st.integers(0, 20))
def test_a_single_text_keeps_its_beginning_and_its_end(text: list[int], max_length: int) -> None:
    first, second = truncate_pair(text, [], max_length, keep_end=True)
    tail = max_length // 4 if len(text) > max_length else 0
    assert list(second) == []
    assert list(first) == (text[: max_length - tail] + text[len(text) - tail :] if tail else text[:max_length])


def joined(one: Ids, other: Ids) -> tuple[list[int], list[int]]:
    """`[CLS] a [SEP] b [SEP]`, with 3 and 4 for the special tokens."""
    second = [*other, 4] if other else []
    return [3, *one, 4, *second], [0] * (len(one) + 2) + [1] * len(second)


def test_token_types_distinguish_the_texts_of_a_pair() -> None:
    batch = collate_classification([([5, 6], [7], 1), ([8], [], 0)], join=joined, max_length=9)
    assert batch.ids.tolist() == [[3, 5, 6, 4, 7, 4], [3, 8, 4, 0, 0, 0]]
    assert batch.token_types.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]
    assert batch.padding_mask.tolist() == [[True] * 6, [True] * 3 + [False] * 3]
    assert torch.equal(batch.labels, torch.tensor([1, 0]))


def test_pad_to_multiple_of_adds_only_padding() -> None:
    examples = [([5, 6, 7], [8]), ([9], [8, 7, 6, 5])]
    plain, padded = (collate_seq2seq(examples, bos_id=1, eos_id=2, pad_to_multiple_of=multiple) for multiple in (1, 8))
    assert padded.source.shape == padded.decoder_input.shape == padded.labels.shape == (2, 8)
    for name in ("source", "source_mask", "decoder_input", "labels"):
        one, other = getattr(plain, name), getattr(padded, name)
        assert_close(other[:, : one.shape[1]], one)
    assert not padded.source_mask[:, plain.source.shape[1] :].any()
    assert bool((padded.labels[:, plain.labels.shape[1] :] == IGNORE_INDEX).all())
