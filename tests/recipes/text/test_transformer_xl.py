"""Transformer-XL's segment cache in training and evaluation."""

import random
from pathlib import Path

import pytest
import torch

from softlook.data import read_documents
from softlook.models import TransformerXL, TransformerXLConfig
from softlook.recipes import train_causal_lm
from softlook.recipes.config.schema import BatchConfig, ModelConfig, TokenizerConfig
from softlook.recipes.text.corpus import CorpusSplit, tokenize_split
from softlook.recipes.text.packed_lm import CausalLMObjective, PerplexityEvaluator, contiguous_lanes
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train import OptimizerConfig
from softlook.train.batching.packed_stream import PackedStream, TokenizedDocuments
from tests.recipes.small import causal_lm_config

SEGMENT = 16
CPU = torch.device("cpu")


def echoes(path: Path, count: int = 600) -> Path:
    """Documents that repeat the same letters: each letter last occurred one segment before, and is not predictable from
    the letters in between."""
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdefgh", k=SEGMENT + 1)) * 12 for _ in range(count)]
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_letters_of_the_previous_segment_are_predicted_only_with_the_cache(tmp_path: Path) -> None:
    trained = train_causal_lm(
        causal_lm_config(
            tmp_path,
            steps=400,
            data=(echoes(tmp_path / "echoes.txt"),),
            arch="transformer_xl",
            tokenizer=TokenizerConfig(type="characters"),
            model=ModelConfig(dim=32, depth=2, heads=2, dropout=0.0),
            batch=BatchConfig(max_tokens=1024, max_length=SEGMENT),
            optim=OptimizerConfig(lr=5e-3, warmup=30, schedule="cosine"),
        )
    )
    scores = trained.scores["validation"]
    assert scores["loss_without_cache"] > 2.0  # a uniform guess over eight letters: 2.08
    assert scores["loss"] < 1.0  # measured: 0.65; the first occurrence is not predictable


def model_and_text(tmp_path: Path) -> tuple[TransformerXL, TokenizedDocuments]:
    tokenizer = TextTokenizer(train_tokenizer(["abcdefgh"], model_type="characters", vocab_size=30))
    ids = tokenize_split(CorpusSplit(read_documents(echoes(tmp_path / "echoes.txt", 3))), tokenizer)
    model = TransformerXL(
        TransformerXLConfig(vocab_size=tokenizer.vocab_size, dim=16, depth=2, heads=2, hidden=32)
    ).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)  # so that the cache makes a difference
    return model, ids


@torch.no_grad()
def test_the_validation_loss_does_not_depend_on_row_boundaries(tmp_path: Path) -> None:
    """Nor on documents that start within rows."""
    model, ids = model_and_text(tmp_path)
    evaluators = [
        PerplexityEvaluator(
            PackedStream(ids, context=n * SEGMENT, batch_size=1, seed=0), CausalLMObjective(SEGMENT), CPU
        )
        for n in (1, 3, 50)
    ]
    scores = [evaluator.evaluate_all(1, model) for evaluator in evaluators]
    for other in scores[1:]:
        assert other == pytest.approx(scores[0], rel=1e-5)
    assert abs(scores[0]["loss"] - scores[0]["loss_without_cache"]) > 1e-2


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_lanes_are_contiguous_and_read_every_token_once(rows: int, tmp_path: Path) -> None:
    _, ids = model_and_text(tmp_path)
    lanes = torch.cat(
        [batch.ids for batch in contiguous_lanes(PackedStream(ids, context=SEGMENT, batch_size=rows, seed=0))], 1
    )
    read = lanes.flatten()
    assert lanes.shape[0] == rows
    assert torch.equal(read[: len(ids.ids)], ids.ids.long())
    assert not read[len(ids.ids) :].any()
