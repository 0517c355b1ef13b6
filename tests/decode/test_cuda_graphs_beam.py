"""Workspaces and graphs of beam searches are reused without affecting results."""

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
from softlook.decode import CausalLMSession, Seq2SeqSession, beam_search
from softlook.decode.beam.hypotheses import BeamSearchParams
from softlook.decode.cuda_graphs import beam_search as captured_beams
from softlook.decode.cuda_graphs.beam_workspace import MAX_OVERSIZE, WorkspaceSize, round_up_count
from softlook.decode.cuda_graphs.session import graph_cache_for, model_unsupported_reason, ops_for
from softlook.decode.cuda_graphs.step import GraphedCallable
from softlook.decode.cuda_graphs.torch_ops import BeamState, SearchLimits, StaticKV, TorchOps
from softlook.decode.cuda_graphs.weights import AttentionWeights, LinearWeights, NormWeights
from tests.models.tiny import TINY, VOCAB

BEAM, CACHE = sys.modules["softlook.decode.beam.search"], sys.modules["softlook.decode.cuda_graphs.session"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
NAMES = ["Transformer", "GPT"]


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Use the graph implementation for every search, and shrink the batch as soon as a sequence is done."""
    monkeypatch.setattr(BEAM, "graph_unsupported_reason", lambda session: model_unsupported_reason(session))
    monkeypatch.setattr(BEAM, "MIN_TOKENS_TO_CAPTURE", 1)
    monkeypatch.setattr(captured_beams, "MIN_ROWS_TO_SHRINK", 0)
    monkeypatch.setattr(captured_beams, "MIN_STEPS_TO_CAPTURE", 0)
    monkeypatch.setattr(captured_beams, "CHECK_EVERY", 1)
    yield monkeypatch


def run_search(model: Any, rows: int, seed: int, **params: Any) -> list[Any]:
    """Beam searches of one kind, with prompts or sources that depend on the seed."""
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    if type(model).__name__ == "GPT":
        session, ids = CausalLMSession(model), torch.randint(1, VOCAB, (rows, 2 + seed % 2), generator=generator)
    else:
        lengths = torch.randint(1, 7, (rows,), generator=generator)
        source = torch.randint(1, VOCAB, (rows, int(lengths.max())), generator=generator)
        source_mask = torch.arange(source.shape[1]) < lengths[:, None]
        session, ids = Seq2SeqSession(model, source.to(device), source_mask.to(device)), torch.full((rows, 1), 1)
    return beam_search(session, ids.to(device), **{"eos_ids": (0, 3), "max_new_tokens": 10, "num_beams": 3, **params})


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for several, others in zip(found, expected, strict=True):
        assert [(one.ids, one.eos_id) for one in several] == [(one.ids, one.eos_id) for one in others]
        assert [one.score for one in several] == pytest.approx([one.score for one in others], abs=1e-4)
        for one, other in zip(several, others, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_reused_workspaces_do_not_affect_results(name: str, device: str, captures: pytest.MonkeyPatch) -> None:
    model = TINY[name].build().to(device)
    searches: list[dict[str, Any]] = [
        {"rows": 7, "seed": 1},
        {"rows": 4, "seed": 2, "length_penalty": 0.0},
        {"rows": 7, "seed": 3, "min_new_tokens": 3, "max_new_tokens": 9},
        {"rows": 5, "seed": 5, "eos_ids": (5, 1)},
        {"rows": 7, "seed": 1},
    ]
    found = [run_search(model, **one) for one in searches]
    assert len(graph_cache_for(model).workspaces) == 1
    captures.setattr(BEAM, "graph_unsupported_reason", lambda session: "disabled")
    for one, several in zip(searches, found, strict=True):
        assert_same(several, run_search(model, **one))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "eos_ids"), [("Transformer", (0, 3)), ("GPT", (8,))], ids=NAMES)
def test_shrinking_the_batch_keeps_results(
    name: str, eos_ids: tuple[int, ...], device: str, captures: pytest.MonkeyPatch
) -> None:
    model = TINY[name].build().to(device)
    params: dict[str, Any] = {"eos_ids": eos_ids, "max_new_tokens": 14, "length_penalty": 0.5, "num_beams": 2}
    found = run_search(model, 40, 4, **params)
    assert len(graph_cache_for(model).workspaces[0].graphs) > 1, "the batch did not shrink"
    captures.setattr(BEAM, "graph_unsupported_reason", lambda session: "disabled")
    assert_same(found, run_search(model, 40, 4, **params))


def test_search_beyond_the_context_is_not_captured(captures: pytest.MonkeyPatch) -> None:
    model = TINY["GPT"].build()
    with pytest.raises(ShapeError, match="16"):
        run_search(model, 2, 1, max_new_tokens=model.config.context + 1, min_new_tokens=model.config.context)
    assert not graph_cache_for(model).workspaces


def test_search_of_the_same_size_reuses_the_workspace(captures: pytest.MonkeyPatch) -> None:
    model = TINY["Transformer"].build()
    run_search(model, 8, 1)
    workspace = graph_cache_for(model).workspaces[0]
    made = dict(workspace.graphs)
    run_search(model, 7, 2)
    assert graph_cache_for(model).workspaces == [workspace]
    assert all(workspace.graphs[size] is graph for size, graph in made.items())


@pytest.mark.cuda
def test_graphs_are_captured_once(captures: pytest.MonkeyPatch) -> None:
    model, recorded, record = TINY["Transformer"].build().cuda(), list[GraphedCallable](), GraphedCallable._capture
    captures.setattr(GraphedCallable, "_capture", lambda graph: (recorded.append(graph), record(graph))[1])
    for _ in range(3):
        run_search(model, 8, 1, max_new_tokens=12)
    assert 0 < len(recorded) == len(graph_cache_for(model).workspaces[0].graphs)


def test_cached_workspaces_do_not_keep_the_model_alive(captures: pytest.MonkeyPatch) -> None:
    model = TINY["Transformer"].build()
    run_search(model, 3, 1)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_workspaces_of_inference_mode_are_reusable(
    captures: pytest.MonkeyPatch,
) -> None:
    model = TINY["Transformer"].build()
    with torch.inference_mode():
        found = run_search(model, 3, 1)
    assert_same(found, run_search(model, 3, 1))


def test_least_recently_used_workspaces_are_freed(captures: pytest.MonkeyPatch) -> None:
    model = TINY["Transformer"].build()
    run_search(model, 4, 1)
    captures.setattr(CACHE, "MAX_STATE_BYTES", 3 * graph_cache_for(model).workspaces[0].bytes)
    run_search(model, 4, 1, num_beams=2)
    run_search(model, 4, 1, num_beams=1)
    beams = [workspace.size.num_beams for workspace in graph_cache_for(model).workspaces]
    assert beams == [3, 2, 1]
    run_search(model, 4, 1, num_beams=4)
    assert [workspace.size.num_beams for workspace in graph_cache_for(model).workspaces][-1] == 4
    assert sum(workspace.bytes for workspace in graph_cache_for(model).workspaces) <= CACHE.MAX_STATE_BYTES


@given(st.integers(1, 5000))
def test_round_up_count_wastes_little(count: int) -> None:
    assert count <= round_up_count(count) <= max(count, count * 5 // 4 + 1)
    assert round_up_count(round_up_count(count)) == round_up_count(count)


@given(st.integers(1, 300), st.integers(1, 6), st.integers(1, 90), st.one_of(st.none(), st.integers(1, 90)))
def test_workspace_fits_its_own_size_only(sequences: int, beams: int, columns: int, source: int | None) -> None:
    size = WorkspaceSize(sequences, beams, columns, source, 1).rounded_up()
    assert size.fits(size)
    assert size.rounded_up() == size
    for larger in (replace(size, sequences=size.sequences + 1), replace(size, columns=size.columns + 1)):
        assert not size.fits(larger)
        assert larger.fits(size) == (larger.cells <= MAX_OVERSIZE * size.cells)
    assert not size.fits(replace(size, num_eos=2)) and not size.fits(replace(size, num_beams=beams + 1))


def search_params(beams: int, eos_ids: tuple[int, ...], max_length: int, min_length: int) -> BeamSearchParams:
    return BeamSearchParams(eos_ids, max_length, min_length, beams)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("vocab", [7, 300, 5000, 32000], ids=lambda vocab: f"{vocab} tokens")
def test_triton_top_tokens_equal_full_topk(vocab: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(70, vocab) * 3).to("cuda", dtype)
    logprobs, ids = ops_for(logits.device).top_tokens(logits, 9)
    expected, _ = TorchOps().top_tokens(logits, 9)
    torch.testing.assert_close(logprobs, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logprobs, logits.float().log_softmax(-1).gather(1, ids), atol=1e-4, rtol=1e-4)
    assert all(len(set(row)) == len(row) for row in ids.tolist())


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("beams", "eos_ids", "vocab", "min_length"),
    [(4, (0,), 40, 0), (1, (0,), 40, 0), (4, (0, 7), 40, 2), (5, (3,), 4, 0), (3, (1,), 2, 0), (8, (0,), 40, 9)],
    ids=["four", "one", "two eos ids", "small vocabulary", "two tokens", "min_length"],
)
def test_triton_advance_beams_equals_torch(beams: int, eos_ids: tuple[int, ...], vocab: int, min_length: int) -> None:
    N, K, L, device = 6, beams, 9, torch.device("cuda")
    params, results = search_params(beams, eos_ids, L, min_length), []
    logits_per_step = [torch.randn(N if not t else N * K, vocab, device=device) * 2 for t in range(L)]
    for ops in (ops_for(device), TorchOps()):
        limits, state = SearchLimits.allocate(16, len(eos_ids), device), BeamState.allocate(N, K, 16, device)
        limits.write(params)
        state.reset(N - 1)
        ids, step = torch.zeros(N * K, dtype=torch.long, device=device), torch.ones(1, dtype=torch.long, device=device)
        owners = torch.arange(N * K, dtype=torch.int32, device=device)[:, None].repeat(1, 70)
        states = []
        for t, logits in enumerate(logits_per_step):
            found = TorchOps().top_tokens(logits, params.num_candidates + len(eos_ids))
            totals = state.scores if t else torch.zeros(N, 1, device=device)
            ops.advance_beams(found, totals, state, limits, ids=ids, owners=owners if t else None, length=step)
            owners[:, t] = torch.arange(N * K, dtype=torch.int32, device=device)
            step.add_(1)
            alive = state.scores > -torch.inf
            alive_rows = alive.flatten()
            states += [
                state.scores.clone(),
                state.done.clone(),
                state.finished.clone(),
                ids[alive_rows],
                owners[alive_rows],
            ]
        is_finished = state.finished[[0, 2, 4]] > -torch.inf
        results.append(
            [*states, *(part[is_finished] for part in ops.backtrace(state, torch.tensor([0, 2, 4], device=device), L))]
        )
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "source", "beams"),
    [(8, 8, 64, 40, 4), (4, 2, 8, 70, 4), (2, 2, 8, 3, 5), (8, 8, 64, 130, 16)],
    ids=["default", "grouped", "narrow", "long"],
)
def test_triton_shared_cross_attention_equals_torch(
    heads: int, kv_heads: int, head_dim: int, source: int, beams: int, dtype: torch.dtype
) -> None:
    unused = LinearWeights(torch.zeros(1), None)
    attn = AttentionWeights(unused, unused, heads, kv_heads, head_dim, head_dim**-0.5)
    encoder_kv = [torch.randn(5, kv_heads, source + 8, head_dim, device="cuda", dtype=dtype)[:3] for _ in range(2)]
    query, lengths = (
        torch.randn(3 * beams, heads * head_dim, device="cuda", dtype=dtype),
        torch.tensor([source, 1, 2]).cuda(),
    )
    kv = StaticKV(encoder_kv[0], encoder_kv[1], (encoder_kv[0], encoder_kv[1]))
    made, expected = (ops.cross_attention(query, attn, kv, lengths) for ops in (ops_for(query.device), TorchOps()))
    tolerance = 1e-4 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(made, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_triton_linear_norm_equals_torch(dtype: torch.dtype) -> None:
    kwargs: dict[str, Any] = {"device": "cuda", "dtype": dtype}
    x, residual = torch.randn(300, 64, **kwargs), torch.randn(300, 48, **kwargs)
    layer, norm = (
        LinearWeights(torch.randn(48, 64, **kwargs), torch.randn(48, **kwargs)),
        NormWeights(*torch.randn(2, 48, **kwargs), eps=1e-5),
    )
    made, expected = (ops.linear_norm(x, layer, norm, residual) for ops in (ops_for(x.device), TorchOps()))
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(made, expected, atol=tolerance, rtol=tolerance)
