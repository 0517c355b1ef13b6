"""Modules and pooling configs of sentence-transformers folders."""

import json
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import WeightsError
from softlook.weights.sentence_transformers import SENTENCE_HEADS, sentence_files, sentence_head

KINDS = ("Transformer", "Pooling", "Normalize")


def folder_with(folder: Path, kinds: tuple[str, ...], pooling: dict[str, Any], path: str = "1_Pooling") -> Path:
    lines = [{"idx": i, "type": f"some.where.{kind}", "path": path if i else ""} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(lines))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def test_a_folder_without_modules_json_is_not_a_sentence_transformer(tmp_path: Path) -> None:
    assert sentence_head(tmp_path) is None


@pytest.mark.parametrize("name", SENTENCE_HEADS)
def test_exported_models_can_be_imported_unchanged(name: str, tmp_path: Path) -> None:
    for path, content in sentence_files(SENTENCE_HEADS[name], dim=24, context=16).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(json.dumps(content))
    assert sentence_head(tmp_path) == name


@pytest.mark.parametrize("mean", ["mean", ["mean"]])
def test_current_and_older_pooling_configs_are_supported(mean: Any, tmp_path: Path) -> None:
    old = {"word_embedding_dimension": 24, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    current = {"embedding_dimension": 24, "pooling_mode": mean, "include_prompt": True}
    for name, pooling in (("old", old), ("current", current)):
        (tmp_path / name).mkdir()
        assert sentence_head(folder_with(tmp_path / name, KINDS, pooling)) == "mean_pooling_normalized"


POOLINGS: dict[str, tuple[dict[str, Any], str]] = {
    "max": ({"pooling_mode": "max"}, "has pooling 'max'"),
    "two modes": ({"pooling_mode": ["cls", "mean"]}, "has pooling 'cls, mean'"),
    "two modes in the older format": (
        {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
        "pooling 'cls, max'",
    ),
    "none": ({}, "has pooling ''"),
    "a number": ({"pooling_mode": 3}, "pooling_mode.*Input should be a valid"),
}


@pytest.mark.parametrize("name", POOLINGS)
def test_unsupported_pooling_raises_an_error(name: str, tmp_path: Path) -> None:
    pooling, message = POOLINGS[name]
    with pytest.raises(WeightsError, match=message):
        sentence_head(folder_with(tmp_path, KINDS, pooling))


@pytest.mark.parametrize(
    "kinds", [("Transformer",), ("Transformer", "Pooling", "Dense"), ("WordEmbeddings", "Pooling")]
)
def test_unsupported_modules_raise_an_error_that_names_them(kinds: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"lists '{', '.join(kinds)}'"):
        sentence_head(folder_with(tmp_path, kinds, {"pooling_mode": "mean"}))


def test_a_module_path_outside_the_folder_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="'../1_Pooling', which is not a folder next to it"):
        sentence_head(folder_with(tmp_path, KINDS, {"pooling_mode": "mean"}, path="../1_Pooling"))


@pytest.mark.parametrize("text", ["{}", "[1]", "[{}]", "[", '[{"type": 3}]', ""])
def test_an_invalid_modules_json_raises_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(WeightsError, match="is not a list of modules"):
        sentence_head(tmp_path)


def test_a_missing_pooling_config_raises_an_error(tmp_path: Path) -> None:
    folder_with(tmp_path, KINDS, {})
    (tmp_path / "1_Pooling" / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"1_Pooling holds no config\.json"):
        sentence_head(tmp_path)
