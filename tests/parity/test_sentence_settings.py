"""Folders of sentence-transformers: limits, lowercase, prompts and shorter vectors are those of the library itself."""

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
from softlook.recipes.answering import embed, opened
from softlook.serve.app import make_app
from softlook.serve.hall import Hall
from softlook.serve.served import load_served, placed
from softlook.weights.sentence_settings import SentenceSettings, sentence_settings
from tests.parity.weights import close
from tests.parity.word_folders import encoder_folder

LONG = "this is a soft look at every word " * 5
TEXTS = ["a soft look", "this is A look at Every word", LONG]
PROMPTS = {"query": "query: ", "document": "this is "}
LIMITS = "sentence_bert_config.json"
KINDS = ["BertModel", "RobertaModel", "DistilBertModel"]
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a limit": ({"max_seq_length": 16}, {}),
    "lowercase": ({"do_lower_case": True}, {}),
    "a default prompt": ({}, {"prompts": PROMPTS, "default_prompt_name": "query"}),
    "prompts, none by default": ({}, {"prompts": PROMPTS}),
    "shorter vectors": ({}, {"truncate_dim": 7}),
    "everything": (
        {"max_seq_length": 9, "do_lower_case": True},
        {"prompts": PROMPTS, "default_prompt_name": "document", "truncate_dim": 5, "similarity_fn_name": "dot"},
    ),
}


def sentence_folder(folder: Path, settings: str, kind: str = "BertModel", *, length_one: bool = True) -> Path:
    limits, config = SETTINGS[settings]
    bare = encoder_folder(kind, folder.with_name("bare"), positions=48)
    parts: list[Any] = [Transformer(str(bare)), Pooling(24, "mean")]
    SentenceTransformer(modules=[*parts, Normalize()] if length_one else parts, device="cpu").save(
        str(folder), create_model_card=False
    )
    for name, more in ((LIMITS, limits), ("config_sentence_transformers.json", config)):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return folder


def theirs(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_vectors_are_those_of_sentence_transformers(kind: str, settings: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "theirs", settings, kind, length_one=kind != "BertModel")
    run, library = opened(folder, device="cpu"), theirs(folder)
    close(embed(run, TEXTS), library.encode(TEXTS, convert_to_tensor=True))
    unit = library.encode(TEXTS, convert_to_tensor=True, normalize_embeddings=True)
    close(embed(run, TEXTS, unit=True), unit)
    for name in run.sentence.prompts:
        close(embed(run, TEXTS, prompt=name), library.encode(TEXTS, prompt_name=name, convert_to_tensor=True))


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_server_gives_the_same_vectors_and_refuses_texts_beyond_the_limit(settings: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "theirs", settings)
    hall = Hall([placed(load_served(folder, "m"), "cpu")])
    limit = sentence_settings(folder).max_length or 48
    with TestClient(make_app(hall), base_url="http://localhost") as client:
        found = client.post("/v1/embeddings", json={"model": "m", "input": TEXTS[0]}).json()["data"][0]["embedding"]
        long = client.post("/v1/embeddings", json={"model": "m", "input": LONG})
    hall.close()
    close(torch.tensor([found]), theirs(folder).encode(TEXTS[:1], convert_to_tensor=True))
    assert (long.status_code == 200) == (limit >= len(LONG.split()) + 2 + 2 * ("prompt" in settings))


def test_what_is_imported_and_exported_again_gives_the_same_vectors(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "theirs", "everything")
    kept, written = tmp_path / "kept", tmp_path / "written"
    for words in (("import", folder, "--to", kept), ("export", "hf", kept, "--to", written)):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
        assert ended.value.code == 0
    assert sentence_settings(kept) == sentence_settings(folder)
    assert sentence_settings(kept).similarity == "dot"
    wanted = theirs(folder).encode(TEXTS, convert_to_tensor=True)
    close(embed(opened(kept, device="cpu"), TEXTS), wanted)
    close(theirs(written).encode(TEXTS, convert_to_tensor=True), wanted)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an unknown default": ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "default prompt 'q'"),
    "no limit at all": (LIMITS, {"max_seq_length": 0}, "max_seq_length: Input should be greater than 0"),
    "other ways to read": (LIMITS, {"processing_kwargs": {"text": {"max_length": 3}}}, "processing_kwargs is set"),
    "shorter than nothing": (
        "config_sentence_transformers.json",
        {"truncate_dim": -1},
        "truncate_dim: Input should be",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_settings_that_cannot_be_followed_are_refused(what: str, tmp_path: Path) -> None:
    name, content, message = REFUSED[what]
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=message):
        sentence_settings(tmp_path)


def test_a_prompt_that_is_unknown_or_left_out_of_the_pooling_is_refused() -> None:
    with pytest.raises(ConfigError, match="no prompt 'passage'; this model has query"):
        SentenceSettings(prompts={"query": "q: "}).prompt("passage")
    with pytest.raises(ConfigError, match="include_prompt: false"):
        SentenceSettings(prompts={"query": "q: "}, is_prompt_pooled=False).prompt("query")
