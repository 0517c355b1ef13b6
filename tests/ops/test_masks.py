"""Masks: each kind against its meaning in plain words, and the algebra that joins them."""

import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from softlook import MaskError, attention, masks
from softlook.base.moving import moved
from softlook.base.shapes import Tile
from softlook.ops.masks import Mask
from tests.asking import DEVICE, Made, some_masks

LENGTHS = [(4, 4), (2, 5), (5, 2), (1, 6), (3, 1)]
NODES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]])

MEANINGS: dict[str, tuple[Callable[[int, int], Mask], Callable[[int, int, int, int, int], bool]]] = {
    "causal": (lambda T, S: masks.causal(), lambda b, i, j, T, S: j <= i + S - T),
    "window": (lambda T, S: masks.window(1), lambda b, i, j, T, S: 0 <= i + S - T - j <= 1),
    "window of both": (lambda T, S: masks.window(1, 2), lambda b, i, j, T, S: -2 <= i + S - T - j <= 1),
    "window ahead": (lambda T, S: masks.window(None, 1), lambda b, i, j, T, S: j <= i + S - T + 1),
    "window back for ever": (lambda T, S: masks.window(0, None), lambda b, i, j, T, S: j >= i + S - T),
    "prefix": (lambda T, S: masks.prefix(2), lambda b, i, j, T, S: j < 2),
    "prefixes": (lambda T, S: masks.prefix([1, 3]), lambda b, i, j, T, S: j < (1, 3)[b]),
    "padding": (lambda T, S: masks.padding([1, 3]), lambda b, i, j, T, S: j < (1, 3)[b]),
    "left padding": (lambda T, S: masks.padding([1, 3], left_of=S), lambda b, i, j, T, S: j >= S - (1, 3)[b]),
    "documents": (
        lambda T, S: masks.documents(torch.arange(S) // 2, torch.arange(T) // 3),
        lambda b, i, j, T, S: i // 3 == j // 2,
    ),
    "dense": (lambda T, S: masks.dense(torch.ones(T, S).tril().bool()), lambda b, i, j, T, S: j <= i),
}


@pytest.mark.parametrize("name", MEANINGS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_a_mask_means_what_its_name_says(name: str, lengths: tuple[int, int]) -> None:
    (make, meaning), (T, S) = MEANINGS[name], lengths
    came = make(T, S).dense((2, 1, T, S), DEVICE).expand(2, 1, T, S)
    wanted = torch.tensor([[[[meaning(b, i, j, T, S) for j in range(S)] for i in range(T)]] for b in range(2)])
    assert came.device.type == DEVICE.type
    assert came.cpu().equal(wanted)


def test_queries_among_packed_documents_are_the_last_keys() -> None:
    seen = masks.documents(torch.tensor([[0, 0, 1], [0, 1, 1]])).dense((2, 1, 2, 3))
    assert seen[:, 0].int().tolist() == [[[1, 1, 0], [0, 0, 1]], [[0, 1, 1], [0, 1, 1]]]


@pytest.mark.parametrize("which", ["keys", "queries"])
def test_documents_of_one_row_serve_every_sequence_of_the_batch(which: str) -> None:
    keys, queries = torch.tensor([[0, 0, 1], [0, 1, 1]]), torch.tensor([[1, 0], [0, 0]])
    if which == "keys":
        keys = keys[:1]
    else:
        queries = queries[:1]
    wanted = queries.expand(2, 2)[:, None, :, None] == keys.expand(2, 3)[:, None, None, :]
    assert masks.documents(keys, queries).dense((2, 1, 2, 3)).expand(2, 1, 2, 3).equal(wanted)


@pytest.mark.parametrize("lengths", [(3, 3), (4, 3), (3, 5)], ids=str)
def test_a_graph_is_its_edges(lengths: tuple[int, int]) -> None:
    wanted = torch.zeros(lengths, dtype=torch.bool)
    wanted[NODES[0], NODES[1]] = True
    assert masks.graph(NODES).dense((1, 1, *lengths))[0, 0].equal(wanted)
    twice = torch.cat([NODES, NODES], 1)[:, torch.randperm(8)]
    assert masks.graph(twice).dense((1, 1, *lengths))[0, 0].equal(wanted)


def test_loops_let_every_node_with_an_edge_see_itself() -> None:
    seen = masks.graph(torch.tensor([[0], [2]]), loops=True).dense((1, 1, 4, 4))[0, 0]
    assert seen.nonzero().tolist() == [[0, 0], [0, 2], [2, 2]]


def drawn(data: st.DataObject) -> tuple[Mask, tuple[int, int, int, int]]:
    B, H, T, S = (data.draw(st.integers(1, most)) for most in (2, 2, 6, 6))
    made = Made(torch.Generator().manual_seed(data.draw(st.integers(0, 999))), torch.float32)
    return data.draw(some_masks((B, H, T, S), made)), (B, H, T, S)


def some_range(data: st.DataObject, length: int) -> range:
    start = data.draw(st.integers(0, length))
    return range(start, data.draw(st.integers(start, length)))


def part_of(whole: Tensor, tile: Tile, sizes: tuple[int, int, int, int]) -> Tensor:
    parts = (slice(r.start, r.stop) for r in (tile.batch, tile.heads, tile.rows, tile.columns))
    return whole.expand(sizes)[tuple(parts)]


@given(st.data())
def test_a_tile_of_a_mask_is_a_part_of_the_whole(data: st.DataObject) -> None:
    mask, (B, H, T, S) = drawn(data)
    b, h, t, s = (some_range(data, size) for size in (B, H, T, S))
    tile = Tile(b, h, t, s, T, S, DEVICE)
    wanted = part_of(mask.dense((B, H, T, S), DEVICE), tile, (B, H, T, S))
    assert moved(mask, DEVICE).on(tile).expand_as(wanted).equal(wanted)


@given(st.data())
def test_what_a_mask_promises_of_a_tile_is_true(data: st.DataObject) -> None:
    mask, (B, H, T, S) = drawn(data)
    rows = some_range(data, T) or range(T)
    tile = Tile(range(B), range(H), rows, range(S), T, S, DEVICE)
    seen = part_of(mask.dense((B, H, T, S), DEVICE), tile, (B, H, T, S))
    reach, clear = moved(mask, DEVICE).reach(tile), moved(mask, DEVICE).clear(tile)
    outside = [j for j in range(S) if j not in reach]
    assert not seen[..., outside].any(), "a key out of reach is seen"
    assert seen[..., [j for j in range(S) if j in clear]].all(), "a clear key is hidden from somebody"
    if mask.never_blind(T, S):
        assert mask.dense((B, H, T, S), DEVICE).expand(B, H, T, S).any(-1).all()


@given(st.data())
def test_and_or_and_not_mean_what_they_say(data: st.DataObject) -> None:
    one, sizes = drawn(data)
    other = masks.dense(Made(torch.Generator().manual_seed(1), torch.float32).coin(*sizes))
    a, b = (mask.dense(sizes, DEVICE).expand(sizes) for mask in (one, other))
    assert (one & other).dense(sizes, DEVICE).expand(sizes).equal(a & b)
    assert (one | other).dense(sizes, DEVICE).expand(sizes).equal(a | b)
    assert (~one).dense(sizes, DEVICE).expand(sizes).equal(~a)
    assert (one & other.dense(sizes, DEVICE)).dense(sizes, DEVICE).expand(sizes).equal(a & b)


def test_a_causal_mask_and_a_window_are_one_band() -> None:
    assert masks.causal() & masks.window(3, 5) == masks.window(3, 0)
    assert masks.window(7) & masks.window(3) == masks.window(3)


def test_the_reach_of_a_window_is_narrow() -> None:
    tile = Tile(range(1), range(1), range(10, 12), range(100), 100, 100, torch.device("cpu"))
    assert masks.window(3).reach(tile) == range(7, 12)
    assert masks.window(3).clear(tile) == range(8, 11)
    assert masks.causal().reach(tile) == range(12)
    assert masks.causal().clear(tile) == range(11)
    assert masks.prefix(5).reach(tile) == range(5)


def test_a_mask_says_what_it_is() -> None:
    mask = masks.causal() & masks.padding([1, 2]) | ~masks.prefix(3)
    assert str(mask) == "(causal() & padding(lengths) | ~(prefix(3)))"
    assert str(masks.window(2, None) & masks.graph(NODES)) == "window(2, None) & graph(4 edges)"


QUERY = torch.zeros(2, 4, 3, 8)
KEY = torch.zeros(2, 2, 5, 8)
BOOLS = lambda *shape: torch.ones(shape, dtype=torch.bool)  # noqa: E731

WRONG = {
    "float": (lambda: torch.ones(3, 5), "this one holds torch.float32 numbers.*bias=.*\\.bool\\(\\)"),
    "int": (lambda: torch.ones(3, 5, dtype=torch.long), "holds torch.int64 numbers"),
    "three axes": (lambda: BOOLS(2, 3, 5), r"\(2, 3, 5\) came.*mask\[:, None\] for one per sequence, mask\[None\]"),
    "one axis": (lambda: BOOLS(5), r"\(5,\) came"),
    "turned over": (lambda: BOOLS(5, 3), r"\(1 or 2, 1 or 4, 1 or 3, 5\); \(1, 1, 5, 3\) came"),
    "one column": (lambda: BOOLS(3, 1), r"\(1, 1, 3, 1\) came"),
    "key heads": (lambda: BOOLS(2, 2, 3, 5), r"\(2, 2, 3, 5\) came"),
    "batch": (lambda: BOOLS(3, 1, 3, 5), r"\(3, 1, 3, 5\) came"),
    "lengths": (lambda: masks.padding([1, 2, 3]), r"padding wants one length per sequence, \(2,\); \(3,\) came"),
    "prefixes": (lambda: masks.prefix([1]), r"prefix wants one length per sequence, \(2,\); \(1,\) came"),
    "left of": (lambda: masks.padding([1, 2], left_of=6), "for 6 keys, but 5 keys came"),
    "documents": (lambda: masks.documents(torch.zeros(2, 3).long()), r"5 keys.*\(2, 5\) or \(5,\).*\(2, 3\) came"),
    "nodes": (lambda: masks.graph(torch.tensor([[0], [5]])), r"joins nodes \(0, 5\).*3 queries and 5 keys"),
    "inside": (lambda: masks.causal() & ~masks.padding([1, 2, 3]), r"padding wants one length per sequence"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("no_shape_checks")
def test_a_mask_that_does_not_fit_says_why(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(MaskError, match=f"(?s){message}"):
        attention(QUERY, KEY, KEY, mask=make())


def test_an_explicit_one_is_stretched_and_nothing_else() -> None:
    for shape in ((1, 5), (1, 1, 1, 5), (2, 1, 1, 5), (1, 4, 1, 5), (2, 4, 3, 5)):
        assert attention(QUERY, KEY, KEY, mask=BOOLS(*shape)).shape == (2, 4, 3, 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: masks.window(-1), "window wants left >= 0, or None for without end; -1 came"),
        (lambda: masks.window(1, -2), "window wants right >= 0, or None for without end; -2 came"),
        (lambda: masks.padding(torch.tensor([1.5])), "padding wants whole numbers; torch.float32 came"),
        (lambda: masks.padding(torch.ones(1, 2).long()), "padding wants a tensor with 1 axes; (1, 2) came"),
        (lambda: masks.documents(torch.tensor([True])), "documents wants whole numbers; torch.bool came"),
        (lambda: masks.graph(torch.zeros(3, 2).long()), "graph wants edges shaped (2, number of edges); (3, 2) came"),
        (lambda: masks.graph(torch.tensor([[0], [-1]])), "graph wants node numbers from 0 up; -1 came"),
        (lambda: masks.dense(torch.ones(2, 2)), "a mask says True where a query may look"),
        (lambda: masks.documents(torch.zeros(2).long()).dense((1, 1, 3, 2)), "3 queries cannot be the last of 2 keys"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_a_mask_that_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MaskError, match=re.escape(message)):
        make()
