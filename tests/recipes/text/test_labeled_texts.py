"""Labeled texts: long ones keep their beginning and end, and what is left out is reported."""

import re
from pathlib import Path

import pytest
import torch

from softlook.data import LabeledText
from softlook.recipes import train_classification
from softlook.recipes.config.schema import BatchConfig, ClassificationConfig
from softlook.recipes.text.labeled_texts import (
    ClassificationCollator,
    describe_lengths,
    drop_words,
    select_batch_tokens,
    select_max_length,
)
from softlook.recipes.text.problems import SingleLabel
from softlook.tokens import TextTokenizer, train_tokenizer
from tests.recipes.small import classification_config


def collator(max_length: int) -> ClassificationCollator:
    tokenizer = TextTokenizer(train_tokenizer(["abcdefghij"], model_type="characters"))
    return ClassificationCollator(tokenizer, max_length, SingleLabel(["bad", "good"]))


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    made = collator(max_length=11)
    [(ids, pair, label)] = made.encode([LabeledText("abcdefghij" * 5 + "jihg", None, "good")])
    assert made.tokenizer.decode(ids) == "abcdefhg"
    assert (list(pair), label) == ([], 1)
    assert made([(ids, pair, label)]).ids.shape[1] <= 11


def test_a_text_that_fits_is_complete() -> None:
    made = collator(max_length=64)
    [(ids, _, _)] = made.encode([LabeledText("abcdefghij", None, "bad")])
    assert made.tokenizer.decode(ids) == "abcdefghij"
    assert (made.truncated_texts, made.truncated_tokens) == (0, 0)


def test_both_texts_of_a_long_pair_are_used() -> None:
    made = collator(max_length=13)
    [(first, second, _)] = made.encode([LabeledText("a" * 50, "b" * 50, "bad")])
    assert {len(first), len(second)} == {5}


@pytest.mark.parametrize("max_length", [13, 23, 43])
def test_the_tokens_that_are_not_used_are_counted(max_length: int) -> None:
    """Whether a text was truncated when it was stored, or is truncated in its batch; to a token per text."""
    texts = [LabeledText("a" * length, None, "bad") for length in (5, 30, 100)]
    stored = collator(max_length=43)
    rows = stored.encode(texts)
    lengths = torch.tensor([stored.length(row) for row in rows])
    used = sum(len(ids) for ids, *_ in collator(max_length).encode(texts))
    [message] = describe_lengths(stored, lengths, max_length)
    reported = re.search(r"(\d+) tokens \(", message)
    assert reported and int(reported[1]) == pytest.approx(135 - used, abs=len(texts)), message


def test_nothing_is_reported_about_short_texts() -> None:
    assert describe_lengths(collator(32), torch.tensor([5, 9]), 32) == ["Texts of up to 32 tokens."]


def test_a_run_reports_the_tokens_that_it_does_not_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "softlook"):
        train_classification(classification_config(tmp_path, 1, batch=BatchConfig(max_length=4)))
    assert "Texts of up to 4 tokens. 1" in caplog.text
    assert "are longer: their first and last tokens are used" in caplog.text


def test_the_maximum_length_covers_nearly_all_texts() -> None:
    lengths = torch.cat([torch.full((990,), 100), torch.full((10,), 5000)])
    assert select_max_length(lengths) == 128
    assert select_max_length(torch.full((10,), 5000)) == 512


def test_batches_of_long_texts_have_more_tokens() -> None:
    config = ClassificationConfig()
    sizes = [select_batch_tokens(length, config) for length in (5, 100, 400, 5000)]
    assert sizes == [1024, 3200, 12_800, 16_384]


def test_word_dropout_keeps_the_class_token_and_hides_no_padding() -> None:
    made = collator(64)
    batch = made(made.encode([LabeledText("abcdefghij", None, "bad"), LabeledText("ab", None, "good")]))
    dropped = drop_words(0.99, batch, torch.Generator().manual_seed(0)).padding_mask
    assert dropped[:, 0].all()
    assert not (dropped & ~batch.padding_mask).any()
    assert dropped.sum() < batch.padding_mask.sum() / 2
