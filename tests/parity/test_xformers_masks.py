"""The materialized masks of xformers equal combinations of softlook's masks.

Twelve are one expression each. Eight align the queries of each block with the keys of that block, where softlook's
`causal()` and `window()` align all queries with all keys: those are a union of one shifted window per run of keys.
"""

import inspect
from collections.abc import Callable
from functools import reduce
from typing import Literal, NamedTuple, get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from xformers.ops.fmha import attn_bias as reference

from softlook import attention, masks

CLASSES = {c for c in vars(reference).values() if inspect.isclass(c) and issubclass(c, reference.AttentionBias)}

EagerBackend = Literal["auto", "reference", "tiled", "sdpa"]
UNUSED = -1
"""The document id of unused keys."""


class Case(NamedTuple):
    """A mask of xformers, and softlook's mask for as many queries and keys."""

    reference: reference.AttentionBias
    queries: int
    keys: int
    actual: masks.Mask
    bias: Tensor | None = None


class Run(NamedTuple):
    """Consecutive keys of one block of queries. Query i is aligned with key i + shift."""

    document: int
    key: int
    length: int
    shift: int


def ids(lengths: list[int]) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def key_ids(runs: list[Run], keys: int) -> Tensor:
    found = torch.full((keys,), UNUSED)
    for run in runs:
        found[run.key : run.key + run.length] = run.document
    return found


def distance_range(low: int | None, high: int | None) -> masks.Mask:
    """Keys from `low` to `high` positions before the query, both of either sign; None is unlimited."""
    parts = []
    if high is not None:
        parts.append(masks.window(high, None) if high >= 0 else ~masks.window(None, -high - 1))
    if low is not None:
        parts.append(masks.window(None, -low) if low <= 0 else ~masks.window(low - 1, None))
    return reduce(lambda one, other: one & other, parts)


def union_of_runs(queries: Tensor, runs: list[Run], keys: int, left: int | None, right: int | None) -> masks.Mask:
    """A window in each run of keys, around the position of the query in that run."""
    all_shift = keys - len(queries)
    pieces = []
    for run in runs:
        offset = all_shift - run.shift
        window = distance_range(None if right is None else offset - right, None if left is None else offset + left)
        pieces.append(masks.documents(key_ids([run], keys), queries) & window)
    return reduce(lambda one, other: one | other, pieces)


# Three documents; their keys are contiguous, or padded to a capacity, or with gaps, or on pages in any order.
Q, K, CAPACITY = [2, 3, 1], [2, 5, 4], 6
STARTS = [1, 6, 14]
PAGES, PAGE = torch.tensor([[5, 0], [3, 1], [2, 4]]), 3
PAGED_STARTS, PAGED_K = [1, 0, 2], [3, 5, 4]
T = sum(Q)
FIRST = [sum(Q[:n]) for n in range(3)]


def aligned_at_end(starts: list[int], lengths: list[int]) -> list[Run]:
    """Runs in which each block's last query is aligned with the block's last key."""
    return [Run(n, starts[n], lengths[n], starts[n] + lengths[n] - FIRST[n] - Q[n]) for n in range(3)]


def on_pages(starts: list[int], lengths: list[int]) -> list[Run]:
    """The runs of each block's keys in paged memory; `starts` are offsets into its pages."""
    runs = []
    for n in range(3):
        for number, page in enumerate(PAGES[n].tolist()):
            first, last = max(starts[n], number * PAGE), min(starts[n] + lengths[n], (number + 1) * PAGE)
            offset = (page - number) * PAGE
            if first < last:
                runs.append(Run(n, first + offset, last - first, starts[n] + lengths[n] - FIRST[n] - Q[n] + offset))
    return runs


CONTIGUOUS = aligned_at_end([0, 2, 7], K)
PADDED = aligned_at_end([0, CAPACITY, 2 * CAPACITY], K)
GAPPY = aligned_at_end(STARTS, K)
PAGED = on_pages([0, 0, 0], K)
PAGED_GAPPY = on_pages(PAGED_STARTS, PAGED_K)


def paged(kind: type) -> reference.AttentionBias:
    return kind.from_seqlens(Q, K, PAGES, PAGE)  # pyright: ignore[reportAttributeAccessIssue]


def paged_gappy(kind: type) -> reference.AttentionBias:
    """Made from the mask without pages: the from_seqlens of the paged class requires one list to have two lengths."""
    starts = [start + number * CAPACITY for number, start in enumerate(PAGED_STARTS)]
    unpaged = reference.BlockDiagonalGappyKeysMask.from_seqlens(Q, [*starts, 3 * CAPACITY], PAGED_K)
    return unpaged.make_paged(PAGES, PAGE, CAPACITY, kind)


def documents(runs: list[Run], keys: int) -> masks.Mask:
    return masks.documents(key_ids(runs, keys), ids(Q))


def windows(runs: list[Run], keys: int, left: int | None, right: int | None) -> masks.Mask:
    return union_of_runs(ids(Q), runs, keys, left, right)


BIAS = torch.linspace(-1, 1, 49).view(7, 7)
PACKED = masks.documents(ids(K))
BLOCKS = reference.BlockDiagonalMask.from_seqlens(Q, K)
SELF_BLOCKS = reference.BlockDiagonalMask.from_seqlens(K)
PADDED_BLOCKS = reference.BlockDiagonalPaddedKeysMask.from_seqlens(Q, CAPACITY, K)

ONE_EXPRESSION: dict[type, Callable[[], Case]] = {
    reference.LowerTriangularMask: lambda: Case(reference.LowerTriangularMask(), 7, 7, masks.causal()),
    reference.LowerTriangularMaskWithTensorBias: lambda: Case(
        reference.LowerTriangularMask().add_bias(BIAS), 7, 7, masks.causal(), BIAS
    ),
    reference.LowerTriangularFromBottomRightMask: lambda: Case(
        reference.LowerTriangularFromBottomRightMask(), 4, 9, masks.causal()
    ),
    reference.LowerTriangularFromBottomRightLocalAttentionMask: lambda: Case(
        reference.LowerTriangularFromBottomRightMask().make_local_attention(3), 4, 9, masks.window(3 - 1)
    ),
    reference.LocalAttentionFromBottomRightMask: lambda: Case(
        reference.LocalAttentionFromBottomRightMask(2, 1), 5, 8, masks.window(2, 1)
    ),
    reference.BlockDiagonalMask: lambda: Case(BLOCKS, T, 11, documents(CONTIGUOUS, 11)),
    reference.BlockDiagonalCausalMask: lambda: Case(SELF_BLOCKS.make_causal(), 11, 11, PACKED & masks.causal()),
    reference.BlockDiagonalCausalLocalAttentionMask: lambda: Case(
        SELF_BLOCKS.make_local_attention(3), 11, 11, PACKED & masks.window(3 - 1)
    ),
    reference.BlockDiagonalPaddedKeysMask: lambda: Case(PADDED_BLOCKS, T, 18, documents(PADDED, 18)),
    reference.BlockDiagonalGappyKeysMask: lambda: Case(
        reference.BlockDiagonalGappyKeysMask.from_seqlens(Q, [*STARTS, 20], K), T, 20, documents(GAPPY, 20)
    ),
    reference.PagedBlockDiagonalPaddedKeysMask: lambda: Case(
        paged(reference.PagedBlockDiagonalPaddedKeysMask), T, 18, documents(PAGED, 18)
    ),
    reference.PagedBlockDiagonalGappyKeysMask: lambda: Case(
        paged_gappy(reference.PagedBlockDiagonalGappyKeysMask), T, 18, documents(PAGED_GAPPY, 18)
    ),
}

UNION_OF_RUNS: dict[type, Callable[[], Case]] = {
    reference.BlockDiagonalCausalFromBottomRightMask: lambda: Case(
        BLOCKS.make_causal_from_bottomright(), T, 11, windows(CONTIGUOUS, 11, None, 0)
    ),
    reference.BlockDiagonalCausalLocalAttentionFromBottomRightMask: lambda: Case(
        BLOCKS.make_local_attention_from_bottomright(3), T, 11, windows(CONTIGUOUS, 11, 3 - 1, 0)
    ),
    reference.BlockDiagonalCausalWithOffsetPaddedKeysMask: lambda: Case(
        reference.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(Q, CAPACITY, K),
        T,
        18,
        windows(PADDED, 18, None, 0),
    ),
    reference.BlockDiagonalLocalAttentionPaddedKeysMask: lambda: Case(
        PADDED_BLOCKS.make_local_attention(2, 1), T, 18, windows(PADDED, 18, 2, 1)
    ),
    reference.BlockDiagonalCausalLocalAttentionPaddedKeysMask: lambda: Case(
        reference.BlockDiagonalCausalLocalAttentionPaddedKeysMask.from_seqlens_local(Q, CAPACITY, K, 3),
        T,
        18,
        windows(PADDED, 18, 3 - 1, 0),
    ),
    reference.BlockDiagonalCausalWithOffsetGappyKeysMask: lambda: Case(
        reference.BlockDiagonalCausalWithOffsetGappyKeysMask.from_seqlens(Q, [*STARTS, 20], K),
        T,
        20,
        windows(GAPPY, 20, None, 0),
    ),
    reference.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask: lambda: Case(
        paged(reference.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask), T, 18, windows(PAGED, 18, None, 0)
    ),
    reference.PagedBlockDiagonalCausalWithOffsetGappyKeysMask: lambda: Case(
        paged_gappy(reference.PagedBlockDiagonalCausalWithOffsetGappyKeysMask), T, 18, windows(PAGED_GAPPY, 18, None, 0)
    ),
}

NOT_A_MASK = {reference.AttentionBias: "the abstract base class"}

CASES = {**ONE_EXPRESSION, **UNION_OF_RUNS}
EACH = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)


def test_every_class_of_xformers_is_tested() -> None:
    assert len(CLASSES) == 21
    assert len(ONE_EXPRESSION) + len(UNION_OF_RUNS) + len(NOT_A_MASK) == 21
    assert {*ONE_EXPRESSION, *UNION_OF_RUNS, *NOT_A_MASK} == CLASSES


@EACH
def test_softlook_s_mask_equals_the_materialized_mask(kind: type) -> None:
    case = CASES[kind]()
    assert type(case.reference) is kind
    materialized = case.reference.materialize((case.queries, case.keys))
    visible = case.actual.to_dense((1, 1, case.queries, case.keys)).expand(1, 1, case.queries, case.keys)[0, 0]
    assert materialized.shape == visible.shape
    assert torch.equal(visible, ~materialized.isneginf())
    assert visible.any(-1).all()
    assert not visible.all()


@EACH
@pytest.mark.parametrize("backend", get_args(EagerBackend))
def test_attention_with_softlook_s_mask_matches_xformers_materialized_mask(kind: type, backend: EagerBackend) -> None:
    case = CASES[kind]()
    query, key, value = torch.randn(2, 3, case.queries, 8), *torch.randn(2, 2, 3, case.keys, 8)
    materialized = case.reference.materialize((case.queries, case.keys))
    expected = scaled_dot_product_attention(query, key, value, attn_mask=materialized)
    output = attention(query, key, value, mask=case.actual, bias=case.bias, backend=backend)
    torch.testing.assert_close(output, expected)
