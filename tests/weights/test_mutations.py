"""A folder with one mutation is loaded as described or raises a WeightsError, and nothing else."""

import json
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face, load, save
from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.checkpoint import CONFIG_FILE
from softlook.weights.manifest import MANIFEST_FILE, write_manifest
from softlook.weights.schema import ConfigWarning
from softlook.weights.tensor_files import SINGLE_FILE
from tests.models.tiny import TINY, Tiny
from tests.weights.mutations import VALUES, export, exportable, mutated_configs, mutated_tensors

EXPORTABLE = exportable()
FAST = ("GPT", "Llama", "SkipGram")
"""The others take longer."""
HUGGING_FACE = [
    pytest.param(*EXPORTABLE[name], id=name, marks=[] if name in FAST else [pytest.mark.slow]) for name in EXPORTABLE
]
OWN = [
    pytest.param(TINY[name], id=name, marks=[] if name in FAST else [pytest.mark.slow])
    for name in ("GPT", "Bert", "Llama through windows", "Transformer pre-norm", "T5", "TableTransformer", "SkipGram")
]


@pytest.mark.parametrize(("name", "architecture"), HUGGING_FACE)
def test_a_mutated_hugging_face_config_is_loaded_or_raises_an_error(
    name: str, architecture: HFArchitecture, tmp_path: Path
) -> None:
    folder = export(name, tmp_path / "hf")
    loaded = 0
    for field, value, content in mutated_configs(folder, architecture):
        (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)
            try:
                model = from_hugging_face(folder)
            except WeightsError as error:
                assert str(folder) in str(error), f"{field}={value!r}: {error}"
                continue
        with torch.no_grad():
            TINY[name].ask(model)
        loaded += 1
    assert loaded > 0


@pytest.mark.parametrize(("name", "architecture"), HUGGING_FACE)
def test_an_invalid_tensor_in_a_hugging_face_folder_raises_an_error(
    name: str, architecture: HFArchitecture, tmp_path: Path
) -> None:
    folder = export(name, tmp_path / "hf")
    path = folder / SINGLE_FILE
    for what, mutated in mutated_tensors(load_file(path)):
        save_file(mutated, path, metadata={"format": "pt"})
        with pytest.raises(WeightsError):
            from_hugging_face(folder)
            pytest.fail(what)


def test_a_config_with_an_empty_vocabulary_raises_an_error(tmp_path: Path) -> None:
    folder = export("GPT", tmp_path / "hf")
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**content, "vocab_size": 0}), encoding="utf-8")
    with pytest.raises(WeightsError, match="vocab_size: Input should be greater than 0, got 0"):
        from_hugging_face(folder)


@pytest.mark.parametrize("tiny", OWN)
def test_a_mutated_checkpoint_config_is_loaded_or_raises_an_error(tiny: Tiny, tmp_path: Path) -> None:
    """The manifest is rewritten after each change; otherwise its digests would detect every change."""
    folder = save(tiny.build(), tmp_path / "softlook")
    content: dict[str, Any] = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    for field in fields(tiny.config):
        for value in VALUES:
            changed = {**content, "config": {**content["config"], field.name: value}}
            (folder / CONFIG_FILE).write_text(json.dumps(changed), encoding="utf-8")
            (folder / MANIFEST_FILE).unlink()
            write_manifest(folder)
            try:
                model = load(folder)
            except WeightsError:
                continue
            assert getattr(model.config, field.name) == value or isinstance(value, list)


@pytest.mark.parametrize("tiny", OWN)
def test_an_invalid_tensor_in_a_checkpoint_raises_an_error(tiny: Tiny, tmp_path: Path) -> None:
    folder = save(tiny.build(), tmp_path / "softlook")
    path = folder / SINGLE_FILE
    for what, mutated in mutated_tensors(load_file(path)):
        save_file(mutated, path, metadata={"format": "pt"})
        (folder / MANIFEST_FILE).unlink()
        write_manifest(folder)
        with pytest.raises(WeightsError):
            load(folder)
            pytest.fail(what)
