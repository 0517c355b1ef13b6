"""Evaluating a trained run on other data."""

from pathlib import Path

import pytest

from softlook.base.errors import ConfigError
from softlook.recipes import evaluate, train_causal_lm, train_masked_lm, train_translation, train_word2vec
from tests.recipes.small import (
    causal_lm_config,
    digits,
    masked_lm_config,
    sentences,
    translation_config,
    word2vec_config,
)


def test_translation_models_get_bleu_and_chrf_with_signatures(tmp_path: Path) -> None:
    run = train_translation(translation_config(tmp_path)).run_dir
    scores = evaluate(run, (digits(tmp_path / "test.tsv", 20),), device="cpu")
    assert scores.keys() == {
        "examples",
        "bleu",
        "bleu_lowercase",
        "bleu_pretokenized",
        "chrf",
        "bleu_signature",
        "chrf_signature",
    }


def test_language_models_get_perplexity_and_bits_per_byte(tmp_path: Path) -> None:
    run = train_causal_lm(causal_lm_config(tmp_path)).run_dir
    scores = evaluate(run, (sentences(tmp_path / "other.txt", 5),), device="cpu")
    assert scores["bytes"] == (tmp_path / "other.txt").stat().st_size
    assert scores["perplexity"] > 1


def test_test_data_are_scored_as_other_data_are(tmp_path: Path) -> None:
    test = (sentences(tmp_path / "test.txt", 5),)
    causal = train_causal_lm(causal_lm_config(tmp_path, test=test, run_dir=tmp_path / "causal"))
    masked = train_masked_lm(masked_lm_config(tmp_path, test=test, run_dir=tmp_path / "masked"))
    for trained in (causal, masked):
        scores = evaluate(trained.run_dir, test, device="cpu")
        assert trained.scores["test"] == pytest.approx(scores, rel=1e-5)


def test_test_data_of_word_vectors_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no score on test data. Remove --test"):
        train_word2vec(word2vec_config(tmp_path, test=(sentences(tmp_path / "test.txt", 5),)))


def test_word_vectors_have_no_score(tmp_path: Path) -> None:
    run = train_word2vec(word2vec_config(tmp_path)).run_dir
    with pytest.raises(ConfigError, match="word vectors have no score on other data"):
        evaluate(run, (tmp_path / "words.txt",), device="cpu")


def test_a_folder_that_is_not_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run directory: it has no settings.json"):
        evaluate(tmp_path, (tmp_path,))
