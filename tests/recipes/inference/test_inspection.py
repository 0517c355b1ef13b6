"""The attention of trained models, labeled with the tokens that they read."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from softlook.base.errors import ConfigError, DataError
from softlook.lens import attention_maps
from softlook.recipes.inference import inspect_attention, load_pipeline, translate
from softlook.recipes.inference.inspection import LayerAttention
from tests.recipes.trained_runs import train_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_runs(tmp_path_factory.mktemp("inspection"))


def test_a_language_model_reads_its_prefix_and_the_text(runs: dict[str, Path]) -> None:
    pipeline = load_pipeline(runs["lm"], device="cpu")
    (layer,) = inspect_attention(pipeline, "the cat")
    assert layer.queries == layer.keys and layer.queries[0] == "<s>"
    assert "".join(layer.queries[1:]).replace(" ", "") == "thecat"
    ids = [pipeline.tokenizer.bos_id, *pipeline.tokenizer.encode(["the cat"])[0]]
    (expected,) = attention_maps(pipeline.model, torch.tensor([ids])).values()
    assert torch.equal(layer.weights, expected[0]) and not layer.weights.triu(1).any()


@pytest.mark.parametrize("name", ["classify", "mlm"])
def test_an_encoder_reads_one_text_or_a_pair_with_special_tokens(runs: dict[str, Path], name: str) -> None:
    pipeline = load_pipeline(runs[name], device="cpu")
    one, two = inspect_attention(pipeline, "film was"), inspect_attention(pipeline, "film was", "dull")
    assert one[-1].queries[0] == "<cls>" and one[-1].queries.count("<sep>") == 1
    assert two[-1].queries.count("<sep>") == 2
    torch.testing.assert_close(two[-1].weights.sum(-1), torch.ones(two[-1].weights.shape[:2]))


def test_the_target_of_an_encoder_decoder_is_its_own_greedy_translation() -> None:
    pipeline = load_pipeline("dates", device="cpu")
    layers = inspect_attention(pipeline, "25 décembre 1999")
    assert {layer.type for layer in layers} == {"encoder", "decoder", "cross"}
    by_type = {layer.type: layer for layer in layers}
    assert "".join(by_type["cross"].queries) == translate(pipeline, ["25 décembre 1999"])[0].text + "</s>"
    assert by_type["decoder"].queries == by_type["decoder"].keys == ["<s>", *by_type["cross"].queries[:-1]]
    assert by_type["cross"].keys == by_type["encoder"].keys and by_type["cross"].keys[-1] == "</s>"
    aligned = [by_type["cross"].keys[int(row.argmax())] for row in by_type["cross"].weights.mean(0)]
    assert aligned[-3:-1] == ["2", "5"]  # the day of the translation attends to that of the source


def test_a_given_target_replaces_the_translation() -> None:
    pipeline = load_pipeline("dates", device="cpu")
    cross = inspect_attention(pipeline, "3 mai 1999", target="1999-05-04")[-1]
    assert "".join(cross.queries) == "1999-05-04</s>"


def test_layers_are_numbered_for_each_type_of_attention() -> None:
    layers = inspect_attention(load_pipeline("dates", device="cpu"), "3 mai")
    assert [layer.layer for layer in layers if layer.type == "cross"] == [0, 1]
    assert all(f"blocks.{layer.layer}." in layer.path for layer in layers)


def layer_of(weights: torch.Tensor, keys: str = "abcd") -> LayerAttention:
    return LayerAttention("attn", "self", 0, list(keys), list(keys), weights)


def test_the_summary_names_the_key_or_the_relative_position_with_the_largest_weight() -> None:
    first, same = torch.zeros(4, 4), torch.eye(4)
    first[:, 0] = 1
    previous = torch.eye(4).roll(-1, 1)
    layer = layer_of(torch.stack([first, same, previous]))
    assert [layer.summary(head).attends_to for head in range(3)] == ["'a'", "the same token", "the previous token"]
    assert layer.summary(0).entropy == 0 and layer.summary(1).weight == 1
    assert layer_of(torch.full((1, 4, 4), 0.25)).summary().entropy == pytest.approx(1.3863, abs=1e-4)


def test_a_key_that_occurs_twice_is_named_with_its_index() -> None:
    weights = torch.zeros(1, 4, 4)
    weights[:, :, 3] = 1
    assert layer_of(weights, "abca").summary(0).attends_to == "'a' (token 3)"


def test_texts_that_a_model_cannot_read_are_errors(runs: dict[str, Path]) -> None:
    language_model = load_pipeline(runs["lm"], device="cpu")
    with pytest.raises(ConfigError, match="only encoders read a second"):
        inspect_attention(language_model, "a", "b")
    with pytest.raises(ConfigError, match="is not an encoder-decoder"):
        inspect_attention(language_model, "a", target="b")
    with pytest.raises(ConfigError, match="word vectors, which have no attention"):
        inspect_attention(load_pipeline(runs["word2vec"], device="cpu"), "cat")
    with pytest.raises(DataError, match="at most 127 can be shown"):
        inspect_attention(load_pipeline("dates", device="cpu"), "1" * 400)


def test_inspection_leaves_the_model_unchanged(runs: dict[str, Path]) -> None:
    pipeline = replace(load_pipeline(runs["mlm"], device="cpu"), name="renamed")
    inspect_attention(pipeline, "the cat")
    assert not any(module._forward_hooks for module in pipeline.model.modules())
