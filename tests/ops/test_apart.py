"""Documents answered one by one, and where that is not possible."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from softlook import attention, explain, masks
from softlook.ops import apart
from softlook.ops.question import ask

LENGTHS = (20, 1, 33, 17)


def row(lengths: tuple[int, ...] = LENGTHS, batch: int = 1, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(sum(lengths))
    shape = (batch, 4, sum(lengths), 8)
    query = torch.randn(shape, generator=generator, dtype=dtype)
    key, value = torch.randn(2, batch, 2, *shape[2:], generator=generator, dtype=dtype)
    return query, key, value


def ids(lengths: tuple[int, ...] = LENGTHS) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6).map(tuple),
    st.sampled_from([None, masks.causal(), masks.window(5, 2)]),
    st.booleans(),
)
def test_each_document_is_answered_as_in_the_plain_form(lengths: Any, band: Any, band_first: bool) -> None:
    query, key, value = row(lengths)
    mask = masks.documents(ids(lengths))
    if band is not None:
        mask = band & mask if band_first else mask & band
    given = attention(query, key, value, mask=mask)
    assert_close(given, attention(query, key, value, mask=mask, backend="reference"))


def test_gradients_are_those_of_the_plain_form() -> None:
    query, key, value = (tensor.requires_grad_() for tensor in row())
    mask = masks.causal() & masks.documents(ids())
    upstream = torch.randn(query.shape, dtype=query.dtype)
    given = torch.autograd.grad(attention(query, key, value, mask=mask), (query, key, value), upstream)
    plain = attention(query, key, value, mask=mask, backend="reference")
    for one, other in zip(given, torch.autograd.grad(plain, (query, key, value), upstream), strict=True):
        assert_close(one, other)


def test_one_row_of_documents_serves_a_whole_batch() -> None:
    query, key, value = row(batch=3)
    mask = masks.documents(ids())
    assert apart.lengths(ask(query, key, mask=mask)) == list(LENGTHS)
    assert_close(attention(query, key, value, mask=mask), attention(query, key, value, mask=mask, backend="reference"))


def test_it_is_said() -> None:
    query, key, value = row()
    choice = explain(query, key, value, mask=masks.documents(ids()))
    assert str(choice) == "sdpa: each document goes to torch's kernels on its own (0.0 MiB on the way)"


@pytest.mark.parametrize(
    "mask",
    [
        masks.documents(torch.tensor([0] * 30 + [1] * 30 + [0] * 11)),  # a document in two pieces
        masks.documents(torch.arange(71)),  # many small ones
        masks.documents(ids(), ids()),  # queries with numbers of their own
        masks.documents(ids()) & masks.prefix(9),
        masks.documents(ids()) | masks.causal(),
        masks.causal(),
    ],
    ids=str,
)
def test_what_cannot_be_taken_apart_is_answered_whole(mask: masks.Mask) -> None:
    query, key, value = row()
    assert apart.lengths(ask(query, key, mask=mask)) is None
    assert_close(attention(query, key, value, mask=mask), attention(query, key, value, mask=mask, backend="reference"))


def test_fewer_queries_than_keys_are_answered_whole() -> None:
    query, key, value = row()
    mask = masks.documents(ids())
    assert apart.lengths(ask(query[:, :, -3:], key, mask=mask)) is None
    whole = attention(query, key, value, mask=mask)
    assert_close(attention(query[:, :, -3:], key, value, mask=mask), whole[:, :, -3:])
