"""Entities have their text, label, probability and character offsets."""

from pathlib import Path

import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.recipes.inference import Entity, Pipeline, classify, embed, load_pipeline, tag
from softlook.recipes.inference.tagging import entities_of, word_logits
from softlook.tokens.words import WordEncoder, split_words
from tests.recipes.trained_runs import train_runs

LABELS = ["O", "B-PER", "I-PER"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return load_pipeline(train_runs(tmp_path_factory.mktemp("runs"), "tag")["tag"], device="cpu")


def test_entities_are_cut_from_the_text() -> None:
    text = "so  Ada Lovelace, sang"
    words = split_words(text)
    logits = torch.tensor([[9.0, 0, 0], [0, 9, 0], [0, 0, 9], [9, 0, 0], [9, 0, 0]])
    [entity] = entities_of(text, words, logits, LABELS)
    assert entity.probability == pytest.approx(logits.softmax(-1).max().item())
    assert entity == Entity("Ada Lovelace", "PER", entity.probability, 4, 16)
    assert entities_of("", [], torch.empty(0, 3), LABELS) == []


def test_offsets_are_those_of_the_text(run: Pipeline) -> None:
    texts = ["On 3 May 2021, Mira Kalu flew from Velu to Corjo. " * 30, "", "  ", "It rained."]
    results = tag(run, texts)
    assert [result.text for result in results] == texts
    for result in results:
        assert all(result.text[one.start : one.end] == one.text for one in result.entities)
        assert all(0 < one.probability <= 1 for one in result.entities)


def test_a_long_text_is_tagged_to_its_end(run: Pipeline) -> None:
    words = [word.text for word in split_words("Mira Kalu lives in Velu. " * 100)]
    encoder = WordEncoder(run.tokenizer, 128)
    [logits] = word_logits(run.model, encoder, [words])
    assert len(encoder.encode([words])[0]) > 3 and logits.shape == (len(words), len(run.labels))


def test_the_result_does_not_depend_on_the_other_texts(run: Pipeline) -> None:
    texts = ["Mira Kalu lives in Velu.", "It rained in Velu on 3 May 2021 ."]
    together = tag(run, texts)
    for result, text in zip(together, texts, strict=True):
        [alone] = tag(run, [text])
        assert [(one.text, one.label) for one in alone.entities] == [(one.text, one.label) for one in result.entities]


def test_words_may_be_given_with_spaces_between_them(run: Pipeline) -> None:
    [result] = tag(run, ["U.S.A.-based Velu,"], is_split_into_words=True)
    assert {one.text for one in result.entities} <= {"U.S.A.-based", "Velu,", "U.S.A.-based Velu,"}


def test_a_tagger_tags_and_embeds_but_does_not_classify(run: Pipeline) -> None:
    assert run.task == "tag" and embed(run, ["a"]).shape == (1, run.model.config.dim)
    with pytest.raises(ConfigError, match="its task is tag"):
        classify(run, ["a"])


def test_only_a_tagger_tags(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot tag; its task is translate"):
        tag(load_pipeline("dates", device="cpu"), ["a"])
