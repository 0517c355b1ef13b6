"""The masks of xformers, written out, equal masks put together from softlook's.

Twelve are one expression each. Eight line up each block's queries with that block's own keys, where softlook's
`causal()` and `window()` line up all queries with all keys: those are a union of one shifted band for each run of keys.
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

Path = Literal["auto", "reference", "blocks", "sdpa"]
NOBODY = -1
"""The document of keys that are not in use."""


class Case(NamedTuple):
    """The same mask twice: theirs, and ours for as many queries and keys."""

    reference: reference.AttentionBias
    queries: int
    keys: int
    actual: masks.Mask
    bias: Tensor | None = None


class Run(NamedTuple):
    """Keys side by side that belong to one block of queries. Query i stands at key i + shift."""

    document: int
    key: int
    length: int
    shift: int


def ids(lengths: list[int]) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def key_ids(runs: list[Run], keys: int) -> Tensor:
    found = torch.full((keys,), NOBODY)
    for run in runs:
        found[run.key : run.key + run.length] = run.document
    return found


def band(least: int | None, most: int | None) -> masks.Mask:
    """Keys from `least` to `max_tokens` positions behind the query, both of either sign; None is without end."""
    parts = []
    if most is not None:
        parts.append(masks.window(most, None) if most >= 0 else ~masks.window(None, -most - 1))
    if least is not None:
        parts.append(masks.window(None, -least) if least <= 0 else ~masks.window(least - 1, None))
    return reduce(lambda one, other: one & other, parts)


def run_by_run(queries: Tensor, runs: list[Run], keys: int, left: int | None, right: int | None) -> masks.Mask:
    """In each run of keys a window of its own, around where the query stands in that run."""
    all_shift = keys - len(queries)
    pieces = []
    for run in runs:
        apart = all_shift - run.shift
        window = band(None if right is None else apart - right, None if left is None else apart + left)
        pieces.append(masks.documents(key_ids([run], keys), queries) & window)
    return reduce(lambda one, other: one | other, pieces)


# Three documents; the keys either end to end, or each in a room of its own, or in gaps, or on pages in any order.
Q, K, ROOM = [2, 3, 1], [2, 5, 4], 6
STARTS = [1, 6, 14]
PAGES, PAGE = torch.tensor([[5, 0], [3, 1], [2, 4]]), 3
PAGED_STARTS, PAGED_K = [1, 0, 2], [3, 5, 4]
T = sum(Q)
FIRST = [sum(Q[:n]) for n in range(3)]


def ends_meet(starts: list[int], lengths: list[int]) -> list[Run]:
    """Each block's last query stands at the block's last key."""
    return [Run(n, starts[n], lengths[n], starts[n] + lengths[n] - FIRST[n] - Q[n]) for n in range(3)]


def on_pages(starts: list[int], lengths: list[int]) -> list[Run]:
    """The runs that a block's keys, `starts` into its pages, make in the memory the pages lie in."""
    runs = []
    for n in range(3):
        for number, page in enumerate(PAGES[n].tolist()):
            first, last = max(starts[n], number * PAGE), min(starts[n] + lengths[n], (number + 1) * PAGE)
            moved = (page - number) * PAGE
            if first < last:
                runs.append(Run(n, first + moved, last - first, starts[n] + lengths[n] - FIRST[n] - Q[n] + moved))
    return runs


END_TO_END = ends_meet([0, 2, 7], K)
PADDED = ends_meet([0, ROOM, 2 * ROOM], K)
GAPPY = ends_meet(STARTS, K)
PAGED = on_pages([0, 0, 0], K)
PAGED_GAPPY = on_pages(PAGED_STARTS, PAGED_K)


def paged(kind: type) -> reference.AttentionBias:
    return kind.from_seqlens(Q, K, PAGES, PAGE)  # pyright: ignore[reportAttributeAccessIssue]


def paged_gappy(kind: type) -> reference.AttentionBias:
    """By way of the mask without pages: the class's own from_seqlens wants two lengths of one list."""
    in_rooms = [start + number * ROOM for number, start in enumerate(PAGED_STARTS)]
    without = reference.BlockDiagonalGappyKeysMask.from_seqlens(Q, [*in_rooms, 3 * ROOM], PAGED_K)
    return without.make_paged(PAGES, PAGE, ROOM, kind)


def documents(runs: list[Run], keys: int) -> masks.Mask:
    return masks.documents(key_ids(runs, keys), ids(Q))


def windows(runs: list[Run], keys: int, left: int | None, right: int | None) -> masks.Mask:
    return run_by_run(ids(Q), runs, keys, left, right)


BIAS = torch.linspace(-1, 1, 49).view(7, 7)
PACKED = masks.documents(ids(K))
BLOCKS = reference.BlockDiagonalMask.from_seqlens(Q, K)
SELF_BLOCKS = reference.BlockDiagonalMask.from_seqlens(K)
IN_ROOMS = reference.BlockDiagonalPaddedKeysMask.from_seqlens(Q, ROOM, K)

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
    reference.BlockDiagonalMask: lambda: Case(BLOCKS, T, 11, documents(END_TO_END, 11)),
    reference.BlockDiagonalCausalMask: lambda: Case(SELF_BLOCKS.make_causal(), 11, 11, PACKED & masks.causal()),
    reference.BlockDiagonalCausalLocalAttentionMask: lambda: Case(
        SELF_BLOCKS.make_local_attention(3), 11, 11, PACKED & masks.window(3 - 1)
    ),
    reference.BlockDiagonalPaddedKeysMask: lambda: Case(IN_ROOMS, T, 18, documents(PADDED, 18)),
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

RUN_BY_RUN: dict[type, Callable[[], Case]] = {
    reference.BlockDiagonalCausalFromBottomRightMask: lambda: Case(
        BLOCKS.make_causal_from_bottomright(), T, 11, windows(END_TO_END, 11, None, 0)
    ),
    reference.BlockDiagonalCausalLocalAttentionFromBottomRightMask: lambda: Case(
        BLOCKS.make_local_attention_from_bottomright(3), T, 11, windows(END_TO_END, 11, 3 - 1, 0)
    ),
    reference.BlockDiagonalCausalWithOffsetPaddedKeysMask: lambda: Case(
        reference.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(Q, ROOM, K),
        T,
        18,
        windows(PADDED, 18, None, 0),
    ),
    reference.BlockDiagonalLocalAttentionPaddedKeysMask: lambda: Case(
        IN_ROOMS.make_local_attention(2, 1), T, 18, windows(PADDED, 18, 2, 1)
    ),
    reference.BlockDiagonalCausalLocalAttentionPaddedKeysMask: lambda: Case(
        reference.BlockDiagonalCausalLocalAttentionPaddedKeysMask.from_seqlens_local(Q, ROOM, K, 3),
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

NOT_A_MASK = {reference.AttentionBias: "the class the others are derived from; by itself it describes no mask"}

CASES = {**ONE_EXPRESSION, **RUN_BY_RUN}
EACH = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)


def test_every_class_of_xformers_is_accounted_for() -> None:
    assert len(CLASSES) == 21
    assert len(ONE_EXPRESSION) + len(RUN_BY_RUN) + len(NOT_A_MASK) == 21
    assert {*ONE_EXPRESSION, *RUN_BY_RUN, *NOT_A_MASK} == CLASSES


@EACH
def test_softlook_s_mask_hides_the_same_keys(kind: type) -> None:
    case = CASES[kind]()
    assert type(case.reference) is kind
    written = case.reference.materialize((case.queries, case.keys))
    seen = case.actual.to_dense((1, 1, case.queries, case.keys)).expand(1, 1, case.queries, case.keys)[0, 0]
    assert written.shape == seen.shape
    assert torch.equal(seen, ~written.isneginf())
    assert seen.any(-1).all()
    assert not seen.all()


@EACH
@pytest.mark.parametrize("path", get_args(Path))
def test_attention_with_softlook_s_mask_matches_xformers_materialized_mask(kind: type, path: Path) -> None:
    case = CASES[kind]()
    query, key, value = torch.randn(2, 3, case.queries, 8), *torch.randn(2, 2, 3, case.keys, 8)
    written = case.reference.materialize((case.queries, case.keys))
    expected = scaled_dot_product_attention(query, key, value, attn_mask=written)
    torch.testing.assert_close(attention(query, key, value, mask=case.actual, bias=case.bias, backend=path), expected)
