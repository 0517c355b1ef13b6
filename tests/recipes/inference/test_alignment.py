"""The attention of RNNsearch aligns words (examples/alignment.py)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from softlook.recipes.inference.translation import translate_texts

EXAMPLE = Path(__file__).parents[3] / "examples/alignment.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("alignment", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


def test_the_artificial_language(example: ModuleType) -> None:
    sentence = example.Sentence(("today", "red", "house", "meets", "small", "dog"), (2, 1, 0, 5, 4, 3))
    assert sentence.target == "esuoh der yadot god llams steem"
    classes = {word: word_class for word_class, words in example.LEXICON.items() for word in words}
    for one in example.make_sentences(5, 100):
        assert sorted(one.order) == list(range(len(one.words))) and len({*one.words}) == len(one.words)
        generated = [classes[word[::-1]] for word in one.target.split()]
        assert generated[0] == "noun" and generated[-1] == "verb"


@pytest.mark.slow
def test_attention_aligns_translated_words_with_their_sources(example: ModuleType, tmp_path: Path) -> None:
    training = example.make_sentences(0, 3000)
    model, tokenizer = example.train(training, tmp_path, steps=300)
    seen = {one.source for one in training}
    unseen = [one for one in example.make_sentences(1, 150) if one.source not in seen]
    aligned, total = example.count_aligned(model, tokenizer, unseen)
    assert aligned / total >= 0.95
    translations = translate_texts(model, tokenizer, [one.source for one in unseen])
    assert sum(text == one.target for text, one in zip(translations, unseen, strict=True)) >= 0.95 * len(unseen)
    weights = example.alignment(model, tokenizer, unseen[0].source, unseen[0].target)
    assert weights.shape == (len(unseen[0].words), len(unseen[0].words) + 1)
    torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)))
