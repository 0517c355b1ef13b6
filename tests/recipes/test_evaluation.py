"""A finished run can be tested on other data."""

from pathlib import Path

import pytest

from softlook.base.errors import ConfigError
from softlook.recipes import evaluate, lm, translate, vectors
from tests.recipes.small import digits, language, near, sentences, translating


def test_a_translator_gets_bleu_and_chrf_with_their_signatures(tmp_path: Path) -> None:
    run = translate(translating(tmp_path)).folder
    scores = evaluate(run, (digits(tmp_path / "test.tsv", 20),), device="cpu")
    assert scores.keys() == {
        "examples",
        "bleu",
        "bleu_lowercase",
        "bleu_as_cut",
        "chrf",
        "bleu_signature",
        "chrf_signature",
    }


def test_a_language_model_gets_perplexity_and_bits_per_byte(tmp_path: Path) -> None:
    run = lm(language(tmp_path)).folder
    scores = evaluate(run, (sentences(tmp_path / "other.txt", 5),), device="cpu")
    assert scores["bytes"] == (tmp_path / "other.txt").stat().st_size
    assert scores["perplexity"] > 1


def test_vectors_have_no_score(tmp_path: Path) -> None:
    run = vectors(near(tmp_path)).folder
    with pytest.raises(ConfigError, match="there is no score for that"):
        evaluate(run, (tmp_path / "words.txt",), device="cpu")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no run: it holds no settings.json"):
        evaluate(tmp_path, (tmp_path,))
