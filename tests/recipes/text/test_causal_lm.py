"""Causal language models."""

import math
from pathlib import Path

import pytest
import torch

from softlook.data import read_documents
from softlook.models import GPT, GPTConfig, TransformerXL, TransformerXLConfig
from softlook.recipes import train_causal_lm
from softlook.recipes.config.autosize import ComputeBudget
from softlook.recipes.config.resolve import explicit_overrides
from softlook.recipes.config.schema import BatchConfig, CausalLMConfig, TokenizerConfig
from softlook.recipes.text.causal_lm import CausalLMTask
from softlook.recipes.text.corpus import CorpusSplit, count_utf8_bytes, tokenize_split
from softlook.recipes.text.packed_lm import CausalLMObjective, SingleDocumentBatch, simplify_batch
from softlook.train.batching.packed_stream import PackedStream
from softlook.train.events import Evaluated, Event
from tests.recipes.small import causal_lm_config, events_of, sentences


@pytest.mark.parametrize("model", ["gpt", "llama", "transformer_xl", "convolution", "fast_weights"])
def test_every_architecture_learns(model: str, tmp_path: Path) -> None:
    events: list[Event] = []
    trained = train_causal_lm(
        causal_lm_config(tmp_path, steps=40, arch=model, batch=BatchConfig(max_tokens=512, max_length=32)),
        [events.append],
    )
    scores = trained.scores["validation"]
    assert scores["loss"] < 2.8  # about 25 characters: a uniform guess costs 3.2
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert events_of(events, Evaluated)[-1].scores["loss"] == pytest.approx(scores["loss"], rel=0.05)


@pytest.mark.parametrize(
    ("speed", "init_from", "arch"), [(1e9, None, "llama"), (1e15, None, None), (1e9, "gpt2", None)]
)
def test_a_llama_is_selected_if_time_is_short(speed: float, init_from: str | None, arch: str | None) -> None:
    budget = ComputeBudget(torch.device("cpu"), speed, minutes=3.0, is_explicit=True)
    overrides = explicit_overrides(
        CausalLMConfig.model_validate({"data": ["a.txt"]} | ({"init_from": init_from} if init_from else {}))
    )
    assert CausalLMTask().autosize(1_000_000, overrides, budget).values.get("arch") == arch


def test_bits_per_byte_are_comparable_across_tokenizers(tmp_path: Path) -> None:
    """Untrained models: a uniform guess costs log2(vocab_size) bits per token."""
    found = {}
    for kind in ("bytes", "characters"):
        trained = train_causal_lm(
            causal_lm_config(
                tmp_path, 1, run_dir=tmp_path / kind, tokenizer=TokenizerConfig(type=kind), optim={"lr": 1e-9}
            )
        )
        scores = trained.scores["validation"]
        assert scores["bits_per_byte"] == pytest.approx(
            scores["loss"] / math.log(2) * scores["tokens"] / scores["bytes"]
        )
        found[kind] = scores
    assert found["bytes"]["bytes"] == found["characters"]["bytes"]
    assert found["bytes"]["loss"] > found["characters"]["loss"]


def test_attention_does_not_cross_documents(tmp_path: Path) -> None:
    """Two documents in a row have the same loss as each alone."""
    model = GPT(GPTConfig(vocab_size=300, context=16, dim=16, depth=1, heads=2, dropout=0.0)).eval()
    table = tmp_path / "a.jsonl"
    table.write_text('{"text": "abc"}\n{"text": "defg"}\n', encoding="utf-8")
    trained = train_causal_lm(causal_lm_config(tmp_path, tokenizer=TokenizerConfig(type="bytes")))
    tokens = tokenize_split(CorpusSplit(read_documents(table)), trained.tokenizer)
    assert count_utf8_bytes(CorpusSplit(read_documents(table))) == 7
    packed = simplify_batch(PackedStream(tokens, context=16, batch_size=1, seed=0).tokens.pack([0], 16))
    single = [
        SingleDocumentBatch(ids[:, :-1], ids[:, 1:])
        for ids in (tokens.ids[None, :5].long(), tokens.ids[None, 5:].long())
    ]
    objective = CausalLMObjective(16)
    assert not isinstance(packed, SingleDocumentBatch)
    packed_loss, single_losses = objective(model, packed), [objective(model, rows) for rows in single]
    assert int(packed_loss.count) == sum(int(loss.count) for loss in single_losses) == 9
    torch.testing.assert_close(packed_loss.total, single_losses[0].total + single_losses[1].total)


def test_single_document_rows_have_the_same_loss_without_a_mask(tmp_path: Path) -> None:
    model = GPT(GPTConfig(vocab_size=300, context=8, dim=16, depth=1, heads=2, dropout=0.0)).eval()
    trained = train_causal_lm(causal_lm_config(tmp_path, tokenizer=TokenizerConfig(type="bytes")))
    tokens = tokenize_split(CorpusSplit(read_documents(sentences(tmp_path / "more.txt"))), trained.tokenizer)
    rows = tokens.pack([0, 8], 8)
    assert isinstance(simplify_batch(rows), SingleDocumentBatch)
    torch.testing.assert_close(
        CausalLMObjective(8)(model, rows).total, CausalLMObjective(8)(model, simplify_batch(rows)).total
    )


def test_transformer_xl_carries_its_cache_across_segments() -> None:
    """Segments with a cache have the same loss as the whole row; without a cache they do not."""
    model = TransformerXL(TransformerXLConfig(vocab_size=20, dim=16, depth=1, heads=2, hidden=32, dropout=0.0)).eval()
    ids = torch.randint(20, (2, 17))
    rows = SingleDocumentBatch(ids[:, :-1], ids[:, 1:])
    full, segments = CausalLMObjective(16)(model, rows), CausalLMObjective(8)(model, rows)
    uncached = CausalLMObjective(8, use_cache=False)(model, rows)
    torch.testing.assert_close(full.total, segments.total)
    assert abs((uncached.total - full.total).item()) > 1e-4


def test_training_from_disk_equals_training_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = train_causal_lm(causal_lm_config(tmp_path, run_dir=tmp_path / "memory"))
    monkeypatch.setattr("softlook.recipes.text.corpus.DISK_THRESHOLD", 10)
    on_disk, from_cache = (
        train_causal_lm(causal_lm_config(tmp_path, run_dir=tmp_path / name)) for name in ("disk", "cache")
    )
    assert len(list((tmp_path / ".tokens").iterdir())) == 1
    assert on_disk.scores == in_memory.scores == from_cache.scores


def test_initialized_weights_limit_the_context(tmp_path: Path) -> None:
    first = train_causal_lm(causal_lm_config(tmp_path, batch=BatchConfig(max_tokens=256, max_length=16)))
    tuned = train_causal_lm(
        causal_lm_config(
            tmp_path, 2, run_dir=tmp_path / "tuned", batch=BatchConfig(max_length=64), init_from=first.run_dir
        )
    )
    assert tuned.scores["validation"]["loss"] == pytest.approx(first.scores["validation"]["loss"], abs=0.5)
