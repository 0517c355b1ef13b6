"""Language models with labels: texts of a class, recognized by a classifier."""

import random
from pathlib import Path

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from softlook.base.errors import ConfigError, DataError
from softlook.recipes import CausalLMConfig, load_pipeline, train_causal_lm
from softlook.recipes.config.schema import BatchConfig, ModelConfig, TokenizerConfig
from softlook.recipes.inference import GenerationParams, Pipeline, generate
from softlook.tokens.label_tokens import label_ids
from softlook.train import OptimizerConfig, TrainingConfig

WORDS = {"animals": "dog cat cow horse bird", "plants": "tree rose grass oak fern"}
SHARED = ["the", "a", "one", "that", "this", "near", "by", "old", "young", "small"]


def sentence(label: str, rng: random.Random) -> str:
    words = [rng.choice(WORDS[label].split() if rng.random() < 0.4 else SHARED) for _ in range(8)]
    return " ".join([*words, rng.choice(WORDS[label].split())])


def make_sentences(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    return [(sentence(label, rng), label) for label in rng.choices(list(WORDS), k=count)]


def config(tmp_path: Path, **changes: object) -> CausalLMConfig:
    table = tmp_path / "texts.csv"
    table.write_text("text,kind\n" + "".join(f"{text},{label}\n" for text, label in make_sentences(600, 0)))
    values: dict[str, object] = {
        "data": (table,),
        "label": "kind",
        "arch": "gpt",
        "run_dir": tmp_path / "run",
        "tokenizer": TokenizerConfig(type="words", vocab_size=100),
        "model": ModelConfig(dim=32, depth=1, heads=2, dropout=0.0),
        "batch": BatchConfig(max_tokens=600, max_length=32),
        "optim": OptimizerConfig(lr=1e-2, warmup=10, schedule="cosine"),
        "training": TrainingConfig(max_steps=80, device="cpu"),
        "loggers": ("none",),
        "no_baseline": True,
    }
    return CausalLMConfig.model_validate(values | changes)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    settings = config(tmp_path_factory.mktemp("labels"))
    train_causal_lm(settings)
    assert settings.run_dir is not None
    return load_pipeline(settings.run_dir, device="cpu")


def share_of_class(pipeline: Pipeline, label: str, guidance: float) -> float:
    """The share of generated texts that a classifier, trained on the same data, takes for the class."""
    texts, labels = zip(*make_sentences(600, 1), strict=True)
    classifier = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, labels)
    params = GenerationParams(label=label, guidance=guidance, temperature=1.0, max_new_tokens=12, seed=0)
    written = [one.text for one in generate(pipeline, [""], params, num_samples=40)]
    return sum(found == label for found in classifier.predict(written)) / len(written)


def test_a_classifier_recognizes_the_class_of_generated_texts(pipeline: Pipeline) -> None:
    assert set(label_ids(pipeline.tokenizer.tokenizer)) == set(WORDS)
    for label in WORDS:
        assert share_of_class(pipeline, label, 1.0) > 0.85
        assert share_of_class(pipeline, label, 2.0) >= 0.95
        assert 0.2 < share_of_class(pipeline, label, 0.0) < 0.8


def test_an_unknown_label_is_an_error(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="has no label 'stones'; its labels are animals, plants"):
        generate(pipeline, ["the"], GenerationParams(label="stones"))
    with pytest.raises(ConfigError, match="guidance needs a label"):
        generate(pipeline, ["the"], GenerationParams(guidance=2.0))


def test_a_column_of_many_values_is_no_label(tmp_path: Path) -> None:
    rows = "".join(f"words {number},{number}\n" for number in range(1500))
    (tmp_path / "many.csv").write_text(f"text,id\n{rows}")
    with pytest.raises(DataError, match="more than 1000 different labels"):
        train_causal_lm(config(tmp_path, data=(tmp_path / "many.csv",), label="id"))


def test_plain_text_has_no_labels(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("some words\n" * 100)
    with pytest.raises(DataError, match="plain text has no column 'kind'"):
        train_causal_lm(config(tmp_path, data=(tmp_path / "plain.txt",)))
