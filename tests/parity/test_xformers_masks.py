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
from xformers.ops.fmha import attn_bias as theirs

from softlook import attention, masks

CLASSES = {c for c in vars(theirs).values() if inspect.isclass(c) and issubclass(c, theirs.AttentionBias)}

Path = Literal["auto", "reference", "blocks", "sdpa"]
NOBODY = -1
"""The document of keys that are not in use."""


class Case(NamedTuple):
    """The same mask twice: theirs, and ours for as many queries and keys."""

    theirs: theirs.AttentionBias
    queries: int
    keys: int
    ours: masks.Mask
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
    """Keys from `least` to `most` positions behind the query, both of either sign; None is without end."""
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


def paged(kind: type) -> theirs.AttentionBias:
    return kind.from_seqlens(Q, K, PAGES, PAGE)  # pyright: ignore[reportAttributeAccessIssue]


def paged_gappy(kind: type) -> theirs.AttentionBias:
    """By way of the mask without pages: the class's own from_seqlens wants two lengths of one list."""
    in_rooms = [start + number * ROOM for number, start in enumerate(PAGED_STARTS)]
    without = theirs.BlockDiagonalGappyKeysMask.from_seqlens(Q, [*in_rooms, 3 * ROOM], PAGED_K)
    return without.make_paged(PAGES, PAGE, ROOM, kind)


def documents(runs: list[Run], keys: int) -> masks.Mask:
    return masks.documents(key_ids(runs, keys), ids(Q))


def windows(runs: list[Run], keys: int, left: int | None, right: int | None) -> masks.Mask:
    return run_by_run(ids(Q), runs, keys, left, right)


BIAS = torch.linspace(-1, 1, 49).view(7, 7)
PACKED = masks.documents(ids(K))
BLOCKS = theirs.BlockDiagonalMask.from_seqlens(Q, K)
SELF_BLOCKS = theirs.BlockDiagonalMask.from_seqlens(K)
IN_ROOMS = theirs.BlockDiagonalPaddedKeysMask.from_seqlens(Q, ROOM, K)

ONE_EXPRESSION: dict[type, Callable[[], Case]] = {
    theirs.LowerTriangularMask: lambda: Case(theirs.LowerTriangularMask(), 7, 7, masks.causal()),
    theirs.LowerTriangularMaskWithTensorBias: lambda: Case(
        theirs.LowerTriangularMask().add_bias(BIAS), 7, 7, masks.causal(), BIAS
    ),
    theirs.LowerTriangularFromBottomRightMask: lambda: Case(
        theirs.LowerTriangularFromBottomRightMask(), 4, 9, masks.causal()
    ),
    theirs.LowerTriangularFromBottomRightLocalAttentionMask: lambda: Case(
        theirs.LowerTriangularFromBottomRightMask().make_local_attention(3), 4, 9, masks.window(3 - 1)
    ),
    theirs.LocalAttentionFromBottomRightMask: lambda: Case(
        theirs.LocalAttentionFromBottomRightMask(2, 1), 5, 8, masks.window(2, 1)
    ),
    theirs.BlockDiagonalMask: lambda: Case(BLOCKS, T, 11, documents(END_TO_END, 11)),
    theirs.BlockDiagonalCausalMask: lambda: Case(SELF_BLOCKS.make_causal(), 11, 11, PACKED & masks.causal()),
    theirs.BlockDiagonalCausalLocalAttentionMask: lambda: Case(
        SELF_BLOCKS.make_local_attention(3), 11, 11, PACKED & masks.window(3 - 1)
    ),
    theirs.BlockDiagonalPaddedKeysMask: lambda: Case(IN_ROOMS, T, 18, documents(PADDED, 18)),
    theirs.BlockDiagonalGappyKeysMask: lambda: Case(
        theirs.BlockDiagonalGappyKeysMask.from_seqlens(Q, [*STARTS, 20], K), T, 20, documents(GAPPY, 20)
    ),
    theirs.PagedBlockDiagonalPaddedKeysMask: lambda: Case(
        paged(theirs.PagedBlockDiagonalPaddedKeysMask), T, 18, documents(PAGED, 18)
    ),
    theirs.PagedBlockDiagonalGappyKeysMask: lambda: Case(
        paged_gappy(theirs.PagedBlockDiagonalGappyKeysMask), T, 18, documents(PAGED_GAPPY, 18)
    ),
}

RUN_BY_RUN: dict[type, Callable[[], Case]] = {
    theirs.BlockDiagonalCausalFromBottomRightMask: lambda: Case(
        BLOCKS.make_causal_from_bottomright(), T, 11, windows(END_TO_END, 11, None, 0)
    ),
    theirs.BlockDiagonalCausalLocalAttentionFromBottomRightMask: lambda: Case(
        BLOCKS.make_local_attention_from_bottomright(3), T, 11, windows(END_TO_END, 11, 3 - 1, 0)
    ),
    theirs.BlockDiagonalCausalWithOffsetPaddedKeysMask: lambda: Case(
        theirs.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(Q, ROOM, K), T, 18, windows(PADDED, 18, None, 0)
    ),
    theirs.BlockDiagonalLocalAttentionPaddedKeysMask: lambda: Case(
        IN_ROOMS.make_local_attention(2, 1), T, 18, windows(PADDED, 18, 2, 1)
    ),
    theirs.BlockDiagonalCausalLocalAttentionPaddedKeysMask: lambda: Case(
        theirs.BlockDiagonalCausalLocalAttentionPaddedKeysMask.from_seqlens_local(Q, ROOM, K, 3),
        T,
        18,
        windows(PADDED, 18, 3 - 1, 0),
    ),
    theirs.BlockDiagonalCausalWithOffsetGappyKeysMask: lambda: Case(
        theirs.BlockDiagonalCausalWithOffsetGappyKeysMask.from_seqlens(Q, [*STARTS, 20], K),
        T,
        20,
        windows(GAPPY, 20, None, 0),
    ),
    theirs.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask: lambda: Case(
        paged(theirs.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask), T, 18, windows(PAGED, 18, None, 0)
    ),
    theirs.PagedBlockDiagonalCausalWithOffsetGappyKeysMask: lambda: Case(
        paged_gappy(theirs.PagedBlockDiagonalCausalWithOffsetGappyKeysMask), T, 18, windows(PAGED_GAPPY, 18, None, 0)
    ),
}

NOT_A_MASK = {theirs.AttentionBias: "the class the others are derived from; by itself it describes no mask"}

CASES = {**ONE_EXPRESSION, **RUN_BY_RUN}
EACH = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)


def test_every_class_of_xformers_is_accounted_for() -> None:
    assert len(CLASSES) == 21
    assert len(ONE_EXPRESSION) + len(RUN_BY_RUN) + len(NOT_A_MASK) == 21
    assert {*ONE_EXPRESSION, *RUN_BY_RUN, *NOT_A_MASK} == CLASSES


@EACH
def test_softlook_s_mask_shows_and_hides_the_same_keys(kind: type) -> None:
    case = CASES[kind]()
    assert type(case.theirs) is kind
    written = case.theirs.materialize((case.queries, case.keys))
    seen = case.ours.dense((1, 1, case.queries, case.keys)).expand(1, 1, case.queries, case.keys)[0, 0]
    assert written.shape == seen.shape
    assert torch.equal(seen, ~written.isneginf())
    assert seen.any(-1).all()
    assert not seen.all()


@EACH
@pytest.mark.parametrize("path", get_args(Path))
def test_attention_under_softlook_s_mask_is_attention_under_theirs_written_out(kind: type, path: Path) -> None:
    case = CASES[kind]()
    query, key, value = torch.randn(2, 3, case.queries, 8), *torch.randn(2, 2, 3, case.keys, 8)
    written = case.theirs.materialize((case.queries, case.keys))
    wanted = scaled_dot_product_attention(query, key, value, attn_mask=written)
    torch.testing.assert_close(attention(query, key, value, mask=case.ours, bias=case.bias, backend=path), wanted)
