"""Rows of unequal length in one memory say what each would say with a memory of its own."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ShapeError
from softlook.blocks import KVCache
from softlook.ops.masks import padding
from softlook.serve.engine.kv_cache import RaggedKVCache
from tests.serve.tiny_models import decoder

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
    return decoder(request.param, VOCAB)


@settings(max_examples=25)
@given(deeds=DEEDS)
def test_logits_of_a_ragged_batch_equal_those_of_each_row_alone(model: torch.nn.Module, deeds: list[Any]) -> None:
    cache, rows, scores = RaggedKVCache(), list[list[int]](), torch.empty(0)
    with torch.no_grad():
        whole: list[tuple[str, Any]] = [("join", [4]), *deeds, ("step", 3)]
        for deed, value in whole:
            if deed == "join":
                join(model, cache, rows, value)
            elif deed == "leave" and rows:
                cache.remove_row(value % len(rows))
                rows[value % len(rows)] = rows[-1]
                rows.pop()
            elif deed == "step" and rows and max(map(len, rows)) + value < 60:
                for _ in range(value):
                    scores = step(model, cache, rows)
                alone = torch.stack([model(torch.tensor([row]))[0, -1] for row in rows])
                torch.testing.assert_close(scores, alone, rtol=1e-3, atol=1e-4)
            assert cache.lengths == [len(row) for row in rows]


def join(model: torch.nn.Module, cache: RaggedKVCache, rows: list[list[int]], lengths: list[int]) -> None:
    """Rows that were read together, filled up on the left."""
    memory, longest = KVCache(), max(lengths)
    new = [torch.randint(0, VOCAB, (length,)).tolist() for length in lengths]
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in new])
    counts = torch.tensor(lengths)
    places = (torch.arange(longest) - (longest - counts)[:, None]).clamp(min=0)
    model(ids, cache=memory, mask=padding(counts, side="left", length=longest), positions=places)
    cache.add_rows(memory, lengths)
    rows += new


def step(model: torch.nn.Module, cache: RaggedKVCache, rows: list[list[int]]) -> torch.Tensor:
    for row in rows:
        row.append(int(torch.randint(0, VOCAB, ())))
    cache.advance()
    lengths = torch.tensor(cache.lengths)
    mask = padding(lengths, side="left", length=cache.width)
    last = torch.tensor([row[-1:] for row in rows])
    return model(last, cache=cache, mask=mask, positions=lengths[:, None] - 1)[:, -1]


def test_a_removed_row_does_not_affect_the_next_one(model: torch.nn.Module) -> None:
    """A masked value is multiplied with 0, and 0 times NaN is NaN."""
    cache, rows = RaggedKVCache(), list[list[int]]()
    with torch.no_grad():
        join(model, cache, rows, [9, 3, 9])
        for slot in cache.ragged_layers:
            for kept in slot.key_value:
                kept[[0, 2], :, cache.end - 9 : cache.end] = torch.nan
        for row in (2, 0):
            cache.remove_row(row)
            rows[row] = rows[-1]
            rows.pop()
        for lengths in ([2, 4], [9]):  # first narrow, and then a row that makes all of them wider
            join(model, cache, rows, lengths)
            scores = step(model, cache, rows)
            alone = torch.stack([model(torch.tensor([row]))[0, -1] for row in rows])
            torch.testing.assert_close(scores, alone, rtol=1e-3, atol=1e-4)


def test_an_empty_cache_frees_its_memory(model: torch.nn.Module) -> None:
    cache, rows = RaggedKVCache(), list[list[int]]()
    with torch.no_grad():
        join(model, cache, rows, [3, 5])
    cache.remove_row(0)
    cache.remove_row(0)
    assert cache.ragged_layers == [] and cache.rows == cache.columns == 0


def test_a_ragged_cache_rejects_unsupported_operations(model: torch.nn.Module) -> None:
    cache, rows = RaggedKVCache(), list[list[int]]()
    with torch.no_grad():
        join(model, cache, rows, [3, 5])
        with pytest.raises(ShapeError, match="added and removed one by one"):
            cache.reorder(torch.tensor([0]))
        with pytest.raises(ShapeError, match="added and removed one by one"):
            cache.crop(1)
        with pytest.raises(ShapeError, match="expected one new position for 2 rows, got 3 for 2"):
            cache.advance()
            model(torch.zeros(2, 3, dtype=torch.long), cache=cache, positions=torch.zeros(2, 3, dtype=torch.long))
