"""Steps that are captured say what the plain ones say. Without a GPU they are simply done again and again."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import ShapeError, WeightsError
from softlook.blocks import Memory
from softlook.blocks.memories import Quantised
from softlook.decode import Continuing, Stop, Translating, beam, explain, generate, sample, stream
from softlook.decode import repetition_penalty as repetition
from softlook.decode.captured.shelf import shelf_of
from softlook.decode.captured.speaker import EVEN, Captured, why_not_planned
from softlook.tokens import TextTokenizer, train_tokenizer
from tests.models.tiny import TINY, VOCAB, Tiny

STREAM, BEAM = sys.modules["softlook.decode.stream"], sys.modules["softlook.decode.beam"]
PLANNED = [tiny for tiny in TINY.values() if tiny.name in ("GPT", "GPT untied", "Llama", "Transformer", "BART")]
PLANNED += [TINY["Transformer pre-norm"]]
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5], [3, 5, 8, 9]]
SOURCES = [[2, 7, 1, 8], [2], [8, 1, 8, 2, 8, 4], [5, 9]]
WAYS: dict[str, dict[str, Any]] = {
    "likeliest": {},
    "told": {"top": 3},
    "sampled": {"pick": sample(temperature=1.5, top_p=0.95, seed=3)},
    "ruled": {"rules": [repetition(1.3)]},
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine on which all steps are captured that can be, graph or not."""
    for module in (STREAM, BEAM):
        monkeypatch.setattr(module, "why_not", lambda speaker: why_not_planned(speaker))
        monkeypatch.setattr(module, "WORTH", 1)
    yield monkeypatch


def plainly(captures: pytest.MonkeyPatch) -> None:
    """From now on nothing is captured."""
    for module in (STREAM, BEAM):
        captures.setattr(module, "why_not", lambda speaker: "not now")


def asked(tiny: Tiny) -> dict[str, Any]:
    return {} if tiny.mode == "decoder-only" else {"sources": SOURCES}


def speaker(tiny: Tiny, model: nn.Module, device: str = "cpu") -> Continuing | Translating:
    if tiny.mode == "decoder-only":
        return Continuing(model)
    present = torch.arange(6) < torch.tensor([6, 4, 1, 3])[:, None]
    return Translating(model, (torch.arange(24).view(4, 6) % VOCAB).to(device), present.to(device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("end", [(), (0, 7)], ids=["to the limit", "with ends"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tiny", PLANNED, ids=str)
def test_captured_steps_say_what_plain_ones_say(
    tiny: Tiny, way: str, end: tuple[int, ...], device: str, captures: pytest.MonkeyPatch
) -> None:
    model, common = tiny.build().to(device), {**asked(tiny), **WAYS[way], "end": end, "longest": 9}
    fast = generate(model, PROMPTS, **common)
    plainly(captures)
    for answer, wanted in zip(fast, generate(model, PROMPTS, **common), strict=True):
        assert (answer.ids, answer.reason) == (wanted.ids, wanted.reason)
        assert [token.rank for token in answer.tokens] == [token.rank for token in wanted.tokens]
        for token, other in zip(answer.tokens, wanted.tokens, strict=True):
            assert token.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            assert [id for id, _ in token.top] == [id for id, _ in other.top]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "how",
    [{}, {"beams": 1}, {"penalty": 0.0, "shortest": 3}, {"beams": 5, "penalty": 2.0}, {"end": (0, 7)}],
    ids=["as ever", "one", "at least", "long", "two ends"],
)
@pytest.mark.parametrize("tiny", PLANNED, ids=str)
def test_a_captured_search_finds_what_a_plain_one_finds(
    tiny: Tiny, how: dict[str, Any], device: str, captures: pytest.MonkeyPatch
) -> None:
    model, how = tiny.build().to(device), {"end": 0, "longest": 10, "beams": 4, **how}
    fast = beam(speaker(tiny, model, device), PROMPTS, **how)
    plainly(captures)
    for several, wanted in zip(fast, beam(speaker(tiny, model, device), PROMPTS, **how), strict=True):
        assert [(one.ids, one.end) for one in several] == [(one.ids, one.end) for one in wanted]
        assert [one.score for one in several] == pytest.approx([one.score for one in wanted], abs=1e-4)
        for one, other in zip(several, wanted, strict=True):
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_a_place_that_is_full_becomes_a_larger_one(device: str) -> None:
    model = TINY["Llama"].build().to(device)
    plain, fast = Continuing(model), Captured(Continuing(model), room=4)
    words = torch.randint(0, VOCAB, (2, 2 * EVEN), generator=torch.Generator().manual_seed(1)).to(device)
    with torch.no_grad():
        for start in range(0, 2 * EVEN - 1):
            torch.testing.assert_close(
                fast.next(words[:, start : start + 1]), plain.next(words[:, start : start + 1]), atol=1e-4, rtol=1e-4
            )


@pytest.mark.parametrize("device", DEVICES)
def test_rows_go_on_as_they_are_selected(device: str) -> None:
    model, rows = TINY["Transformer"].build().to(device), torch.tensor([2, 0, 0], device=device)
    tiny, ids = TINY["Transformer"], torch.tensor([[1], [2], [3], [4]], device=device)
    plain, fast = speaker(tiny, model, device), Captured(speaker(tiny, model, device))
    with torch.no_grad():
        for one in (plain, fast):
            one.next(ids)
            one.next(ids)
            one.select(rows)
        torch.testing.assert_close(fast.next(ids[:3]), plain.next(ids[:3]), atol=1e-4, rtol=1e-4)


def test_a_stop_string_stops_what_is_said_ahead(captures: pytest.MonkeyPatch) -> None:
    tokenizer, model = TextTokenizer(train_tokenizer(["abcdefg"], kind="characters")), TINY["GPT"].build()
    fast, wanted = [], []
    for kept in (fast, wanted):
        kept += generate(model, PROMPTS, longest=10, stop=Stop(tokenizer, ("c", "ab")))
        plainly(captures)
    assert [(answer.ids, answer.reason, answer.text) for answer in fast] == [
        (answer.ids, answer.reason, answer.text) for answer in wanted
    ]


def test_a_stream_can_be_left_and_the_next_one_begins_anew(captures: pytest.MonkeyPatch) -> None:
    model = TINY["GPT"].build()
    said = stream(model, [3, 1, 4], longest=10)
    first = [next(said).id for _ in range(3)]
    said.close()
    assert shelf_of(model).idle is not None
    again = [token.id for token in stream(model, [3, 1, 4], longest=10)]
    plainly(captures)
    assert again == [token.id for token in stream(model, [3, 1, 4], longest=10)]
    assert again[:3] == first


def test_weights_that_change_are_seen(captures: pytest.MonkeyPatch) -> None:
    model = TINY["GPT"].build()
    generate(model, PROMPTS, longest=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    fast = [answer.ids for answer in generate(model, PROMPTS, longest=5)]
    plainly(captures)
    assert fast == [answer.ids for answer in generate(model, PROMPTS, longest=5)]


def test_scores_that_are_no_numbers_are_refused(captures: pytest.MonkeyPatch) -> None:
    model = TINY["GPT"].build()
    with torch.no_grad():
        model.norm.weight.fill_(torch.nan)
    with pytest.raises(WeightsError, match="NaN"):
        generate(model, PROMPTS, longest=5)
    with pytest.raises(WeightsError, match="NaN"):
        beam(Continuing(model), PROMPTS, end=0, longest=5)


def test_several_words_at_once_are_refused() -> None:
    fast = Captured(Continuing(TINY["GPT"].build()))
    with torch.no_grad():
        fast.next(torch.tensor([[1, 2]]))
        with pytest.raises(ShapeError, match="one word after the other; 2 came"):
            fast.next(torch.tensor([[1, 2]]))


@pytest.mark.parametrize(
    ("speaker", "reason"),
    [
        (lambda: Continuing(TINY["Llama through windows"].build()), "through a window"),
        (lambda: Continuing(TINY["GPT"].build(), Memory(Quantised)), "memory is of another kind"),
        (lambda: Continuing(TINY["GPT"].build().double()), "neither float32"),
        (lambda: Continuing(TINY["GPT with labels"].build(), label=torch.tensor([1])), "about a label"),
    ],
    ids=["window", "memory", "double", "label"],
)
def test_what_is_not_captured_has_a_reason(speaker: Any, reason: str) -> None:
    assert reason in str(why_not_planned(speaker()))


def test_a_hook_is_a_reason() -> None:
    model = TINY["GPT"].build()
    handle = model.blocks[0].register_forward_hook(lambda *seen: None)
    assert "somebody watches blocks.0" in str(why_not_planned(Continuing(model)))
    handle.remove()
    assert why_not_planned(Continuing(model)) is None


def test_how_a_model_speaks_can_be_asked() -> None:
    assert explain(TINY["GPT"].build()) == "word by word: graphs are for GPUs, and the model lies on cpu"


@pytest.mark.cuda
def test_a_gpu_explains_what_it_captures() -> None:
    model = TINY["GPT"].build().cuda()
    assert explain(model).startswith("captured: ")
    assert explain(model, rules=[repetition(1.3)]).startswith("captured, but chosen by Python: ")
    assert explain(TINY["T5"].build().cuda(), source=True).startswith("word by word: a T5 is neither")


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [1, 3, 40], ids=lambda rows: f"{rows} rows")
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("tiny", PLANNED, ids=str)
def test_kernels_make_what_plain_operations_make(tiny: Tiny, kind: torch.dtype, rows: int) -> None:
    model, ids = tiny.build().to("cuda", kind), torch.randint(0, VOCAB, (rows, 5)).cuda()
    source = torch.randint(0, VOCAB, (rows, 4)).cuda()
    made = []
    for make in (lambda one: one, Captured):
        inner = Continuing(model) if tiny.mode == "decoder-only" else Translating(model, source)
        with torch.no_grad():
            one = make(inner)
            made.append(torch.stack([one.next(ids[:, at : at + 1]).clone() for at in range(5)]))
    off, share = (1e-4, 1e-4) if kind == torch.float32 else (0.2, 0.05)
    torch.testing.assert_close(made[1], made[0], atol=off, rtol=share)
