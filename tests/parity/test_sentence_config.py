"""sentence-transformers folders: length limits, lowercasing, prompts and truncated dimensions match the library."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from starlette.testclient import TestClient

from softlook.base.errors import ConfigError, WeightsError
from softlook.cli import main
from softlook.recipes.inference import embed, load_pipeline
from softlook.serve.app import create_app
from softlook.serve.loaded_model import load_model, to_device
from softlook.serve.registry import ModelRegistry
from softlook.weights.sentence_transformers import SentenceConfig, read_sentence_config
from tests.parity.comparison import close
from tests.parity.text_folders import encoder_folder

LONG = "this is a soft look at every word " * 5
TEXTS = ["a soft look", "this is A look at Every word", LONG]
PROMPTS = {"query": "query: ", "document": "this is "}
LIMITS = "sentence_bert_config.json"
KINDS = ["BertModel", "RobertaModel", "DistilBertModel"]
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {}),
    "a length limit": ({"max_seq_length": 16}, {}),
    "lowercase": ({"do_lower_case": True}, {}),
    "a default prompt": ({}, {"prompts": PROMPTS, "default_prompt_name": "query"}),
    "prompts, none by default": ({}, {"prompts": PROMPTS}),
    "truncated dimension": ({}, {"truncate_dim": 7}),
    "everything": (
        {"max_seq_length": 9, "do_lower_case": True},
        {"prompts": PROMPTS, "default_prompt_name": "document", "truncate_dim": 5, "similarity_fn_name": "dot"},
    ),
}


def sentence_folder(folder: Path, settings: str, kind: str = "BertModel", *, normalize: bool = True) -> Path:
    limits, config = SETTINGS[settings]
    base = encoder_folder(kind, folder.with_name("base"), positions=48)
    parts: list[Any] = [Transformer(str(base)), Pooling(24, "mean")]
    SentenceTransformer(modules=[*parts, Normalize()] if normalize else parts, device="cpu").save(
        str(folder), create_model_card=False
    )
    for name, more in ((LIMITS, limits), ("config_sentence_transformers.json", config)):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return folder


def reference(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_embeddings_match_sentence_transformers(kind: str, settings: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "hf", settings, kind, normalize=kind != "BertModel")
    pipeline, library = load_pipeline(folder, device="cpu"), reference(folder)
    close(embed(pipeline, TEXTS), library.encode(TEXTS, convert_to_tensor=True))
    normalized = library.encode(TEXTS, convert_to_tensor=True, normalize_embeddings=True)
    close(embed(pipeline, TEXTS, normalize=True), normalized)
    for name in pipeline.sentence.prompts:
        close(embed(pipeline, TEXTS, prompt=name), library.encode(TEXTS, prompt_name=name, convert_to_tensor=True))


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_server_gives_the_same_embeddings_and_truncates_texts_beyond_the_limit(
    settings: str, tmp_path: Path
) -> None:
    folder = sentence_folder(tmp_path / "hf", settings)
    registry = ModelRegistry([to_device(load_model(folder, "m"), "cpu")])
    limit = read_sentence_config(folder).max_seq_length or 48
    with TestClient(create_app(registry), base_url="http://localhost") as client:
        found = client.post("/v1/embeddings", json={"model": "m", "input": TEXTS[0]}).json()["data"][0]["embedding"]
        long = client.post("/v1/embeddings", json={"model": "m", "input": LONG})
    registry.close()
    close(torch.tensor([found]), reference(folder).encode(TEXTS[:1], convert_to_tensor=True))
    item, fits = long.json()["data"][0], limit >= len(LONG.split()) + 2 + 2 * ("prompt" in settings)
    assert item["truncated"] is not fits
    close(torch.tensor([item["embedding"]]), reference(folder).encode([LONG], convert_to_tensor=True))


def test_import_and_export_do_not_change_embeddings(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "hf", "everything")
    imported, exported = tmp_path / "imported", tmp_path / "exported"
    for command in (("import", folder, "--to", imported), ("export", "hf", imported, "--to", exported)):
        with pytest.raises(SystemExit) as exit_info:
            main([*map(str, command)])
        assert exit_info.value.code == 0
    assert read_sentence_config(imported) == read_sentence_config(folder)
    assert read_sentence_config(imported).similarity == "dot"
    expected = reference(folder).encode(TEXTS, convert_to_tensor=True)
    close(embed(load_pipeline(imported, device="cpu"), TEXTS), expected)
    close(reference(exported).encode(TEXTS, convert_to_tensor=True), expected)


UNSUPPORTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown default prompt": ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "default prompt 'q'"),
    "limit of zero": (LIMITS, {"max_seq_length": 0}, "max_seq_length: Input should be greater than 0"),
    "processing_kwargs": (
        LIMITS,
        {"processing_kwargs": {"text": {"max_length": 3}}},
        "processing_kwargs is not supported",
    ),
    "negative dimension": (
        "config_sentence_transformers.json",
        {"truncate_dim": -1},
        "truncate_dim: Input should be",
    ),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_settings_raise_an_error(case: str, tmp_path: Path) -> None:
    name, content, message = UNSUPPORTED[case]
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=message):
        read_sentence_config(tmp_path)


def test_a_prompt_that_is_unknown_or_excluded_from_pooling_raises_an_error() -> None:
    with pytest.raises(ConfigError, match="unknown prompt 'passage'; this model has query"):
        SentenceConfig(prompts={"query": "q: "}).prompt("passage")
    with pytest.raises(ConfigError, match="include_prompt: false"):
        SentenceConfig(prompts={"query": "q: "}, include_prompt=False).prompt("query")
