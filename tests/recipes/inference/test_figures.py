"""Figures of a model draw what the model computes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.lens import head_table
from softlook.models import GPT, GPTConfig
from softlook.recipes.inference.figures import GALLERY, run_figure, search_tree
from softlook.recipes.inference.inspection import inspect_attention
from softlook.recipes.inference.pipeline import Pipeline, load_pipeline
from softlook.recipes.inference.translation import translate
from tests.lens.figures.test_labels import colliding, outside
from tests.recipes.trained_runs import train_runs

TEXT = "3 mars 2022"


@pytest.fixture(scope="module")
def dates() -> Pipeline:
    return load_pipeline("dates", device="cpu")


@pytest.mark.parametrize("kind", ["heads", "rollout", "statistics", "alignment", "beams"])
def test_labels_of_every_kind_of_figure_do_not_overlap(dates: Pipeline, kind: str) -> None:
    figure = run_figure(dates, "jeudi 3 mars 2022", kind)  # pyright: ignore[reportArgumentType]
    assert colliding(figure) == [] and outside(figure) == []


def test_heads_are_those_of_the_cross_attention(dates: Pipeline) -> None:
    drawn = run_figure(dates, TEXT, "heads").numbers
    layers = [layer for layer in inspect_attention(dates, TEXT) if layer.type == "cross"]
    for layer, weights in zip(layers, drawn.values(), strict=True):
        assert torch.equal(weights, layer.weights)


def test_the_rollout_is_the_product_of_the_layers(dates: Pipeline) -> None:
    drawn = run_figure(dates, TEXT, "rollout").numbers["weights"]
    first, second = (layer.weights.mean(0) for layer in inspect_attention(dates, TEXT) if layer.type == "encoder")
    identity = torch.eye(len(first))
    assert_close(drawn, (identity + second) / 2 @ ((identity + first) / 2))


def test_the_best_path_of_the_tree_is_the_translation(dates: Pipeline) -> None:
    figure = run_figure(dates, "5 4 2003", "beams", num_beams=3)
    nodes, best = figure.numbers["nodes"], figure.numbers["best"]
    assert "".join(nodes[index].text for index in best) == translate(dates, ["5 4 2003"], num_beams=3)[0].text + "<eos>"


def test_each_step_of_the_tree_keeps_as_many_candidates_as_beams(dates: Pipeline) -> None:
    nodes = search_tree(dates, "5 4 2003", num_beams=2)
    last = max(node.step for node in nodes)
    for step in range(1, last):
        kept = [node for node in nodes if node.step == step and node.status == "kept"]
        assert len(kept) == 2
        assert all((node.parent is None) == (step == 1) for node in kept)
    assert all(node.score <= nodes[node.parent].score for node in nodes if node.parent is not None)


def test_the_picture_of_a_translation_shows_the_probability_of_each_correct_token() -> None:
    figure = GALLERY["translation"]()
    assert colliding(figure) == [] and outside(figure) == []
    chances = figure.numbers["probabilities"]
    assert len(chances) == len(figure.numbers["target"]) == 11 and all(0 < one <= 1 for one in chances)
    assert min(chances) < 0.9  # day or month: the model is not certain


def test_a_model_that_does_not_translate_has_no_beam_tree(dates: Pipeline) -> None:
    language_model = replace(dates, model=GPT(GPTConfig(vocab_size=300, context=64, dim=16, depth=1, heads=2)).eval())
    with pytest.raises(ConfigError, match="a beam tree needs an encoder-decoder"):
        run_figure(language_model, TEXT, "beams")
    with pytest.raises(ConfigError, match="an alignment needs an encoder-decoder"):
        run_figure(language_model, TEXT, "alignment")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_runs(tmp_path_factory.mktemp("figures"), "lm", "classify")


def test_the_scores_of_a_language_model_are_its_head_table(runs: dict[str, Path]) -> None:
    pipeline = load_pipeline(runs["lm"], device="cpu")
    figure = run_figure(pipeline, "the cat", "scores")
    ids = torch.tensor([[*pipeline.special_tokens.prefix, *pipeline.tokenizer.encode(["the cat"])[0]]])
    expected = head_table(pipeline.model, ids).grids()
    assert list(figure.numbers) == list(expected)
    for name, values in expected.items():
        assert_close(figure.numbers[name], values, equal_nan=True)
    assert colliding(figure) == [] and outside(figure) == []


def test_contributions_add_up_to_the_logit_of_the_predicted_token(runs: dict[str, Path]) -> None:
    pipeline = load_pipeline(runs["lm"], device="cpu")
    pipeline.model.ngrams = None  # pyright: ignore[reportArgumentType]  (contributions are those of the layers)
    figure = run_figure(pipeline, "the cat", "contributions")
    ids = torch.tensor([[*pipeline.special_tokens.prefix, *pipeline.tokenizer.encode(["the cat"])[0]]])
    with torch.no_grad():
        logit = float(pipeline.model(ids)[0, -1].max())
    assert sum(figure.numbers["layers"].values()) == pytest.approx(logit, abs=1e-3)
    assert colliding(figure) == [] and outside(figure) == []


def test_a_classifier_has_scores_and_no_contributions(runs: dict[str, Path], dates: Pipeline) -> None:
    classifier = load_pipeline(runs["classify"], device="cpu")
    assert run_figure(classifier, "film was dull", "scores").numbers
    with pytest.raises(ConfigError, match="contributions need a language model"):
        run_figure(classifier, "film was dull", "contributions")
    with pytest.raises(ConfigError, match="head scores need an encoder or a language model"):
        run_figure(dates, TEXT, "scores")
