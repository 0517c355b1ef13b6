"""Places and graphs of beam searches are used again and again, and one search never hears of another."""

import gc
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ShapeError
from softlook.decode import Continuing, Translating, beam
from softlook.decode.captured import beams as captured_beams
from softlook.decode.captured.board import LARGER, Size, about
from softlook.decode.captured.graphs import Graph
from softlook.decode.captured.parts import Kept, Plain
from softlook.decode.captured.plan import Looking, Norm, Sum
from softlook.decode.captured.shelf import shelf_of
from softlook.decode.captured.speaker import parts_for, why_not_planned
from softlook.decode.captured.ways import Aims, Ways
from softlook.decode.penalties import power
from softlook.decode.search import Wanted
from tests.models.tiny import TINY, VOCAB

BEAM, SHELF = sys.modules["softlook.decode.beam"], sys.modules["softlook.decode.captured.shelf"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
NAMES = ["Transformer", "GPT"]


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine on which all searches are captured, graph or not, and whoever is over leaves early."""
    monkeypatch.setattr(BEAM, "why_not", lambda speaker: why_not_planned(speaker))
    monkeypatch.setattr(BEAM, "WORTH", 1)
    monkeypatch.setattr(captured_beams, "FEWEST", 0)
    monkeypatch.setattr(captured_beams, "SOON", 0)
    monkeypatch.setattr(captured_beams, "LOOK", 1)
    yield monkeypatch


def searched(model: Any, rows: int, seed: int, **how: Any) -> list[Any]:
    """So many searches of the same kind, about other things with every seed."""
    dice = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    if type(model).__name__ == "GPT":
        speaker, words = Continuing(model), torch.randint(1, VOCAB, (rows, 2 + seed % 2), generator=dice)
    else:
        lengths = torch.randint(1, 7, (rows,), generator=dice)
        source = torch.randint(1, VOCAB, (rows, int(lengths.max())), generator=dice)
        present = torch.arange(source.shape[1]) < lengths[:, None]
        speaker, words = Translating(model, source.to(device), present.to(device)), torch.full((rows, 1), 1)
    return beam(speaker, words.to(device), **{"end": (0, 3), "longest": 10, "beams": 3, **how})


def same(found: list[Any], wanted: list[Any]) -> None:
    for several, others in zip(found, wanted, strict=True):
        assert [(one.ids, one.end) for one in several] == [(one.ids, one.end) for one in others]
        assert [one.score for one in several] == pytest.approx([one.score for one in others], abs=1e-4)
        for one, other in zip(several, others, strict=True):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_one_search_after_the_other_finds_what_each_finds_alone(
    name: str, device: str, captures: pytest.MonkeyPatch
) -> None:
    model = TINY[name].build().to(device)
    asked: list[dict[str, Any]] = [
        {"rows": 7, "seed": 1},
        {"rows": 4, "seed": 2, "penalty": 0.0},
        {"rows": 7, "seed": 3, "shortest": 3, "longest": 9},
        {"rows": 5, "seed": 5, "end": (5, 1)},
        {"rows": 7, "seed": 1},
    ]
    found = [searched(model, **one) for one in asked]
    assert len(shelf_of(model).boards) == 1
    captures.setattr(BEAM, "why_not", lambda speaker: "not now")
    for one, several in zip(asked, found, strict=True):
        same(several, searched(model, **one))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "end"), [("Transformer", (0, 3)), ("GPT", (8,))], ids=NAMES)
def test_whoever_is_over_leaves_with_what_it_found(
    name: str, end: tuple[int, ...], device: str, captures: pytest.MonkeyPatch
) -> None:
    model = TINY[name].build().to(device)
    how: dict[str, Any] = {"end": end, "longest": 14, "penalty": 0.5, "beams": 2}
    found = searched(model, 40, 4, **how)
    assert len(shelf_of(model).boards[0].graphs) > 1, "nobody left"
    captures.setattr(BEAM, "why_not", lambda speaker: "not now")
    same(found, searched(model, 40, 4, **how))


def test_a_search_for_which_a_model_has_no_room_is_not_captured(captures: pytest.MonkeyPatch) -> None:
    model = TINY["GPT"].build()
    with pytest.raises(ShapeError, match="16"):
        searched(model, 2, 1, longest=model.config.context + 1, shortest=model.config.context)
    assert not shelf_of(model).boards


def test_a_search_of_known_size_makes_no_new_places(captures: pytest.MonkeyPatch) -> None:
    model = TINY["Transformer"].build()
    searched(model, 8, 1)
    board = shelf_of(model).boards[0]
    made = dict(board.graphs)
    searched(model, 7, 2)
    assert shelf_of(model).boards == [board]
    assert all(board.graphs[size] is graph for size, graph in made.items())


@pytest.mark.cuda
def test_what_was_recorded_once_is_not_recorded_again(captures: pytest.MonkeyPatch) -> None:
    model, recorded, record = TINY["Transformer"].build().cuda(), list[Graph](), Graph._record
    captures.setattr(Graph, "_record", lambda graph: (recorded.append(graph), record(graph))[1])
    for _ in range(3):
        searched(model, 8, 1, longest=12)
    assert 0 < len(recorded) == len(shelf_of(model).boards[0].graphs)


def test_places_that_are_kept_keep_no_model(captures: pytest.MonkeyPatch) -> None:
    model = TINY["Transformer"].build()
    searched(model, 3, 1)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_search_that_is_sure_never_to_learn_leaves_places_for_those_who_are_not(
    captures: pytest.MonkeyPatch,
) -> None:
    model = TINY["Transformer"].build()
    with torch.inference_mode():
        found = searched(model, 3, 1)
    same(found, searched(model, 3, 1))


def test_boards_that_were_not_used_for_long_make_room(captures: pytest.MonkeyPatch) -> None:
    model = TINY["Transformer"].build()
    searched(model, 4, 1)
    captures.setattr(SHELF, "LARGEST", 3 * shelf_of(model).boards[0].bytes)
    searched(model, 4, 1, beams=2)
    searched(model, 4, 1, beams=1)
    ways = [board.size.ways for board in shelf_of(model).boards]
    assert ways == [3, 2, 1]
    searched(model, 4, 1, beams=4)
    assert [board.size.ways for board in shelf_of(model).boards][-1] == 4
    assert sum(board.bytes for board in shelf_of(model).boards) <= SHELF.LARGEST


@given(st.integers(1, 5000))
def test_numbers_of_rows_are_few_and_little_is_wasted(count: int) -> None:
    assert count <= about(count) <= max(count, count * 5 // 4 + 1)
    assert about(about(count)) == about(count)


@given(st.integers(1, 300), st.integers(1, 6), st.integers(1, 90), st.one_of(st.none(), st.integers(1, 90)))
def test_a_board_fits_what_it_was_made_for_and_nothing_larger(
    sequences: int, ways: int, columns: int, source: int | None
) -> None:
    size = Size(sequences, ways, columns, source, 1).even
    assert size.fits(size)
    assert size.even == size
    for larger in (replace(size, sequences=size.sequences + 1), replace(size, columns=size.columns + 1)):
        assert not size.fits(larger)
        assert larger.fits(size) == (larger.cells <= LARGER * size.cells)
    assert not size.fits(replace(size, ends=2)) and not size.fits(replace(size, ways=ways + 1))


def wanted_of(beams: int, ends: tuple[int, ...], longest: int, shortest: int) -> Wanted:
    return Wanted(
        ends=ends, longest=longest, shortest=shortest, beams=beams, groups=1, diversity=0.0, penalty=power(1.0),
        coverage=0.0,
    )  # fmt: skip


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("vocab", [7, 300, 5000, 32000], ids=lambda vocab: f"{vocab} words")
def test_the_best_words_are_those_of_a_full_search(vocab: int, kind: torch.dtype) -> None:
    scores = (torch.randn(70, vocab) * 3).to("cuda", kind)
    chances, words = parts_for(scores.device).best_words(scores, 9)
    wanted, _ = Plain().best_words(scores, 9)
    torch.testing.assert_close(chances, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(chances, scores.float().log_softmax(-1).gather(1, words), atol=1e-4, rtol=1e-4)
    assert all(len(set(row)) == len(row) for row in words.tolist())


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("beams", "ends", "vocab", "shortest"),
    [(4, (0,), 40, 0), (1, (0,), 40, 0), (4, (0, 7), 40, 2), (5, (3,), 4, 0), (3, (1,), 2, 0), (8, (0,), 40, 9)],
    ids=["four", "one", "two ends", "few words", "two words", "at least"],
)
def test_a_kernel_goes_on_as_plain_operations_do(beams: int, ends: tuple[int, ...], vocab: int, shortest: int) -> None:
    N, K, L, device = 6, beams, 9, torch.device("cuda")
    wanted, made = wanted_of(beams, ends, L, shortest), []
    every = [torch.randn(N if not t else N * K, vocab, device=device) * 2 for t in range(L)]
    for parts in (parts_for(device), Plain()):
        aims, ways = Aims.room(16, len(ends), device), Ways.room(N, K, 16, device)
        aims.aim(wanted)
        ways.begin(N - 1)
        ids, step = torch.zeros(N * K, dtype=torch.long, device=device), torch.ones(1, dtype=torch.long, device=device)
        paths = torch.arange(N * K, dtype=torch.int32, device=device)[:, None].repeat(1, 70)
        seen = []
        for t, scores in enumerate(every):
            found = Plain().best_words(scores, wanted.width + len(ends))
            totals = ways.totals if t else torch.zeros(N, 1, device=device)
            parts.go_on(found, totals, ways, aims, ids=ids, paths=paths if t else None, length=step)
            paths[:, t] = torch.arange(N * K, dtype=torch.int32, device=device)
            step.add_(1)
            alive = ways.totals > -torch.inf
            lives = alive.flatten()
            seen += [ways.totals.clone(), ways.over.clone(), ways.found.clone(), ids[lives], paths[lives]]
        whole = ways.found[[0, 2, 4]] > -torch.inf
        made.append(
            [*seen, *(part[whole] for part in parts.backwards(ways, torch.tensor([0, 2, 4], device=device), L))]
        )
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "source", "ways"),
    [(8, 8, 64, 40, 4), (4, 2, 8, 70, 4), (2, 2, 8, 3, 5), (8, 8, 64, 130, 16)],
    ids=["as ever", "grouped", "narrow", "long"],
)
def test_ways_that_look_together_see_what_each_sees(
    heads: int, kv_heads: int, width: int, source: int, ways: int, kind: torch.dtype
) -> None:
    nothing = Sum(torch.zeros(1), None)
    look = Looking(nothing, nothing, heads, kv_heads, width, width**-0.5)
    other = [torch.randn(5, kv_heads, source + 8, width, device="cuda", dtype=kind)[:3] for _ in range(2)]
    query, lengths = (
        torch.randn(3 * ways, heads * width, device="cuda", dtype=kind),
        torch.tensor([source, 1, 2]).cuda(),
    )
    kept = Kept(other[0], other[1], (other[0], other[1]))
    made, wanted = (parts.look_across(query, look, kept, lengths) for parts in (parts_for(query.device), Plain()))
    off = 1e-4 if kind == torch.float32 else 0.02
    torch.testing.assert_close(made, wanted, atol=off, rtol=off)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_sum_is_normed_as_by_plain_operations(kind: torch.dtype) -> None:
    told: dict[str, Any] = {"device": "cuda", "dtype": kind}
    x, residual = torch.randn(300, 64, **told), torch.randn(300, 48, **told)
    layer, norm = Sum(torch.randn(48, 64, **told), torch.randn(48, **told)), Norm(*torch.randn(2, 48, **told), eps=1e-5)
    made, wanted = (parts.sum_norm(x, layer, norm, residual) for parts in (parts_for(x.device), Plain()))
    off = 1e-4 if kind == torch.float32 else 0.05
    torch.testing.assert_close(made, wanted, atol=off, rtol=off)
