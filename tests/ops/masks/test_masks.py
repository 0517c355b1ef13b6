"""Masks: each kind compared with its definition, and the operators that combine them."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from softlook import MaskError, attention, masks
from softlook.base.shapes import Tile
from softlook.base.tensors import to_device
from softlook.ops.masks import Mask
from tests.ops_cases import DEVICE, TensorRNG, some_masks

LENGTHS = [(4, 4), (2, 5), (5, 2), (1, 6), (3, 1)]
NODES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]])

MEANINGS: dict[str, tuple[Callable[[int, int], Mask], Callable[[int, int, int, int, int], bool]]] = {
    "causal": (lambda T, S: masks.causal(), lambda b, i, j, T, S: j <= i + S - T),
    "window": (lambda T, S: masks.window(1), lambda b, i, j, T, S: 0 <= i + S - T - j <= 1),
    "window on both sides": (lambda T, S: masks.window(1, 2), lambda b, i, j, T, S: -2 <= i + S - T - j <= 1),
    "window ahead": (lambda T, S: masks.window(None, 1), lambda b, i, j, T, S: j <= i + S - T + 1),
    "unlimited window ahead": (lambda T, S: masks.window(0, None), lambda b, i, j, T, S: j >= i + S - T),
    "prefix": (lambda T, S: masks.prefix(2), lambda b, i, j, T, S: j < 2),
    "prefixes": (lambda T, S: masks.prefix([1, 3]), lambda b, i, j, T, S: j < (1, 3)[b]),
    "padding": (lambda T, S: masks.padding([1, 3]), lambda b, i, j, T, S: j < (1, 3)[b]),
    "left padding": (
        lambda T, S: masks.padding([1, 3], side="left", length=S),
        lambda b, i, j, T, S: j >= S - (1, 3)[b],
    ),
    "documents": (
        lambda T, S: masks.documents(torch.arange(S) // 2, torch.arange(T) // 3),
        lambda b, i, j, T, S: i // 3 == j // 2,
    ),
    "dense": (lambda T, S: masks.dense(torch.ones(T, S).tril().bool()), lambda b, i, j, T, S: j <= i),
}


@pytest.mark.parametrize("name", MEANINGS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_masks_match_their_definition(name: str, lengths: tuple[int, int]) -> None:
    (make, meaning), (T, S) = MEANINGS[name], lengths
    actual = make(T, S).to_dense((2, 1, T, S), DEVICE).expand(2, 1, T, S)
    expected = torch.tensor([[[[meaning(b, i, j, T, S) for j in range(S)] for i in range(T)]] for b in range(2)])
    assert actual.device.type == DEVICE.type
    assert actual.cpu().equal(expected)


def test_queries_among_packed_documents_are_the_last_keys() -> None:
    seen = masks.documents(torch.tensor([[0, 0, 1], [0, 1, 1]])).to_dense((2, 1, 2, 3))
    assert seen[:, 0].int().tolist() == [[[1, 1, 0], [0, 0, 1]], [[0, 1, 1], [0, 1, 1]]]


@pytest.mark.parametrize("which", ["keys", "queries"])
def test_documents_of_one_row_serve_every_sequence_of_the_batch(which: str) -> None:
    keys, queries = torch.tensor([[0, 0, 1], [0, 1, 1]]), torch.tensor([[1, 0], [0, 0]])
    if which == "keys":
        keys = keys[:1]
    else:
        queries = queries[:1]
    expected = queries.expand(2, 2)[:, None, :, None] == keys.expand(2, 3)[:, None, None, :]
    assert masks.documents(keys, queries).to_dense((2, 1, 2, 3)).expand(2, 1, 2, 3).equal(expected)


@pytest.mark.parametrize("lengths", [(3, 3), (4, 3), (3, 5)], ids=str)
def test_a_graph_is_its_edges(lengths: tuple[int, int]) -> None:
    expected = torch.zeros(lengths, dtype=torch.bool)
    expected[NODES[0], NODES[1]] = True
    assert masks.graph(NODES).to_dense((1, 1, *lengths))[0, 0].equal(expected)
    twice = torch.cat([NODES, NODES], 1)[:, torch.randperm(8)]
    assert masks.graph(twice).to_dense((1, 1, *lengths))[0, 0].equal(expected)


def test_loops_let_every_node_with_an_edge_see_itself() -> None:
    seen = masks.graph(torch.tensor([[0], [2]]), loops=True).to_dense((1, 1, 4, 4))[0, 0]
    assert seen.nonzero().tolist() == [[0, 0], [0, 2], [2, 2]]


def draw_mask(data: st.DataObject) -> tuple[Mask, tuple[int, int, int, int]]:
    B, H, T, S = (data.draw(st.integers(1, limit)) for limit in (2, 2, 6, 6))
    rng = TensorRNG(torch.Generator().manual_seed(data.draw(st.integers(0, 999))), torch.float32)
    return data.draw(some_masks((B, H, T, S), rng)), (B, H, T, S)


def draw_range(data: st.DataObject, length: int) -> range:
    start = data.draw(st.integers(0, length))
    return range(start, data.draw(st.integers(start, length)))


def slice_of(whole: Tensor, tile: Tile, sizes: tuple[int, int, int, int]) -> Tensor:
    slices = (slice(r.start, r.stop) for r in (tile.batch, tile.heads, tile.rows, tile.columns))
    return whole.expand(sizes)[tuple(slices)]


@given(st.data())
def test_a_tile_is_a_slice_of_the_dense_mask(data: st.DataObject) -> None:
    mask, (B, H, T, S) = draw_mask(data)
    b, h, t, s = (draw_range(data, size) for size in (B, H, T, S))
    tile = Tile(b, h, t, s, T, S, DEVICE)
    expected = slice_of(mask.to_dense((B, H, T, S), DEVICE), tile, (B, H, T, S))
    assert to_device(mask, DEVICE).tile(tile).expand_as(expected).equal(expected)


@given(st.data())
def test_visible_and_full_ranges_match_the_dense_mask(data: st.DataObject) -> None:
    mask, (B, H, T, S) = draw_mask(data)
    rows = draw_range(data, T) or range(T)
    tile = Tile(range(B), range(H), rows, range(S), T, S, DEVICE)
    seen = slice_of(mask.to_dense((B, H, T, S), DEVICE), tile, (B, H, T, S))
    visible, full = to_device(mask, DEVICE).visible_range(tile), to_device(mask, DEVICE).full_range(tile)
    outside = [j for j in range(S) if j not in visible]
    assert not seen[..., outside].any(), "a key outside the visible range is visible"
    assert seen[..., [j for j in range(S) if j in full]].all(), "a key of the full range is masked for some query"
    if mask.every_row_visible(T, S):
        assert mask.to_dense((B, H, T, S), DEVICE).expand(B, H, T, S).any(-1).all()


@given(st.data())
def test_and_or_not_match_those_of_dense_masks(data: st.DataObject) -> None:
    one, sizes = draw_mask(data)
    other = masks.dense(TensorRNG(torch.Generator().manual_seed(1), torch.float32).booleans(*sizes))
    a, b = (mask.to_dense(sizes, DEVICE).expand(sizes) for mask in (one, other))
    assert (one & other).to_dense(sizes, DEVICE).expand(sizes).equal(a & b)
    assert (one | other).to_dense(sizes, DEVICE).expand(sizes).equal(a | b)
    assert (~one).to_dense(sizes, DEVICE).expand(sizes).equal(~a)
    assert (one & other.to_dense(sizes, DEVICE)).to_dense(sizes, DEVICE).expand(sizes).equal(a & b)


def test_causal_and_window_combine_to_one_window() -> None:
    assert masks.causal() & masks.window(3, 5) == masks.window(3, 0)
    assert masks.window(7) & masks.window(3) == masks.window(3)


def test_the_visible_range_of_a_window_is_narrow() -> None:
    tile = Tile(range(1), range(1), range(10, 12), range(100), 100, 100, torch.device("cpu"))
    assert masks.window(3).visible_range(tile) == range(7, 12)
    assert masks.window(3).full_range(tile) == range(8, 11)
    assert masks.causal().visible_range(tile) == range(12)
    assert masks.causal().full_range(tile) == range(11)
    assert masks.prefix(5).visible_range(tile) == range(5)


def test_str_of_masks() -> None:
    mask = masks.causal() & masks.padding([1, 2]) | ~masks.prefix(3)
    assert str(mask) == "(causal() & padding(lengths) | ~(prefix(3)))"
    assert str(masks.window(2, None) & masks.graph(NODES)) == "window(2, None) & graph(4 edges)"


QUERY = torch.zeros(2, 4, 3, 8)
KEY = torch.zeros(2, 2, 5, 8)
BOOLS = lambda *shape: torch.ones(shape, dtype=torch.bool)  # noqa: E731

INVALID = {
    "float": (lambda: torch.ones(3, 5), "got torch.float32.*bias=.*\\.bool\\(\\)"),
    "int": (lambda: torch.ones(3, 5, dtype=torch.long), "got torch.int64"),
    "three dimensions": (
        lambda: BOOLS(2, 3, 5),
        r"got \(2, 3, 5\).*mask\[:, None\] for one per sequence",
    ),
    "one dimension": (lambda: BOOLS(5), r"got \(5,\)"),
    "transposed": (lambda: BOOLS(5, 3), r"\(1 or 2, 1 or 4, 1 or 3, 5\), got \(1, 1, 5, 3\)"),
    "one column": (lambda: BOOLS(3, 1), r"got \(1, 1, 3, 1\)"),
    "key heads": (lambda: BOOLS(2, 2, 3, 5), r"got \(2, 2, 3, 5\)"),
    "batch": (lambda: BOOLS(3, 1, 3, 5), r"got \(3, 1, 3, 5\)"),
    "lengths": (lambda: masks.padding([1, 2, 3]), r"padding expects one length per sequence, \(2,\), got \(3,\)"),
    "prefixes": (lambda: masks.prefix([1]), r"prefix expects one length per sequence, \(2,\), got \(1,\)"),
    "left padding": (lambda: masks.padding([1, 2], side="left", length=6), "for 6 keys, got 5 keys"),
    "documents": (lambda: masks.documents(torch.zeros(2, 3).long()), r"5 keys.*\(2, 5\) or \(5,\).*got \(2, 3\)"),
    "nodes": (
        lambda: masks.graph(torch.tensor([[0], [5]])),
        r"nodes of this graph are \(0, 5\).*3 queries and 5 keys",
    ),
    "inside": (lambda: masks.causal() & ~masks.padding([1, 2, 3]), r"padding expects one length per sequence"),
}


@pytest.mark.parametrize("name", INVALID)
@pytest.mark.usefixtures("no_shape_checks")
def test_a_mask_of_another_size_raises_an_error(name: str) -> None:
    make, message = INVALID[name]
    with pytest.raises(MaskError, match=f"(?s){message}"):
        attention(QUERY, KEY, KEY, mask=make())


def test_only_dimensions_of_size_one_broadcast() -> None:
    for shape in ((1, 5), (1, 1, 1, 5), (2, 1, 1, 5), (1, 4, 1, 5), (2, 4, 3, 5)):
        assert attention(QUERY, KEY, KEY, mask=BOOLS(*shape)).shape == (2, 4, 3, 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: masks.window(-1), "window expects left >= 0 or None, got -1"),
        (lambda: masks.window(1, -2), "window expects right >= 0 or None, got -2"),
        (lambda: masks.padding(torch.tensor([1.5])), "padding expects integers, got torch.float32"),
        (lambda: masks.padding(torch.ones(1, 2).long()), "padding expects 1 dimensions, got shape (1, 2)"),
        (lambda: masks.documents(torch.tensor([True])), "documents expects integers, got torch.bool"),
        (lambda: masks.graph(torch.zeros(3, 2).long()), "graph expects edges shaped (2, number of edges), got (3, 2)"),
        (lambda: masks.graph(torch.tensor([[0], [-1]])), "graph expects node indices >= 0, got -1"),
        (lambda: masks.dense(torch.ones(2, 2)), "a mask expects a boolean tensor"),
        (
            lambda: masks.documents(torch.zeros(2).long()).to_dense((1, 1, 3, 2)),
            "3 queries cannot be the last of 2 keys",
        ),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_invalid_masks_raise_an_error(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MaskError, match=re.escape(message)):
        make()


FUNCTIONS: dict[str, tuple[Any, masks.Mask]] = {
    "causal": (lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, masks.causal()),
    "window": (lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() <= 2, masks.window(2, 2)),
    "prefix": (lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) | (kv_idx < 3), masks.causal() | masks.prefix(3)),
    "padding": (lambda b, h, q_idx, kv_idx: kv_idx < torch.tensor([2, 4], device=DEVICE)[b], masks.padding([2, 4])),
    "everything": (lambda b, h, q_idx, kv_idx: kv_idx >= 0, masks.window(None, None)),
}


@pytest.mark.parametrize("backend", ["auto", "reference", "sdpa", "tiled"])
@pytest.mark.parametrize("queries", [1, 3, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_mask_equals_the_mask_it_describes(name: str, queries: int, backend: Any) -> None:
    function, mask = FUNCTIONS[name]
    query, key = torch.randn(2, 4, queries, 8, device=DEVICE), torch.randn(2, 2, 5, 8, device=DEVICE)
    actual = attention(query, key, key, mask=masks.from_function(function), backend=backend)
    torch.testing.assert_close(actual, attention(query, key, key, mask=mask, backend="reference"))


@pytest.mark.usefixtures("no_shape_checks")
def test_a_function_mask_combines_with_others_and_must_return_booleans() -> None:
    causal = masks.from_function(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)
    combined = (causal & masks.padding([2, 4])).to_dense((2, 1, 5, 5)).expand(2, 1, 5, 5)
    assert combined.equal((masks.causal() & masks.padding([2, 4])).to_dense((2, 1, 5, 5)).expand(2, 1, 5, 5))
    with pytest.raises(MaskError, match="must return a boolean tensor, got torch.int64"):
        masks.from_function(lambda b, h, q_idx, kv_idx: q_idx - kv_idx).to_dense((1, 1, 2, 2))
    wrong: Any = 3
    with pytest.raises(TypeError, match="from_function expects a function"):
        masks.from_function(wrong)


@pytest.mark.parametrize(("side", "length"), [("left", None), ("right", 5)])
def test_padding_needs_a_length_on_the_left_only(side: Any, length: int | None) -> None:
    with pytest.raises(MaskError, match='expects length with side="left" and only there'):
        masks.padding([1], side=side, length=length)
