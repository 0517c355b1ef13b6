"""Tensor files: single and sharded files, dtypes, links, and damaged files."""

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


def reference(dtype: torch.dtype = torch.float32) -> Any:
    config = GPT2Config(vocab_size=11, n_positions=16, n_embd=24, n_layer=3, n_head=4)
    return GPT2LMHeadModel(config).to(dtype).eval()  # pyright: ignore[reportArgumentType]


def test_a_sharded_model_equals_one_in_a_single_file(tmp_path: Path) -> None:
    model = reference()
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "several", max_shard_size="10KB")
    assert len(list((tmp_path / "several").glob("model-*.safetensors"))) > 3
    one, several = from_hugging_face(tmp_path / "one"), from_hugging_face(tmp_path / "several")
    torch.testing.assert_close(several(IDS), one(IDS), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_hugging_face_weights_keep_their_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    model = reference(dtype)
    model.save_pretrained(tmp_path / "hf")
    actual = from_hugging_face(tmp_path / "hf")
    assert {tensor.dtype for tensor in unique_tensors(actual).values()} == {dtype}
    torch.testing.assert_close(actual.token_embedding.weight, model.transformer.wte.weight, rtol=0, atol=0)  # pyright: ignore
    assert actual.lm_head.weight is actual.token_embedding.weight  # pyright: ignore[reportAttributeAccessIssue]


def test_mixed_dtypes_are_promoted_to_a_common_dtype(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    held = read_tensors(folder)
    held["transformer.ln_f.bias"] = held["transformer.ln_f.bias"].bfloat16()
    write_safetensors(held, folder / "model.safetensors")
    assert {tensor.dtype for tensor in unique_tensors(from_hugging_face(folder)).values()} == {torch.float32}


def test_a_single_file_takes_precedence_over_an_index(tmp_path: Path) -> None:
    write_safetensors({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "old.safetensors"}}))
    assert list(read_tensors(tmp_path)) == ["a"]


def test_a_file_may_be_a_symbolic_link(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    from_hugging_face(folder)


def test_written_tensors_are_read_unchanged(tmp_path: Path) -> None:
    transposed = numbers(3, 2).mT
    expected = {"b": numbers(2, 3), "a": numbers(4).bfloat16(), "transposed": transposed, "count": torch.tensor([7])}
    write_safetensors(expected, tmp_path / "x.safetensors")
    found = read_safetensors(tmp_path / "x.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_flipped_bit_in_a_hugging_face_folder_is_loaded_or_raises_a_weights_error(name: str, tmp_path: Path) -> None:
    """Hugging Face folders have no digests: a flipped bit may go undetected, but must not crash."""
    folder = hugging_face(tmp_path / "hf")
    content, rng = (folder / name).read_bytes(), random.Random(0)
    errors = 0
    for _ in range(300):
        changed = bytearray(content)
        changed[rng.randrange(min(len(content), 3000))] ^= 1 << rng.randrange(8)
        (folder / name).write_bytes(changed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)
            try:
                from_hugging_face(folder)
            except WeightsError:
                errors += 1
    assert errors > 50


def test_a_malicious_tensor_name_is_escaped_and_truncated_in_the_error(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    held = {**read_tensors(folder), "\x1b[2J" + "x" * 5000: numbers(1)}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"holds '\\x1b\[2Jxx") as error:
        from_hugging_face(folder)
    assert len(str(error.value)) < 500
