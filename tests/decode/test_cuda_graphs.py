"""CUDA graph decoding equals eager decoding. Without a GPU the captured functions are called directly."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import ShapeError, WeightsError
from softlook.blocks import KVCache
from softlook.blocks.cache_types import QuantizedCache
from softlook.decode import (
    CausalLMSession,
    Multinomial,
    Seq2SeqSession,
    StopStrings,
    beam_search,
    explain,
    generate,
    repetition_penalty,
    stream,
)
from softlook.decode.cuda_graphs.session import (
    COLUMN_MULTIPLE,
    CudaGraphSession,
    graph_cache_for,
    model_unsupported_reason,
)
from softlook.tokens import TextTokenizer, train_tokenizer
from tests.models.tiny import TINY, VOCAB, Tiny

STREAM, BEAM = sys.modules["softlook.decode.generation"], sys.modules["softlook.decode.beam.search"]
SUPPORTED = [tiny for tiny in TINY.values() if tiny.name in ("GPT", "GPT untied", "Llama", "Transformer", "BART")]
SUPPORTED += [TINY["Transformer pre-norm"]]
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5], [3, 5, 8, 9]]
SOURCES = [[2, 7, 1, 8], [2], [8, 1, 8, 2, 8, 4], [5, 9]]
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "logprobs": {"num_logprobs": 3},
    "sampled": {"sampler": Multinomial(temperature=1.5, top_p=0.95, seed=3)},
    "processors": {"logits_processors": [repetition_penalty(1.3)]},
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Use the step of the CUDA graphs for every supported model, without a graph where there is no GPU."""
    for module in (STREAM, BEAM):
        monkeypatch.setattr(module, "graph_unsupported_reason", lambda session: model_unsupported_reason(session))
        monkeypatch.setattr(module, "MIN_TOKENS_TO_CAPTURE", 1)
    yield monkeypatch


def without_graphs(captures: pytest.MonkeyPatch) -> None:
    """Decode eagerly from now on."""
    for module in (STREAM, BEAM):
        captures.setattr(module, "graph_unsupported_reason", lambda session: "disabled")


def sources_of(tiny: Tiny) -> dict[str, Any]:
    return {} if tiny.mode == "decoder-only" else {"sources": SOURCES}


def create_session(tiny: Tiny, model: nn.Module, device: str = "cpu") -> CausalLMSession | Seq2SeqSession:
    if tiny.mode == "decoder-only":
        return CausalLMSession(model)
    source_mask = torch.arange(6) < torch.tensor([6, 4, 1, 3])[:, None]
    return Seq2SeqSession(model, (torch.arange(24).view(4, 6) % VOCAB).to(device), source_mask.to(device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("eos_ids", [(), (0, 7)], ids=["without eos", "with eos"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("tiny", SUPPORTED, ids=str)
def test_graph_generation_equals_eager(
    tiny: Tiny, options: str, eos_ids: tuple[int, ...], device: str, captures: pytest.MonkeyPatch
) -> None:
    model, common = (
        tiny.build().to(device),
        {**sources_of(tiny), **OPTIONS[options], "eos_ids": eos_ids, "max_new_tokens": 9},
    )
    fast = generate(model, PROMPTS, **common)
    without_graphs(captures)
    for output, expected in zip(fast, generate(model, PROMPTS, **common), strict=True):
        assert (output.ids, output.finish_reason) == (expected.ids, expected.finish_reason)
        assert [token.rank for token in output.tokens] == [token.rank for token in expected.tokens]
        for token, other in zip(output.tokens, expected.tokens, strict=True):
            assert token.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [id for id, _ in token.top_logprobs] == [id for id, _ in other.top_logprobs]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"num_beams": 1},
        {"length_penalty": 0.0, "min_new_tokens": 3},
        {"num_beams": 5, "length_penalty": 2.0},
        {"eos_ids": (0, 7)},
    ],
    ids=["default", "one beam", "min_new_tokens", "five beams", "two eos ids"],
)
@pytest.mark.parametrize("tiny", SUPPORTED, ids=str)
def test_graph_beam_search_equals_eager(
    tiny: Tiny, params: dict[str, Any], device: str, captures: pytest.MonkeyPatch
) -> None:
    model, params = tiny.build().to(device), {"eos_ids": 0, "max_new_tokens": 10, "num_beams": 4, **params}
    fast = beam_search(create_session(tiny, model, device), PROMPTS, **params)
    without_graphs(captures)
    for hypotheses, expected in zip(
        fast, beam_search(create_session(tiny, model, device), PROMPTS, **params), strict=True
    ):
        assert [(one.ids, one.eos_id) for one in hypotheses] == [(one.ids, one.eos_id) for one in expected]
        assert [one.score for one in hypotheses] == pytest.approx([one.score for one in expected], abs=1e-4)
        for one, other in zip(hypotheses, expected, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_full_buffers_grow(device: str) -> None:
    model = TINY["Llama"].build().to(device)
    plain, fast = CausalLMSession(model), CudaGraphSession(CausalLMSession(model), capacity=4)
    words = torch.randint(0, VOCAB, (2, 2 * COLUMN_MULTIPLE), generator=torch.Generator().manual_seed(1)).to(device)
    with torch.no_grad():
        for start in range(0, 2 * COLUMN_MULTIPLE - 1):
            torch.testing.assert_close(
                fast.step(words[:, start : start + 1]), plain.step(words[:, start : start + 1]), atol=1e-4, rtol=1e-4
            )


@pytest.mark.parametrize("device", DEVICES)
def test_reordered_rows_continue_correctly(device: str) -> None:
    model, rows = TINY["Transformer"].build().to(device), torch.tensor([2, 0, 0], device=device)
    tiny, ids = TINY["Transformer"], torch.tensor([[1], [2], [3], [4]], device=device)
    plain, fast = create_session(tiny, model, device), CudaGraphSession(create_session(tiny, model, device))
    with torch.no_grad():
        for one in (plain, fast):
            one.step(ids)
            one.step(ids)
            one.reorder(rows)
        torch.testing.assert_close(fast.step(ids[:3]), plain.step(ids[:3]), atol=1e-4, rtol=1e-4)


def test_stop_strings_end_asynchronous_decoding(captures: pytest.MonkeyPatch) -> None:
    tokenizer, model = TextTokenizer(train_tokenizer(["abcdefg"], model_type="characters")), TINY["GPT"].build()
    fast, expected = [], []
    for outputs in (fast, expected):
        outputs += generate(model, PROMPTS, max_new_tokens=10, stop_strings=StopStrings(tokenizer, ("c", "ab")))
        without_graphs(captures)
    assert [(output.ids, output.finish_reason, output.text) for output in fast] == [
        (output.ids, output.finish_reason, output.text) for output in expected
    ]


def test_closed_stream_does_not_affect_the_next(captures: pytest.MonkeyPatch) -> None:
    model = TINY["GPT"].build()
    generated = stream(model, [3, 1, 4], max_new_tokens=10)
    first = [next(generated).id for _ in range(3)]
    generated.close()
    assert graph_cache_for(model).idle is not None
    again = [token.id for token in stream(model, [3, 1, 4], max_new_tokens=10)]
    without_graphs(captures)
    assert again == [token.id for token in stream(model, [3, 1, 4], max_new_tokens=10)]
    assert again[:3] == first


def test_changed_weights_take_effect(captures: pytest.MonkeyPatch) -> None:
    model = TINY["GPT"].build()
    generate(model, PROMPTS, max_new_tokens=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    fast = [output.ids for output in generate(model, PROMPTS, max_new_tokens=5)]
    without_graphs(captures)
    assert fast == [output.ids for output in generate(model, PROMPTS, max_new_tokens=5)]


def test_nan_logits_raise_errors_in_graphs(captures: pytest.MonkeyPatch) -> None:
    model = TINY["GPT"].build()
    with torch.no_grad():
        model.final_norm.weight.fill_(torch.nan)
    with pytest.raises(WeightsError, match="NaN"):
        generate(model, PROMPTS, max_new_tokens=5)
    with pytest.raises(WeightsError, match="NaN"):
        beam_search(CausalLMSession(model), PROMPTS, eos_ids=0, max_new_tokens=5)


def test_several_tokens_per_step_raise_an_error() -> None:
    fast = CudaGraphSession(CausalLMSession(TINY["GPT"].build()))
    with torch.no_grad():
        fast.step(torch.tensor([[1, 2]]))
        with pytest.raises(ShapeError, match="one token per step, got 2"):
            fast.step(torch.tensor([[1, 2]]))


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        (lambda: CausalLMSession(TINY["Llama through windows"].build()), "sliding-window attention"),
        (lambda: CausalLMSession(TINY["GPT"].build(), KVCache(QuantizedCache)), "KV cache is of another type"),
        (lambda: CausalLMSession(TINY["GPT"].build().double()), "dtype is not float32"),
        (
            lambda: CausalLMSession(TINY["GPT with labels"].build(), class_label=torch.tensor([1])),
            "conditioned on a class label",
        ),
    ],
    ids=["window", "cache", "float64", "class label"],
)
def test_unsupported_sessions_have_a_reason(session: Any, reason: str) -> None:
    assert reason in str(model_unsupported_reason(session()))


def test_hooks_are_unsupported() -> None:
    model = TINY["GPT"].build()
    handle = model.blocks[0].register_forward_hook(lambda *_: None)
    assert "blocks.0 has hooks" in str(model_unsupported_reason(CausalLMSession(model)))
    handle.remove()
    assert model_unsupported_reason(CausalLMSession(model)) is None


def test_explain_on_a_cpu() -> None:
    assert explain(TINY["GPT"].build()) == "eager: CUDA graphs need a GPU, and the model is on cpu"


@pytest.mark.cuda
def test_explain_on_a_gpu() -> None:
    model = TINY["GPT"].build().cuda()
    assert explain(model).startswith("CUDA graph per step, tokens selected on the device")
    assert explain(model, logits_processors=[repetition_penalty(1.3)]).startswith(
        "CUDA graph per step, tokens selected in Python: "
    )
    assert explain(TINY["T5"].build().cuda(), has_source=True).startswith(
        "eager: T5 is not a GPT, Llama or Transformer"
    )


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [1, 3, 40], ids=lambda rows: f"{rows} rows")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("tiny", SUPPORTED, ids=str)
def test_triton_ops_equal_torch_ops(tiny: Tiny, dtype: torch.dtype, rows: int) -> None:
    model, ids = tiny.build().to("cuda", dtype), torch.randint(0, VOCAB, (rows, 5)).cuda()
    source = torch.randint(0, VOCAB, (rows, 4)).cuda()
    logits = []
    for make in (lambda one: one, CudaGraphSession):
        inner = CausalLMSession(model) if tiny.mode == "decoder-only" else Seq2SeqSession(model, source)
        with torch.no_grad():
            one = make(inner)
            logits.append(torch.stack([one.step(ids[:, t : t + 1]).clone() for t in range(5)]))
    atol, rtol = (1e-4, 1e-4) if dtype == torch.float32 else (0.2, 0.05)
    torch.testing.assert_close(logits[1], logits[0], atol=atol, rtol=rtol)
