"""Variable-length attention: one call per document, and where that is not possible."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from softlook import attention, explain, masks
from softlook.ops.arguments import prepare_args
from softlook.ops.backends import varlen

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
def test_documents_match_the_reference(lengths: Any, window: Any, window_first: bool) -> None:
    query, key, value = row(lengths)
    mask = masks.documents(ids(lengths))
    if window is not None:
        mask = window & mask if window_first else mask & window
    given = attention(query, key, value, mask=mask)
    assert_close(given, attention(query, key, value, mask=mask, backend="reference"))


def test_gradients_match_the_reference() -> None:
    query, key, value = (tensor.requires_grad_() for tensor in row())
    mask = masks.causal() & masks.documents(ids())
    upstream = torch.randn(query.shape, dtype=query.dtype)
    given = torch.autograd.grad(attention(query, key, value, mask=mask), (query, key, value), upstream)
    plain = attention(query, key, value, mask=mask, backend="reference")
    for one, other in zip(given, torch.autograd.grad(plain, (query, key, value), upstream), strict=True):
        assert_close(one, other)


def test_one_row_of_document_ids_serves_a_batch() -> None:
    query, key, value = row(batch=3)
    mask = masks.documents(ids())
    assert varlen.document_lengths(prepare_args(query, key, mask=mask)) == list(LENGTHS)
    assert_close(attention(query, key, value, mask=mask), attention(query, key, value, mask=mask, backend="reference"))


def test_explain_names_varlen() -> None:
    query, key, value = row()
    plan = explain(query, key, value, mask=masks.documents(ids()))
    assert str(plan).startswith("sdpa (varlen): each document runs through torch's kernels on its own (0.0 MiB")


@pytest.mark.parametrize(
    "mask",
    [
        masks.documents(torch.tensor([0] * 30 + [1] * 30 + [0] * 11)),  # a document in two runs
        masks.documents(torch.arange(71)),  # many short documents
        masks.documents(ids(), ids()),  # separate ids for the queries
        masks.documents(ids()) & masks.prefix(9),
        masks.documents(ids()) | masks.causal(),
        masks.causal(),
    ],
    ids=str,
)
def test_other_masks_run_as_one_call(mask: masks.Mask) -> None:
    query, key, value = row()
    assert varlen.document_lengths(prepare_args(query, key, mask=mask)) is None
    assert_close(attention(query, key, value, mask=mask), attention(query, key, value, mask=mask, backend="reference"))


def test_fewer_queries_than_keys_run_as_one_call() -> None:
    query, key, value = row()
    mask = masks.documents(ids())
    assert varlen.document_lengths(prepare_args(query[:, :, -3:], key, mask=mask)) is None
    whole = attention(query, key, value, mask=mask)
    assert_close(attention(query[:, :, -3:], key, value, mask=mask), whole[:, :, -3:])
