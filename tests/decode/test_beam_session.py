"""Beam search with real models: shared sources, alignments and left-padded prompts."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from softlook.blocks import KVCache
from softlook.decode import CausalLMSession, Seq2SeqSession, beam_search
from softlook.decode.beam.hypotheses import Hypothesis
from softlook.decode.cpu import prepack_for_cpu
from softlook.decode.sessions import BeamSession
from softlook.models import GPT, T5, GPTConfig, Llama, LlamaConfig, T5Config, Transformer, TransformerConfig

SOURCE = torch.tensor([[3, 1, 4, 1, 5], [5, 2, 6, 0, 0], [7, 7, 0, 0, 0]])
SOURCE_MASK = torch.arange(5) < torch.tensor([[5], [3], [2]])
BEGIN = torch.full((3, 1), 1)


def with_large_weights(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=2 * parameter.shape[-1] ** -0.5)
    return model.eval()


def translators() -> dict[str, nn.Module]:
    torch.manual_seed(1)
    return {
        "post": with_large_weights(Transformer(TransformerConfig(vocab_size=9, dim=16, depth=2, heads=2))),
        "pre": with_large_weights(
            Transformer(TransformerConfig(vocab_size=9, dim=16, depth=2, heads=2, norm="pre", activation="gelu"))
        ),
        "T5": with_large_weights(T5(T5Config(vocab_size=9, dim=16, depth=2, heads=2, head_dim=8, hidden=24))),
    }


def decoders() -> dict[str, nn.Module]:
    torch.manual_seed(1)
    return {
        "GPT": with_large_weights(GPT(GPTConfig(vocab_size=9, context=16, dim=16, depth=2, heads=2))),
        "Llama": with_large_weights(Llama(LlamaConfig(vocab_size=9, context=16, dim=16, depth=2, heads=4, kv_heads=2))),
        "windowed": with_large_weights(
            Llama(LlamaConfig(vocab_size=9, context=16, dim=16, depth=2, heads=2, sliding_window=3))
        ),
    }


def assert_same(found: list[Hypothesis], other: list[Hypothesis]) -> None:
    assert [one.ids for one in found] == [one.ids for one in other]
    assert [one.score for one in found] == pytest.approx([one.score for one in other], abs=1e-4)


@pytest.mark.parametrize("copy", ["plain", "prepacked"])
@pytest.mark.parametrize("name", ["post", "pre", "T5"])
def test_batched_translations_equal_single_ones(name: str, copy: str) -> None:
    model = translators()[name]
    used = prepack_for_cpu(model) if copy == "prepacked" else model
    batched = beam_search(Seq2SeqSession(used, SOURCE, SOURCE_MASK), BEGIN, eos_ids=2, max_new_tokens=7, num_beams=3)
    for row in range(3):
        source = SOURCE[row : row + 1, : int(SOURCE_MASK[row].sum())]
        assert_same(
            batched[row],
            beam_search(Seq2SeqSession(model, source), BEGIN[:1], eos_ids=2, max_new_tokens=7, num_beams=3)[0],
        )


@pytest.mark.parametrize("copy", ["plain", "prepacked"])
@pytest.mark.parametrize("name", ["GPT", "Llama", "windowed"])
def test_prompts_of_different_lengths_equal_single_ones(name: str, copy: str) -> None:
    model, prompts = decoders()[name], [[3, 1, 4], [5], [7, 6]]
    used = prepack_for_cpu(model) if copy == "prepacked" else model
    batched = beam_search(CausalLMSession(used), prompts, eos_ids=2, max_new_tokens=6, num_beams=3)
    unpadded = beam_search(
        CausalLMSession(used), torch.tensor([[3, 1, 4], [8, 8, 8]]), eos_ids=2, max_new_tokens=6, num_beams=3
    )
    for row, prompt in enumerate(prompts):
        alone = beam_search(CausalLMSession(model), torch.tensor([prompt]), eos_ids=2, max_new_tokens=6, num_beams=3)[0]
        assert_same(batched[row], alone)
        if row == 0:
            assert_same(unpadded[0], alone)


@pytest.mark.parametrize("copy", ["plain", "prepacked"])
def test_beam_logprobs_equal_a_full_forward_pass(copy: str) -> None:
    model = translators()["post"]
    used = prepack_for_cpu(model) if copy == "prepacked" else model
    for one in beam_search(Seq2SeqSession(used, SOURCE[:1]), BEGIN[:1], eos_ids=2, max_new_tokens=6, num_beams=4)[0]:
        tokens = [*one.ids, *([] if one.eos_id is None else [one.eos_id])]
        logprobs = model(SOURCE[:1], torch.tensor([[1, *tokens[:-1]]])).log_softmax(-1)[0]
        expected = logprobs[range(len(tokens)), tokens].tolist()
        assert one.logprobs == pytest.approx(expected, abs=1e-4)


def test_sources_are_encoded_once_and_shared_by_beams() -> None:
    model, rows = translators()["post"], list[int]()
    block = model.get_submodule("decoder.blocks.0.cross_attn.core")
    hook = block.register_forward_pre_hook(lambda module, args: rows.append(len(args[1])))
    with mock.patch.object(model, "encode", wraps=model.encode) as encode:
        beam_search(
            Seq2SeqSession(model, SOURCE, SOURCE_MASK),
            BEGIN,
            eos_ids=2,
            max_new_tokens=5,
            min_new_tokens=4,
            num_beams=4,
        )
    hook.remove()
    assert encode.call_count == 1
    assert rows == [3] * 5  # three sources, although there are twelve rows from the second token on


def test_finished_sequences_leave_the_batch() -> None:
    model, rows = translators()["post"], list[int]()
    hook = model.get_submodule("decoder").register_forward_pre_hook(lambda module, args: rows.append(len(args[0])))
    with torch.no_grad():
        found = beam_search(
            Seq2SeqSession(model, SOURCE, SOURCE_MASK),
            BEGIN,
            eos_ids=0,
            max_new_tokens=12,
            num_beams=1,
            length_penalty=0.0,
        )
    hook.remove()
    lengths = sorted(len(one[0].ids) + (one[0].eos_id is not None) for one in found)
    assert len(set(lengths)) > 1
    assert rows == [sum(length > step for length in lengths) for step in range(max(lengths))]


@pytest.mark.parametrize("copy", ["plain", "prepacked"])
@pytest.mark.parametrize("name", ["post", "T5"])
def test_alignment_is_the_last_layers_cross_attention(name: str, copy: str) -> None:
    model = translators()[name]
    used = prepack_for_cpu(model) if copy == "prepacked" else model
    found = beam_search(
        Seq2SeqSession(used, SOURCE, SOURCE_MASK),
        BEGIN,
        eos_ids=2,
        max_new_tokens=5,
        num_beams=3,
        return_alignment=True,
    )
    seen: list[Tensor] = []
    core: Any = model.get_submodule("decoder.blocks.1.cross_attn.core")
    hook = core.register_forward_hook(
        lambda module, args, out: seen.append(module.weights(*args[:2], *args[3:])[0].mean(0))
    )
    for row in range(3):
        for one in found[row]:
            tokens = [1, *one.ids, *([] if one.eos_id is None else [one.eos_id])][:-1]
            with torch.no_grad():
                model(SOURCE[row : row + 1], torch.tensor([tokens]), source_padding_mask=SOURCE_MASK[row : row + 1])
            assert one.alignment is not None
            torch.testing.assert_close(torch.tensor(one.alignment), seen[-1], atol=1e-5, rtol=0)
    hook.remove()
    assert all(not part._forward_hooks for part in used.modules())


def test_coverage_penalty_formula() -> None:
    model, costs = translators()["post"], list[float]()
    for row, found in enumerate(
        beam_search(
            Seq2SeqSession(model, SOURCE, SOURCE_MASK),
            BEGIN,
            eos_ids=2,
            max_new_tokens=6,
            num_beams=4,
            coverage_penalty=0.7,
            return_alignment=True,
        )
    ):
        assert found == sorted(found, reverse=True)
        for one in found:
            coverage = torch.tensor(one.alignment)[:, SOURCE_MASK[row]].sum(0)
            cost = 0.7 * coverage.clamp(max=1.0).log().sum().item()
            costs.append(cost)
            length = len(one.ids) + (one.eos_id is not None)
            assert one.score == pytest.approx(one.logprob / length + cost, abs=1e-4)
    assert min(costs) < -0.1


def test_custom_cache_is_kept() -> None:
    cache = KVCache()
    session = CausalLMSession(prepack_for_cpu(decoders()["GPT"]), cache)
    session.step(torch.tensor([[3]]))
    BeamSession(session, 2)
    assert session.cache is cache
