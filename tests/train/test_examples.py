"""Lists of ids become batches: nothing is lost, nothing is asked where nothing is."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook.losses import NOTHING
from softlook.train.examples import Ids, labelled, padded, pairs, shortened, there

ids = st.lists(st.integers(5, 30), max_size=8)


@given(st.lists(ids, min_size=1, max_size=5))
def test_padding_is_told_from_what_is_there(rows: list[list[int]]) -> None:
    full, mark = padded(rows, 9), there(rows)
    assert full.shape == mark.shape == (len(rows), max(map(len, rows)))
    for row, filled, present in zip(rows, full, mark, strict=True):
        assert filled[present].tolist() == row
        assert (filled[~present] == 9).all()


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=4))
def test_what_is_wanted_is_what_is_said_one_place_later(examples: list[tuple[list[int], list[int]]]) -> None:
    batch = pairs(examples, begin=1, end=2)
    for i, (source, target) in enumerate(examples):
        assert batch.source[i][batch.source_present[i]].tolist() == [*source, 2]
        assert batch.said[i][: len(target) + 1].tolist() == [1, *target]
        assert batch.wanted[i][: len(target) + 1].tolist() == [*target, 2]
        assert (batch.wanted[i][len(target) + 1 :] == NOTHING).all()


@given(ids, ids, st.integers(0, 20))
def test_two_texts_fit_together_and_as_much_of_them_as_there_is_room_for(
    one: list[int], other: list[int], room: int
) -> None:
    a, b = shortened(one, other, room)
    assert (list(a), list(b)) == (one[: len(a)], other[: len(b)])
    assert len(a) + len(b) == min(room, len(one) + len(other))
    if len(a) < len(one) and len(b) < len(other):
        assert abs(len(a) - len(b)) <= 1


def joined(one: Ids, other: Ids) -> tuple[list[int], list[int]]:
    """`[CLS] a [SEP] b [SEP]`, with 3 and 4 for the special tokens."""
    behind = [*other, 4] if other else []
    return [3, *one, 4, *behind], [0] * (len(one) + 2) + [1] * len(behind)


def test_a_pair_is_told_apart_by_its_segments() -> None:
    batch = labelled([([5, 6], [7], 1), ([8], [], 0)], join=joined, room=9)
    assert batch.ids.tolist() == [[3, 5, 6, 4, 7, 4], [3, 8, 4, 0, 0, 0]]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]
    assert batch.present.tolist() == [[True] * 6, [True] * 3 + [False] * 3]
    assert torch.equal(batch.wanted, torch.tensor([1, 0]))


def test_lengths_are_filled_up_to_a_multiple_and_nothing_more_is_asked() -> None:
    examples = [([5, 6, 7], [8]), ([9], [8, 7, 6, 5])]
    plain, filled = (pairs(examples, begin=1, end=2, multiple=multiple) for multiple in (1, 8))
    assert filled.source.shape == filled.said.shape == filled.wanted.shape == (2, 8)
    for name in ("source", "source_present", "said", "wanted"):
        one, other = getattr(plain, name), getattr(filled, name)
        assert_close(other[:, : one.shape[1]], one)
    assert not filled.source_present[:, plain.source.shape[1] :].any()
    assert bool((filled.wanted[:, plain.wanted.shape[1] :] == NOTHING).all())
