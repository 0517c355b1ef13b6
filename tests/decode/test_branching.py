"""Beams of real models: what they share, where they look, and what becomes of ragged beginnings."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from softlook.blocks import Memory
from softlook.decode import Continuing, Translating, beam
from softlook.decode.branching import Branching
from softlook.decode.packed import packed
from softlook.decode.search import Hypothesis
from softlook.models import GPT, T5, GPTConfig, Llama, LlamaConfig, T5Config, Transformer, TransformerConfig

SOURCE = torch.tensor([[3, 1, 4, 1, 5], [5, 2, 6, 0, 0], [7, 7, 0, 0, 0]])
PRESENT = torch.arange(5) < torch.tensor([[5], [3], [2]])
BEGIN = torch.full((3, 1), 1)


def lively(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=2 * parameter.shape[-1] ** -0.5)
    return model.eval()


def translators() -> dict[str, nn.Module]:
    torch.manual_seed(1)
    return {
        "post": lively(Transformer(TransformerConfig(vocab=9, dim=16, depth=2, heads=2))),
        "pre": lively(Transformer(TransformerConfig(vocab=9, dim=16, depth=2, heads=2, norm="pre", activation="gelu"))),
        "T5": lively(T5(T5Config(vocab=9, dim=16, depth=2, heads=2, head_width=8, hidden=24))),
    }


def decoders() -> dict[str, nn.Module]:
    torch.manual_seed(1)
    return {
        "GPT": lively(GPT(GPTConfig(vocab=9, context=16, dim=16, depth=2, heads=2))),
        "Llama": lively(Llama(LlamaConfig(vocab=9, context=16, dim=16, depth=2, heads=4, kv_heads=2))),
        "windowed": lively(Llama(LlamaConfig(vocab=9, context=16, dim=16, depth=2, heads=2, window=3))),
    }


def same(found: list[Hypothesis], other: list[Hypothesis]) -> None:
    assert [one.ids for one in found] == [one.ids for one in other]
    assert [one.score for one in found] == pytest.approx([one.score for one in other], abs=1e-4)


@pytest.mark.parametrize("copy", ["plain", "packed"])
@pytest.mark.parametrize("name", ["post", "pre", "T5"])
def test_translations_in_a_batch_are_those_alone_plain_or_packed(name: str, copy: str) -> None:
    model = translators()[name]
    used = packed(model) if copy == "packed" else model
    together = beam(Translating(used, SOURCE, PRESENT), BEGIN, end=2, longest=7, beams=3)
    for row in range(3):
        source = SOURCE[row : row + 1, : int(PRESENT[row].sum())]
        same(together[row], beam(Translating(model, source), BEGIN[:1], end=2, longest=7, beams=3)[0])


@pytest.mark.parametrize("copy", ["plain", "packed"])
@pytest.mark.parametrize("name", ["GPT", "Llama", "windowed"])
def test_beginnings_of_any_length_go_on_as_if_alone_plain_or_packed(name: str, copy: str) -> None:
    model, prompts = decoders()[name], [[3, 1, 4], [5], [7, 6]]
    used = packed(model) if copy == "packed" else model
    together = beam(Continuing(used), prompts, end=2, longest=6, beams=3)
    alike = beam(Continuing(used), torch.tensor([[3, 1, 4], [8, 8, 8]]), end=2, longest=6, beams=3)
    for row, prompt in enumerate(prompts):
        alone = beam(Continuing(model), torch.tensor([prompt]), end=2, longest=6, beams=3)[0]
        same(together[row], alone)
        if row == 0:
            same(alike[0], alone)


@pytest.mark.parametrize("copy", ["plain", "packed"])
def test_scores_are_those_of_the_whole_sequence_read_at_once(copy: str) -> None:
    model = translators()["post"]
    used = packed(model) if copy == "packed" else model
    for one in beam(Translating(used, SOURCE[:1]), BEGIN[:1], end=2, longest=6, beams=4)[0]:
        words = [*one.ids, *([] if one.end is None else [one.end])]
        logs = model(SOURCE[:1], torch.tensor([[1, *words[:-1]]])).log_softmax(-1)[0]
        wanted = logs[range(len(words)), words].tolist()
        assert one.log_probabilities == pytest.approx(wanted, abs=1e-4)


def test_sources_are_read_once_and_never_copied_for_beams() -> None:
    model, rows = translators()["post"], list[int]()
    block = model.get_submodule("decoder.blocks.0.cross.mix")
    hook = block.register_forward_pre_hook(lambda module, args: rows.append(len(args[1])))
    with mock.patch.object(model, "encode", wraps=model.encode) as encode:
        beam(Translating(model, SOURCE, PRESENT), BEGIN, end=2, longest=5, shortest=4, beams=4)
    hook.remove()
    assert encode.call_count == 1
    assert rows == [3] * 5  # three sources, though there are twelve rows from the second word on


def test_sequences_that_are_over_leave_the_batch() -> None:
    model, rows = translators()["post"], list[int]()
    hook = model.get_submodule("decoder").register_forward_pre_hook(lambda module, args: rows.append(len(args[0])))
    with torch.no_grad():
        found = beam(Translating(model, SOURCE, PRESENT), BEGIN, end=0, longest=12, beams=1, penalty=0.0)
    hook.remove()
    lengths = sorted(len(one[0].ids) + (one[0].end is not None) for one in found)
    assert len(set(lengths)) > 1
    assert rows == [sum(length > step for length in lengths) for step in range(max(lengths))]


@pytest.mark.parametrize("copy", ["plain", "packed"])
@pytest.mark.parametrize("name", ["post", "T5"])
def test_alignments_are_where_the_last_block_looks(name: str, copy: str) -> None:
    model = translators()[name]
    used = packed(model) if copy == "packed" else model
    found = beam(Translating(used, SOURCE, PRESENT), BEGIN, end=2, longest=5, beams=3, align=True)
    seen: list[Tensor] = []
    mix: Any = model.get_submodule("decoder.blocks.1.cross.mix")
    hook = mix.register_forward_hook(
        lambda module, args, out: seen.append(module.weights(*args[:2], *args[3:])[0].mean(0))
    )
    for row in range(3):
        for one in found[row]:
            words = [1, *one.ids, *([] if one.end is None else [one.end])][:-1]
            with torch.no_grad():
                model(SOURCE[row : row + 1], torch.tensor([words]), source_present=PRESENT[row : row + 1])
            assert one.alignment is not None
            torch.testing.assert_close(torch.tensor(one.alignment), seen[-1], atol=1e-5, rtol=0)
    hook.remove()
    assert all(not part._forward_hooks for part in used.modules())


def test_coverage_is_what_gnmt_adds_for_words_that_were_looked_at() -> None:
    model, costs = translators()["post"], list[float]()
    for row, found in enumerate(
        beam(Translating(model, SOURCE, PRESENT), BEGIN, end=2, longest=6, beams=4, coverage=0.7, align=True)
    ):
        assert found == sorted(found, reverse=True)
        for one in found:
            looks = torch.tensor(one.alignment)[:, PRESENT[row]].sum(0)
            cost = 0.7 * looks.clamp(max=1.0).log().sum().item()
            costs.append(cost)
            length = len(one.ids) + (one.end is not None)
            assert one.score == pytest.approx(one.log_probability / length + cost, abs=1e-4)
    assert min(costs) < -0.1


def test_a_speaker_with_a_memory_of_its_own_keeps_it() -> None:
    memory = Memory()
    speaker = Continuing(packed(decoders()["GPT"]), memory)
    speaker.next(torch.tensor([[3]]))
    Branching(speaker, 2)
    assert speaker.memory is memory
