"""Rows of different lengths in one ragged KV cache get the logits that each gets with its own cache."""

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
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(1, 9), min_size=1, max_size=3)),
        st.tuples(st.just("step"), st.integers(1, 12)),
        st.tuples(st.just("remove"), st.integers(0, 9)),
    ),
    max_size=8,
)


@pytest.fixture(scope="module", params=["gpt", "windowed"])
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return decoder(request.param, VOCAB)


@settings(max_examples=25)
@given(operations=OPERATIONS)
def test_logits_of_a_ragged_batch_equal_those_of_each_row_alone(model: torch.nn.Module, operations: list[Any]) -> None:
    cache, rows, logits = RaggedKVCache(), list[list[int]](), torch.empty(0)
    with torch.no_grad():
        steps: list[tuple[str, Any]] = [("add", [4]), *operations, ("step", 3)]
        for operation, value in steps:
            if operation == "add":
                add(model, cache, rows, value)
            elif operation == "remove" and rows:
                cache.remove_row(value % len(rows))
                rows[value % len(rows)] = rows[-1]
                rows.pop()
            elif operation == "step" and rows and max(map(len, rows)) + value < 60:
                for _ in range(value):
                    logits = step(model, cache, rows)
                alone = torch.stack([model(torch.tensor([row]))[0, -1] for row in rows])
                torch.testing.assert_close(logits, alone, rtol=1e-3, atol=1e-4)
            assert cache.lengths == [len(row) for row in rows]


def add(model: torch.nn.Module, cache: RaggedKVCache, rows: list[list[int]], lengths: list[int]) -> None:
    """Add rows from one left-padded prefill."""
    prefill_cache, max_length = KVCache(), max(lengths)
    new = [torch.randint(0, VOCAB, (length,)).tolist() for length in lengths]
    ids = torch.tensor([[0] * (max_length - len(row)) + row for row in new])
    counts = torch.tensor(lengths)
    positions = (torch.arange(max_length) - (max_length - counts)[:, None]).clamp(min=0)
    model(ids, cache=prefill_cache, mask=padding(counts, side="left", length=max_length), positions=positions)
    cache.add_rows(prefill_cache, lengths)
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
    """A masked value is multiplied by 0, and 0 times NaN is NaN."""
    cache, rows = RaggedKVCache(), list[list[int]]()
    with torch.no_grad():
        add(model, cache, rows, [9, 3, 9])
        for layer in cache.ragged_layers:
            for tensor in layer.key_value:
                tensor[[0, 2], :, cache.end - 9 : cache.end] = torch.nan
        for row in (2, 0):
            cache.remove_row(row)
            rows[row] = rows[-1]
            rows.pop()
        for lengths in ([2, 4], [9]):  # first short rows, then one that widens the cache
            add(model, cache, rows, lengths)
            logits = step(model, cache, rows)
            alone = torch.stack([model(torch.tensor([row]))[0, -1] for row in rows])
            torch.testing.assert_close(logits, alone, rtol=1e-3, atol=1e-4)


def test_an_empty_cache_frees_its_memory(model: torch.nn.Module) -> None:
    cache, rows = RaggedKVCache(), list[list[int]]()
    with torch.no_grad():
        add(model, cache, rows, [3, 5])
    cache.remove_row(0)
    cache.remove_row(0)
    assert cache.ragged_layers == [] and cache.rows == cache.columns == 0


def test_a_ragged_cache_rejects_unsupported_operations(model: torch.nn.Module) -> None:
    cache, rows = RaggedKVCache(), list[list[int]]()
    with torch.no_grad():
        add(model, cache, rows, [3, 5])
        with pytest.raises(ShapeError, match="added and removed one by one"):
            cache.reorder(torch.tensor([0]))
        with pytest.raises(ShapeError, match="added and removed one by one"):
            cache.crop(1)
        with pytest.raises(ShapeError, match="expected one new position for 2 rows, got 3 for 2"):
            cache.advance()
            model(torch.zeros(2, 3, dtype=torch.long), cache=cache, positions=torch.zeros(2, 3, dtype=torch.long))
