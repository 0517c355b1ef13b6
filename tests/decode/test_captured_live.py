"""Captured steps read the model's own weights: whatever is written into them is what is said next."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.decode import Continuing, Translating, beam, generate
from softlook.decode.captured.adjoining import adjoined, are_adjoined
from softlook.decode.captured.plan import live_plan_of
from softlook.decode.captured.shelf import shelf_of
from softlook.decode.captured.speaker import Captured, why_not_planned
from tests.models.tiny import TINY, Tiny

STREAM, BEAM = sys.modules["softlook.decode.stream"], sys.modules["softlook.decode.beam"]
PLANNED = [TINY[name] for name in ("GPT", "GPT untied", "Llama", "Transformer", "Transformer pre-norm")]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
PROMPTS, SOURCES = [[3, 1, 4], [1, 5, 9]], [[2, 7, 1, 8], [2, 8, 1, 8]]
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "data.copy_": lambda weight, new: weight.data.copy_(new),
    "data.add_": lambda weight, new: weight.data.add_(new),
    "in place": lambda weight, new: weight.add_(new),
    "data itself": lambda weight, new: setattr(weight, "data", new.clone()),
}


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for module in (STREAM, BEAM):
        monkeypatch.setattr(module, "why_not", lambda speaker: why_not_planned(speaker))
        monkeypatch.setattr(module, "WORTH", 1)
    return monkeypatch


def answers(tiny: Tiny, model: nn.Module, device: str) -> list[Any]:
    """What is said word by word and what a search finds."""
    sources: dict[str, Any] = {} if tiny.mode == "decoder-only" else {"sources": SOURCES}
    said = generate(model, PROMPTS, longest=6, **sources)
    source = torch.tensor(SOURCES, device=device)
    speaker = Continuing(model) if tiny.mode == "decoder-only" else Translating(model, source)
    found = beam(speaker, PROMPTS, end=0, longest=5, beams=2)
    return [[answer.ids for answer in said], [[one.ids for one in several] for several in found]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("tiny", PLANNED, ids=str)
def test_whatever_is_written_into_a_weight_is_heard_at_the_next_call(
    tiny: Tiny, write: Callable[[Tensor, Tensor], Any], device: str, captures: pytest.MonkeyPatch
) -> None:
    model, made = tiny.build().to(device), torch.Generator().manual_seed(3)
    before = answers(tiny, model, device)
    with torch.no_grad():
        for weight in model.parameters():
            write(weight, torch.randn(weight.shape, generator=made).to(device))
    fast = answers(tiny, model, device)
    for module in (STREAM, BEAM):
        captures.setattr(module, "why_not", lambda speaker: "not now")
    assert fast == answers(tiny, model, device) != before


@pytest.mark.parametrize("tiny", PLANNED, ids=str)
def test_a_plan_takes_no_memory_of_its_own(tiny: Tiny) -> None:
    model = tiny.build()
    before = {name: (weight.clone(), weight) for name, weight in model.named_parameters()}
    shelf_of(model)
    gc.collect()
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    plan = live_plan_of(model)
    sums = [
        plan.head,
        *(one for layer in plan.layers for one in (layer.attend.into, layer.attend.out, layer.feed.into)),
    ]
    assert all(one.weight.untyped_storage().data_ptr() in own for one in sums)
    kept = {weight.untyped_storage().data_ptr(): weight.untyped_storage().nbytes() for weight in model.parameters()}
    assert sum(kept.values()) == sum(weight.nbytes for weight in model.parameters())
    for name, weight in model.named_parameters():
        assert weight is before[name][1] and weight.equal(before[name][0]), name


def test_a_model_still_learns_and_is_saved_as_it_was(tmp_path: Any) -> None:
    model = TINY["Llama"].build()
    shelf_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.tensor([[1, 2, 3]])).sum().backward()
    optimizer.step()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    again = TINY["Llama"].build(seed=1)
    again.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    ids = torch.tensor([[3, 1, 4]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids), model(ids))
        torch.testing.assert_close(Captured(Continuing(model)).next(ids), model(ids)[:, -1], atol=1e-5, rtol=1e-5)


def test_weights_that_layers_share_are_not_captured() -> None:
    model = TINY["GPT"].build()
    model.blocks[1].attend.to_query.weight = model.blocks[0].attend.to_query.weight
    assert "share their weights" in str(why_not_planned(Continuing(model)))


def test_a_setting_that_changes_makes_another_plan() -> None:
    model = TINY["GPT"].build()
    first = shelf_of(model)
    assert shelf_of(model) is first
    model.blocks[0].attend.mix.scale = 0.3
    assert shelf_of(model) is not first
    model.blocks[0].attend.mix.softcap = 3.0
    assert "soft cap" in str(why_not_planned(Continuing(model)))


def test_weights_that_lie_side_by_side_are_not_moved_again() -> None:
    layers = [nn.Linear(4, size) for size in (3, 2, 5)]
    weights = [layer.weight for layer in layers]
    whole = adjoined(*weights)
    assert are_adjoined(*weights) and adjoined(*weights).data_ptr() == whole.data_ptr()
    assert not are_adjoined(*reversed(weights))


@pytest.mark.parametrize("name", ["GPT", "Llama"])
def test_only_the_last_logits_of_a_prompt_are_computed(name: str) -> None:
    model, ids, widths = TINY[name].build(), torch.tensor([[3, 1, 4, 1, 5]]), list[int]()
    model.head.register_forward_hook(lambda module, args, output: widths.append(output.shape[1]))
    with torch.no_grad():
        one, other = Continuing(model).next(ids), Continuing(model).read(ids)[:, -1]
    assert widths == [1, 5]
    torch.testing.assert_close(one, other)
