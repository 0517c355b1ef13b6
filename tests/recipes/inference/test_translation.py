"""Batches of texts to translate, and long texts."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.decode.generation_config import default_max_new_tokens
from softlook.recipes.inference import Pipeline, load_pipeline, translate
from softlook.recipes.inference.translation import (
    MAX_BATCH_SIZE,
    MAX_BATCH_TOKENS,
    MIN_BATCH_TOKENS,
    make_batches,
    max_batch_tokens,
    translate_texts,
)

LONG = "jeudi 3 mars 2022. 25 décembre 1999.  Le 1er mai 1998"
"""Three dates, of which the model reads one at a time."""


@pytest.fixture(scope="module")
def sentence_model() -> Pipeline:
    """The date model, as if it had been trained on texts of less than 30 characters."""
    return replace(load_pipeline("dates", device="cpu"), max_length=30)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_long_text_is_translated_sentence_by_sentence(
    sentence_model: Pipeline, num_beams: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "softlook.recipes")
    long, short = translate(sentence_model, [f" {LONG} ", "1/2/03"], num_beams=num_beams)
    assert long.text == "2022-03-03 1999-12-25  1998-05-01"
    parts = translate(
        sentence_model, ["jeudi 3 mars 2022.", "25 décembre 1999.", "Le 1er mai 1998"], num_beams=num_beams
    )
    assert long.candidates[0].logprob == pytest.approx(sum(one.candidates[0].logprob for one in parts), abs=1e-4)
    assert short == translate(sentence_model, ["1/2/03"], num_beams=num_beams)[0]
    assert [one.message for one in caplog.records] == [
        "1 text has more than 30 tokens: translating 3 parts, by sentence."
    ]


def test_candidates_of_a_long_text_combine_those_of_its_parts(sentence_model: Pipeline) -> None:
    first, second = translate(sentence_model, [LONG], n_best=2)[0].candidates
    assert first.score > second.score and all(
        a != b for a, b in zip(first.text.split(), second.text.split(), strict=True)
    )


def test_the_parts_of_a_long_text_are_aligned_separately(sentence_model: Pipeline) -> None:
    alignment = translate(sentence_model, [LONG], with_alignment=True)[0].candidates[0].alignment
    assert alignment is not None and "".join(alignment.source) == LONG
    assert "".join(alignment.target) == "2022-03-03 1999-12-25  1998-05-01"
    assert alignment.word_pairs() == [(3, 0), (6, 1), (10, 2)]
    assert alignment.weights[:10, len("jeudi 3 mars 2022.") :].count_nonzero() == 0


def test_texts_within_the_limit_are_split_on_request_only() -> None:
    model, dates = load_pipeline("dates", device="cpu"), ["3 mars 2022!", "4 mars 2022"]
    text, expected = " ".join(dates), " ".join(one.text for one in translate(model, dates))
    assert translate(model, [text], split_sentences=True)[0].text == expected
    assert translate(model, [text])[0].text == translate_texts(model.model, model.tokenizer, [text], num_beams=4)[0]


def test_translate_texts_splits_long_texts_too(sentence_model: Pipeline) -> None:
    model, tokenizer = sentence_model.model, sentence_model.tokenizer
    assert translate_texts(model, tokenizer, [LONG, ""], max_length=30)[0] == "2022-03-03 1999-12-25  1998-05-01"


@given(st.lists(st.integers(1, 90), max_size=200), st.integers(1, 8), st.integers(1, 3000))
def test_every_text_is_in_one_batch_within_the_limit(lengths: list[int], beams: int, max_tokens: int) -> None:
    batches = list(make_batches(lengths, beams, max_tokens))
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) * beams <= max_tokens
        assert len({default_max_new_tokens(lengths[number]) for number in batch}) == 1


def test_batches_have_a_maximum_size() -> None:
    assert [len(batch) for batch in make_batches([1] * (2 * MAX_BATCH_SIZE + 1), 1, 10**9)] == [
        MAX_BATCH_SIZE,
        MAX_BATCH_SIZE,
        1,
    ]


@pytest.mark.parametrize(
    ("gigabytes", "max_tokens"), [(1, MIN_BATCH_TOKENS), (24, 24 * 2048), (140, MAX_BATCH_TOKENS)], ids=str
)
def test_the_batch_size_grows_with_gpu_memory(gigabytes: int, max_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(total_memory=gigabytes << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert max_batch_tokens(torch.device("cuda")) == max_tokens
    assert max_batch_tokens(torch.device("cpu")) == MIN_BATCH_TOKENS
