"""A folder with one thing wrong is refused with an error of ours, or read as what it says; it never ends otherwise."""

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
from tests.weights.mutations import VALUES, configs, families, tensors, written

FAMILIES = families()
FAST = ("GPT", "Llama", "SkipGram")
"""The others take longer."""
THEIRS = [pytest.param(*FAMILIES[name], id=name, marks=[] if name in FAST else [pytest.mark.slow]) for name in FAMILIES]
OWN = [
    pytest.param(TINY[name], id=name, marks=[] if name in FAST else [pytest.mark.slow])
    for name in ("GPT", "Bert", "Llama through windows", "Transformer pre-norm", "T5", "TableTransformer", "SkipGram")
]


@pytest.mark.parametrize(("name", "family"), THEIRS)
def test_a_changed_hugging_face_config_is_loaded_or_refused(name: str, family: HFArchitecture, tmp_path: Path) -> None:
    folder = written(name, tmp_path / "theirs")
    read = 0
    for field, value, content in configs(folder, family):
        (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)
            try:
                model = from_hugging_face(folder)
            except WeightsError as fault:
                assert str(folder) in str(fault), f"{field}={value!r}: {fault}"
                continue
        with torch.no_grad():
            TINY[name].ask(model)
        read += 1
    assert read > 0


@pytest.mark.parametrize(("name", "family"), THEIRS)
def test_an_invalid_tensor_in_a_hugging_face_folder_is_refused(
    name: str, family: HFArchitecture, tmp_path: Path
) -> None:
    folder = written(name, tmp_path / "theirs")
    path = folder / SINGLE_FILE
    for what, spoilt in tensors(load_file(path)):
        save_file(spoilt, path, metadata={"format": "pt"})
        with pytest.raises(WeightsError):
            from_hugging_face(folder)
            pytest.fail(what)


def test_a_config_with_an_empty_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = written("GPT", tmp_path / "theirs")
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**content, "vocab_size": 0}), encoding="utf-8")
    with pytest.raises(WeightsError, match="vocab_size: Input should be greater than 0, got 0"):
        from_hugging_face(folder)


@pytest.mark.parametrize("tiny", OWN)
def test_a_changed_checkpoint_config_is_loaded_or_refused(tiny: Tiny, tmp_path: Path) -> None:
    """The digests are made anew, as somebody would who edits a checkpoint; as it is, they refuse any change."""
    folder = save(tiny.build(), tmp_path / "ours")
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
def test_an_invalid_tensor_in_a_checkpoint_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    folder = save(tiny.build(), tmp_path / "ours")
    path = folder / SINGLE_FILE
    for what, spoilt in tensors(load_file(path)):
        save_file(spoilt, path, metadata={"format": "pt"})
        (folder / MANIFEST_FILE).unlink()
        write_manifest(folder)
        with pytest.raises(WeightsError):
            load(folder)
            pytest.fail(what)
