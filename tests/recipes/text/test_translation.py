"""Translation models learn with every architecture and option."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import DataError
from softlook.recipes import train_translation
from softlook.recipes.config.schema import DecodeConfig, TokenizerConfig, TranslationBatchConfig
from softlook.recipes.inference.translation import translate_texts
from softlook.recipes.text.pair_batches import BPEDropoutBatches
from softlook.train.batching.batches import DataCursor
from softlook.train.events import Evaluated, Event, StepLogged
from tests.recipes.small import digits, events_of, translation_config


def test_it_learns_to_reverse_numbers(tmp_path: Path) -> None:
    test = digits(tmp_path / "test.tsv", 40)
    trained = train_translation(
        translation_config(
            tmp_path, steps=400, test=(test,), tokenizer=TokenizerConfig(type="characters"), train={"ema_decay": 0.0}
        )
    )
    assert trained.scores["test"]["bleu"] > 50
    assert trained.scores["test"]["bleu_signature"].startswith("nrefs:1")
    assert translate_texts(trained.model, trained.tokenizer, ["1 2 3"]) == ["3 2 1"]


OPTIONS: dict[str, dict[str, Any]] = {
    "RNNsearch": {"arch": "rnn_search"},
    "post-norm": {"model": {"dim": 32, "depth": 1, "heads": 2, "dropout": 0.1, "norm": "post"}},
    "R-Drop": {"reg": {"rdrop_alpha": 5.0}},
    "BPE dropout": {"tokenizer": TokenizerConfig(type="bpe", vocab_size=300, bpe_dropout=0.1)},
    "bytes": {"tokenizer": TokenizerConfig(type="bytes")},
    "best by BLEU": {"decode": DecodeConfig(monitor="bleu")},
    "EMA": {"train": {"ema_decay": 0.9}},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_learns(option: str, tmp_path: Path) -> None:
    events: list[Event] = []
    train_translation(translation_config(tmp_path, **{"steps": 30, **OPTIONS[option]}), [events.append])
    first, *_, last = [event.loss for event in events_of(events, StepLogged)]
    assert last < 0.9 * first
    assert set(events_of(events, Evaluated)[-1].scores) >= {"loss", "bleu"}


@pytest.mark.parametrize("model", ["transformer", "rnn_search"])
@pytest.mark.parametrize("beams", [1, 3])
def test_batched_translations_equal_single_ones(model: str, beams: int, tmp_path: Path) -> None:
    trained = train_translation(translation_config(tmp_path, steps=20, arch=model))
    texts = ["1 2 3", "4", "5 6 7 8 9", ""]
    batched = translate_texts(trained.model, trained.tokenizer, texts, num_beams=beams)
    single = [translate_texts(trained.model, trained.tokenizer, [text], num_beams=beams)[0] for text in texts]
    assert batched == single


def test_bpe_dropout_depends_on_seed_and_epoch_only(tmp_path: Path) -> None:
    config = translation_config(
        tmp_path,
        tokenizer=TokenizerConfig(type="bpe", vocab_size=300, bpe_dropout=0.3),
        batch=TranslationBatchConfig(max_tokens=400),
    )
    trained = train_translation(config)
    texts = (["1 2 3 4 5"] * 50, ["5 4 3 2 1"] * 50)
    resolved = trained.resolved.config

    def batches(cursor: DataCursor, count: int) -> list[Any]:
        source = BPEDropoutBatches(
            texts, trained.tokenizer, resolved, lambda items: torch.tensor([len(a) for a, _ in items])
        )
        return [batch for _, (_, batch) in zip(range(count), source.iter_from(cursor), strict=False)]

    uninterrupted = batches(DataCursor(), 12)
    epoch = len(BPEDropoutBatches(texts, trained.tokenizer, resolved, list).epoch(0).epoch(0))
    resumed = batches(DataCursor(1, 0), 12 - epoch)
    assert epoch < 12
    for one, other in zip(uninterrupted[epoch:], resumed, strict=True):
        assert torch.equal(one, other)
    assert [batch.tolist() for batch in uninterrupted[:epoch]] != [batch.tolist() for batch in resumed[:epoch]]


def test_only_pairs_over_the_length_limit_are_skipped(tmp_path: Path) -> None:
    long = tmp_path / "long.tsv"
    long.write_text("".join(f"one more word {n}\tand another {n}\n" for n in range(99)), encoding="utf-8")
    config = translation_config(
        tmp_path, data=(long,), tokenizer=TokenizerConfig(type="bytes"), batch=TranslationBatchConfig(max_length=8)
    )
    with pytest.raises(DataError, match="every pair is longer than 8 tokens"):
        train_translation(config)
    train_translation(
        translation_config(
            tmp_path, tokenizer=TokenizerConfig(type="bytes"), batch=TranslationBatchConfig(max_length=8)
        )
    )
