"""Rows of unequal length in one memory say what each would say with a memory of its own."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ShapeError
from softlook.blocks import Memory
from softlook.ops.masks import padding
from softlook.serve.slots import Slots
from tests.serve.halls import speaker

VOCAB = 20
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.lists(st.integers(1, 9), min_size=1, max_size=3)),
        st.tuples(st.just("step"), st.integers(1, 12)),
        st.tuples(st.just("leave"), st.integers(0, 9)),
    ),
    max_size=8,
)


@pytest.fixture(scope="module", params=["gpt", "windowed"])
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return speaker(request.param, VOCAB)


@settings(max_examples=25)
@given(deeds=DEEDS)
def test_whoever_joins_and_leaves_the_scores_are_those_of_a_row_alone(model: torch.nn.Module, deeds: list[Any]) -> None:
    slots, rows, scores = Slots(), list[list[int]](), torch.empty(0)
    with torch.no_grad():
        whole: list[tuple[str, Any]] = [("join", [4]), *deeds, ("step", 3)]
        for deed, value in whole:
            if deed == "join":
                join(model, slots, rows, value)
            elif deed == "leave" and rows:
                slots.leave(value % len(rows))
                rows[value % len(rows)] = rows[-1]
                rows.pop()
            elif deed == "step" and rows and max(map(len, rows)) + value < 60:
                for _ in range(value):
                    scores = step(model, slots, rows)
                alone = torch.stack([model(torch.tensor([row]))[0, -1] for row in rows])
                torch.testing.assert_close(scores, alone, rtol=1e-3, atol=1e-4)
            assert slots.lengths == [len(row) for row in rows]


def join(model: torch.nn.Module, slots: Slots, rows: list[list[int]], lengths: list[int]) -> None:
    """Rows that were read together, filled up on the left."""
    memory, longest = Memory(), max(lengths)
    new = [torch.randint(0, VOCAB, (length,)).tolist() for length in lengths]
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in new])
    counts = torch.tensor(lengths)
    places = (torch.arange(longest) - (longest - counts)[:, None]).clamp(min=0)
    model(ids, memory=memory, mask=padding(counts, left_of=longest), positions=places)
    slots.join(memory, lengths)
    rows += new


def step(model: torch.nn.Module, slots: Slots, rows: list[list[int]]) -> torch.Tensor:
    for row in rows:
        row.append(int(torch.randint(0, VOCAB, ())))
    slots.step()
    lengths = torch.tensor(slots.lengths)
    mask = padding(lengths, left_of=slots.width)
    last = torch.tensor([row[-1:] for row in rows])
    return model(last, memory=slots, mask=mask, positions=lengths[:, None] - 1)[:, -1]


def test_what_a_row_leaves_behind_does_not_reach_the_next(model: torch.nn.Module) -> None:
    """A masked value is multiplied with 0, and 0 times NaN is NaN."""
    slots, rows = Slots(), list[list[int]]()
    with torch.no_grad():
        join(model, slots, rows, [9, 3, 9])
        for slot in slots.slots:
            for kept in slot.both:
                kept[[0, 2], :, slots.end - 9 : slots.end] = torch.nan
        for row in (2, 0):
            slots.leave(row)
            rows[row] = rows[-1]
            rows.pop()
        for lengths in ([2, 4], [9]):  # first narrow, and then a row that makes all of them wider
            join(model, slots, rows, lengths)
            scores = step(model, slots, rows)
            alone = torch.stack([model(torch.tensor([row]))[0, -1] for row in rows])
            torch.testing.assert_close(scores, alone, rtol=1e-3, atol=1e-4)


def test_the_last_to_leave_turns_off_the_light(model: torch.nn.Module) -> None:
    slots, rows = Slots(), list[list[int]]()
    with torch.no_grad():
        join(model, slots, rows, [3, 5])
    slots.leave(0)
    slots.leave(0)
    assert slots.slots == [] and slots.rows == slots.columns == 0


def test_slots_refuse_what_they_cannot_do(model: torch.nn.Module) -> None:
    slots, rows = Slots(), list[list[int]]()
    with torch.no_grad():
        join(model, slots, rows, [3, 5])
        with pytest.raises(ShapeError, match="join and leave one by one"):
            slots.select(torch.tensor([0]))
        with pytest.raises(ShapeError, match="join and leave one by one"):
            slots.forget(1)
        with pytest.raises(ShapeError, match="2 rows of slots take one word each; 2 of 3 came"):
            slots.step()
            model(torch.zeros(2, 3, dtype=torch.long), memory=slots, positions=torch.zeros(2, 3, dtype=torch.long))
