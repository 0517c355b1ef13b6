"""Tensors from files: one or several, in the precision they were written in, and never an error of any other kind."""

import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face
from softlook.weights.meta import unique_tensors
from softlook.weights.schema import ConfigWarning
from softlook.weights.tensor_files import read_safetensors, read_tensors, write_safetensors
from tests.weights.folders import hugging_face, numbers

IDS = torch.tensor([[5, 3, 8, 1], [4, 4, 0, 6]])


def reference(kind: torch.dtype = torch.float32) -> Any:
    config = GPT2Config(vocab_size=11, n_positions=16, n_embd=24, n_layer=3, n_head=4)
    return GPT2LMHeadModel(config).to(kind).eval()  # pyright: ignore[reportArgumentType]


def test_a_model_in_several_files_is_read_like_one_in_one(tmp_path: Path) -> None:
    model = reference()
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "several", max_shard_size="10KB")
    assert len(list((tmp_path / "several").glob("model-*.safetensors"))) > 3
    one, several = from_hugging_face(tmp_path / "one"), from_hugging_face(tmp_path / "several")
    torch.testing.assert_close(several(IDS), one(IDS), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_hugging_face_weights_keep_their_dtype(kind: torch.dtype, tmp_path: Path) -> None:
    model = reference(kind)
    model.save_pretrained(tmp_path / "hf")
    actual = from_hugging_face(tmp_path / "hf")
    assert {tensor.dtype for tensor in unique_tensors(actual).values()} == {kind}
    torch.testing.assert_close(actual.token_embedding.weight, model.transformer.wte.weight, rtol=0, atol=0)  # pyright: ignore
    assert actual.lm_head.weight is actual.token_embedding.weight  # pyright: ignore[reportAttributeAccessIssue]


def test_of_several_precisions_the_one_that_holds_all_is_taken(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    held = read_tensors(folder)
    held["transformer.ln_f.bias"] = held["transformer.ln_f.bias"].bfloat16()
    write_safetensors(held, folder / "model.safetensors")
    assert {tensor.dtype for tensor in unique_tensors(from_hugging_face(folder)).values()} == {torch.float32}


def test_one_file_is_read_and_not_an_old_index_beside_it(tmp_path: Path) -> None:
    write_safetensors({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "old.safetensors"}}))
    assert list(read_tensors(tmp_path)) == ["a"]


def test_a_file_may_be_a_link_as_in_a_cache(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    from_hugging_face(folder)


def test_exported_models_can_be_imported(tmp_path: Path) -> None:
    expected = {"b": numbers(2, 3), "a": numbers(4).bfloat16(), "turned": numbers(3, 2).mT, "count": torch.tensor([7])}
    write_safetensors(expected, tmp_path / "x.safetensors")
    found = read_safetensors(tmp_path / "x.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_folder_of_hugging_faces_is_read_or_refused_and_never_worse(name: str, tmp_path: Path) -> None:
    """Hugging Face's folders carry no digest, so that a flipped bit may pass; a crash may not."""
    folder = hugging_face(tmp_path / "hf")
    content, chance = (folder / name).read_bytes(), random.Random(0)
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        changed[chance.randrange(min(len(content), 3000))] ^= 1 << chance.randrange(8)
        (folder / name).write_bytes(changed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)
            try:
                from_hugging_face(folder)
            except WeightsError:
                refused += 1
    assert refused > 50


def test_a_tensor_with_a_strange_name_is_refused_with_that_name_in_sight(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    held = {**read_tensors(folder), "\x1b[2J" + "x" * 5000: numbers(1)}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"holds '\\x1b\[2Jxx") as fields:
        from_hugging_face(folder)
    assert len(str(fields.value)) < 500
