"""Language models with a memory: training, checkpoints, generation and the scores of its use."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from softlook.base.errors import ConfigError, WeightsError
from softlook.blocks import AllAttention, KVCache, ProductKeyConfig, ProductKeyMemory
from softlook.models import GPT, GPTConfig
from softlook.recipes import CausalLMConfig, train_causal_lm
from softlook.recipes.config.autosize import ComputeBudget
from softlook.recipes.config.resolve import explicit_overrides
from softlook.recipes.text.causal_lm import CausalLMTask, check_memory, memory_fields
from softlook.recipes.text.memory_scores import memory_scores
from softlook.train.events import Evaluated, Event
from softlook.weights import load, save, to_hugging_face
from softlook.weights.formats.ctranslate2 import to_ctranslate2
from softlook.weights.formats.onnx import to_onnx
from softlook.weights.hugging_face import explain_export
from tests.recipes.small import causal_lm_config, events_of

SIZES: dict[str, Any] = {"vocab_size": 10, "context": 12, "dim": 16, "depth": 2, "heads": 2, "dropout": 0.0}
KEYS = ProductKeyConfig(layer=1, heads=2, n_subkeys=4, top_k=3)
MEMORIES: dict[str, dict[str, Any]] = {
    "product_key": {"product_keys": KEYS},
    "all_attention": {"persistent": 5},
    "all_attention, rotary": {"persistent": 5, "positions": "rotary"},
    "all_attention, alibi": {"persistent": 5, "positions": "alibi", "norm": "post"},
}
IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])


def model(**changes: Any) -> GPT:
    """A GPT with a memory, whose weights are large enough to matter."""
    torch.manual_seed(0)
    built = GPT(GPTConfig(**SIZES, **changes))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return built.eval()


@pytest.mark.parametrize("memory", ["product_key", "all_attention"])
def test_a_model_with_a_memory_learns_and_is_scored(memory: str, tmp_path: Path) -> None:
    events: list[Event] = []
    trained = train_causal_lm(
        causal_lm_config(tmp_path, steps=30, memory=memory, memory_slots=64, no_ngrams=True), [events.append]
    )
    scores = trained.scores["validation"]
    assert scores["loss"] < 2.9  # about 25 characters: a uniform guess costs 3.2
    assert 0 < scores["memory_usage"] <= 1
    assert 0 <= scores["memory_kl"] <= math.log(2 * 64)
    assert ("memory_attention" in scores) == (memory == "all_attention")
    assert events_of(events, Evaluated)[-1].scores.keys() >= {"memory_usage", "memory_kl"}
    assert "memory KL" in (trained.run_dir / "report.html").read_text(encoding="utf-8")
    with_memory = [one for one in trained.model.modules() if isinstance(one, ProductKeyMemory | AllAttention)]
    assert len(with_memory) == 1  # of one block


def test_a_memory_and_an_n_gram_model_are_trained_together(tmp_path: Path) -> None:
    trained = train_causal_lm(causal_lm_config(tmp_path, steps=2, memory="product_key", memory_slots=16))
    assert trained.model.ngrams is not None and "memory_kl" in trained.scores["validation"]  # pyright: ignore


@pytest.mark.parametrize("changes", MEMORIES.values(), ids=MEMORIES)
def test_decoding_with_a_cache_gives_the_logits_of_the_whole_text(changes: dict[str, Any]) -> None:
    gpt, cache = model(**changes), KVCache()
    steps = [gpt(part, cache=cache) for part in IDS.split([3, 1, 2], 1)]
    assert_close(torch.cat(steps, 1), gpt(IDS), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", MEMORIES.values(), ids=MEMORIES)
def test_changing_the_future_does_not_change_the_past(changes: dict[str, Any]) -> None:
    gpt, other = model(**changes), IDS.clone()
    other[:, 4:] = 0
    assert_close(gpt(other)[:, :4], gpt(IDS)[:, :4])


@pytest.mark.parametrize("changes", MEMORIES.values(), ids=MEMORIES)
def test_a_checkpoint_stores_the_memory(changes: dict[str, Any], tmp_path: Path) -> None:
    gpt = model(**changes)
    save(gpt, tmp_path / "saved")
    loaded: Any = load(tmp_path / "saved").eval()
    assert loaded.config == gpt.config
    assert torch.equal(loaded(IDS), gpt(IDS))


@pytest.mark.parametrize("changes", [MEMORIES["product_key"], MEMORIES["all_attention"]], ids=["keys", "persistent"])
def test_formats_without_a_memory_refuse_the_export(changes: dict[str, Any], tmp_path: Path) -> None:
    gpt = model(**changes)
    with pytest.raises(WeightsError, match=r"can be exported \(no --memory\)"):
        to_hugging_face(gpt, tmp_path / "hf")
    with pytest.raises(WeightsError, match="GPTs with the architecture and LM head of GPT-2 only"):
        to_ctranslate2(gpt, tmp_path / "ct2", vocabulary=list("abcdefghij"))
    assert next(iter(changes)) in explain_export(gpt)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [MEMORIES["product_key"], MEMORIES["all_attention"]], ids=["keys", "persistent"])
def test_the_onnx_export_computes_the_memory(changes: dict[str, Any], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    gpt = model(**changes)
    session = onnxruntime.InferenceSession(str(to_onnx(gpt, tmp_path / "onnx") / "model.onnx"))
    assert_close(torch.tensor(session.run(None, {"ids": IDS.numpy()})[0]), gpt(IDS), atol=1e-5, rtol=1e-5)


def test_the_weight_of_each_slot_is_counted() -> None:
    """Zero queries attend to all visible keys alike: of query i, 5 of 5 + i + 1 keys are persistent."""
    gpt = model(persistent=5)
    for block in gpt.blocks:
        nn.init.zeros_(block.attn.to_query.weight)  # pyright: ignore
        nn.init.zeros_(block.attn.to_query.bias)  # pyright: ignore
    with memory_scores(gpt) as scores:
        gpt(IDS)
    assert scores["memory_usage"] == 1.0
    assert scores["memory_kl"] == pytest.approx(0, abs=1e-6)
    assert scores["memory_attention"] == pytest.approx(sum(5 / (5 + i + 1) for i in range(6)) / 6)


def test_a_single_slot_has_the_divergence_of_the_logarithm_of_all_slots() -> None:
    gpt = model(product_keys=ProductKeyConfig(layer=0, heads=1, n_subkeys=4, top_k=1))
    memory: Any = gpt.blocks[0].ffn
    nn.init.zeros_(memory.norm.weight)
    with torch.no_grad():
        memory.norm.bias.copy_(memory.keys.subkeys[0, :, 2].flatten())  # every query is the same
    with memory_scores(gpt) as scores:
        gpt(IDS)
        gpt(IDS[:1])
    assert scores == {"memory_usage": 1 / 16, "memory_kl": pytest.approx(math.log(16))}


def test_a_model_without_a_memory_has_no_scores_of_it() -> None:
    with memory_scores(model()) as scores:
        pass
    assert scores == {}


def test_persistent_vectors_have_as_many_weights_as_a_feed_forward_layer_by_default() -> None:
    config = CausalLMConfig.model_validate({"memory": "all_attention", "model": {"dim": 8, "depth": 1}})
    assert memory_fields(config) == {"persistent": 32}


def test_a_memory_selects_a_gpt_even_if_time_is_short() -> None:
    budget = ComputeBudget(torch.device("cpu"), 1e9, minutes=3.0, is_explicit=True)
    overrides = explicit_overrides(CausalLMConfig.model_validate({"data": ["a.txt"], "memory": "product_key"}))
    assert "arch" not in CausalLMTask().autosize(1_000_000, overrides, budget).values


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory": "product_key", "arch": "llama"}, "option of a new model with arch=gpt, got arch=llama"),
        ({"memory": "product_key", "init_from": "folder"}, "option of a new model with arch=gpt, got init_from"),
        ({"memory_slots": 16}, "memory_slots needs a memory"),
    ],
)
def test_a_memory_without_a_place_raises_an_error(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_memory(CausalLMConfig.model_validate(fields))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"persistent": 4, "product_keys": KEYS}, "persistent replaces the feed-forward layers"),
        ({"persistent": 4, "parallel": True}, "persistent replaces the feed-forward layers"),
        ({"product_keys": ProductKeyConfig(layer=2)}, r"layer must be from 0 to depth - 1 = 1, got 2"),
    ],
)
def test_options_that_exclude_each_other_raise_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GPT(GPTConfig(**SIZES, **changes))
