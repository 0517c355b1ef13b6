"""CUDA graph sessions read the model's own weights: changes take effect at once."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.decode import CausalLMSession, Seq2SeqSession, beam_search, generate
from softlook.decode.cuda_graphs.session import CudaGraphSession, graph_cache_for, model_unsupported_reason
from softlook.decode.cuda_graphs.weights import are_adjacent, concat_views, shared_weights
from tests.models.tiny import TINY, Tiny

STREAM, BEAM = sys.modules["softlook.decode.generation"], sys.modules["softlook.decode.beam.search"]
SUPPORTED = [TINY[name] for name in ("GPT", "GPT untied", "Llama", "Transformer", "Transformer pre-norm")]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
PROMPTS, SOURCES = [[3, 1, 4], [1, 5, 9]], [[2, 7, 1, 8], [2, 8, 1, 8]]
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "data.copy_": lambda weight, new: weight.data.copy_(new),
    "data.add_": lambda weight, new: weight.data.add_(new),
    "in place": lambda weight, new: weight.add_(new),
    "new data": lambda weight, new: setattr(weight, "data", new.clone()),
}


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for module in (STREAM, BEAM):
        monkeypatch.setattr(module, "graph_unsupported_reason", lambda session: model_unsupported_reason(session))
        monkeypatch.setattr(module, "MIN_TOKENS_TO_CAPTURE", 1)
    return monkeypatch


def outputs_of(tiny: Tiny, model: nn.Module, device: str) -> list[Any]:
    """The ids of greedy decoding and of beam search."""
    sources: dict[str, Any] = {} if tiny.mode == "decoder-only" else {"sources": SOURCES}
    generated = generate(model, PROMPTS, max_new_tokens=6, **sources)
    source = torch.tensor(SOURCES, device=device)
    session = CausalLMSession(model) if tiny.mode == "decoder-only" else Seq2SeqSession(model, source)
    found = beam_search(session, PROMPTS, eos_ids=0, max_new_tokens=5, num_beams=2)
    return [[output.ids for output in generated], [[one.ids for one in hypotheses] for hypotheses in found]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("tiny", SUPPORTED, ids=str)
def test_written_weights_take_effect_at_the_next_call(
    tiny: Tiny, write: Callable[[Tensor, Tensor], Any], device: str, captures: pytest.MonkeyPatch
) -> None:
    model, generator = tiny.build().to(device), torch.Generator().manual_seed(3)
    before = outputs_of(tiny, model, device)
    with torch.no_grad():
        for weight in model.parameters():
            write(weight, torch.randn(weight.shape, generator=generator).to(device))
    fast = outputs_of(tiny, model, device)
    for module in (STREAM, BEAM):
        captures.setattr(module, "graph_unsupported_reason", lambda session: "disabled")
    assert fast == outputs_of(tiny, model, device) != before


@pytest.mark.parametrize("tiny", SUPPORTED, ids=str)
def test_decoder_weights_take_no_memory(tiny: Tiny) -> None:
    model = tiny.build()
    before = {name: (weight.clone(), weight) for name, weight in model.named_parameters()}
    graph_cache_for(model)
    gc.collect()
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    weights = shared_weights(model)
    linears = [
        weights.lm_head,
        *(one for layer in weights.layers for one in (layer.attn.qkv, layer.attn.out, layer.up)),
    ]
    assert all(one.weight.untyped_storage().data_ptr() in own for one in linears)
    kept = {weight.untyped_storage().data_ptr(): weight.untyped_storage().nbytes() for weight in model.parameters()}
    assert sum(kept.values()) == sum(weight.nbytes for weight in model.parameters())
    for name, weight in model.named_parameters():
        assert weight is before[name][1] and weight.equal(before[name][0]), name


def test_model_still_trains_and_saves(tmp_path: Any) -> None:
    model = TINY["Llama"].build()
    graph_cache_for(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.tensor([[1, 2, 3]])).sum().backward()
    optimizer.step()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    again = TINY["Llama"].build(seed=1)
    again.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    ids = torch.tensor([[3, 1, 4]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids), model(ids))
        torch.testing.assert_close(
            CudaGraphSession(CausalLMSession(model)).step(ids), model(ids)[:, -1], atol=1e-5, rtol=1e-5
        )


def test_shared_weights_are_unsupported() -> None:
    model = TINY["GPT"].build()
    model.blocks[1].attn.to_query.weight = model.blocks[0].attn.to_query.weight
    assert "share their weights" in str(model_unsupported_reason(CausalLMSession(model)))


def test_changed_settings_invalidate_the_cache() -> None:
    model = TINY["GPT"].build()
    first = graph_cache_for(model)
    assert graph_cache_for(model) is first
    model.blocks[0].attn.core.scale = 0.3
    assert graph_cache_for(model) is not first
    model.blocks[0].attn.core.softcap = 3.0
    assert "softcap" in str(model_unsupported_reason(CausalLMSession(model)))


def test_adjacent_weights_are_not_moved() -> None:
    layers = [nn.Linear(4, size) for size in (3, 2, 5)]
    weights = [layer.weight for layer in layers]
    joined = concat_views(*weights)
    assert are_adjacent(*weights) and concat_views(*weights).data_ptr() == joined.data_ptr()
    assert not are_adjacent(*reversed(weights))


@pytest.mark.parametrize("name", ["GPT", "Llama"])
def test_prefill_computes_only_the_last_logits(name: str) -> None:
    model, ids, widths = TINY[name].build(), torch.tensor([[3, 1, 4, 1, 5]]), list[int]()
    model.lm_head.register_forward_hook(lambda module, args, output: widths.append(output.shape[1]))
    with torch.no_grad():
        one, other = CausalLMSession(model).step(ids), CausalLMSession(model).all_logits(ids)[:, -1]
    assert widths == [1, 5]
    torch.testing.assert_close(one, other)
