"""Tensors in several files: written one after the other, read row by row, and refused where they do not fit."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.weights.manifest import FileEntries
from softlook.weights.tensor_files import (
    DTYPE_NAMES,
    StoredTensor,
    assign_shards,
    read_safetensors,
    read_shards,
    shard_files,
    shard_name,
    total_bytes,
    write_index,
    write_safetensors,
)

MANY = {
    "a": torch.randn(5, 3),
    "nothing": torch.empty(0, 4),
    "one": torch.tensor(2.5, dtype=torch.float64),
    "yes": torch.tensor([True, False, True]),
    "half": torch.randn(3).bfloat16(),
    "count": torch.arange(7),
}


def in_rows(folder: Path, cuts: list[int], tensor: Tensor) -> FileEntries:
    """A tensor cut into a file for each piece."""
    files: FileEntries = {}
    for number, (begin, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
        name = shard_name("x.safetensors", number, len(cuts) - 1)
        files[name] = {**write_safetensors({"t": tensor[begin:end]}, folder / name), "slices": {"t": [begin, end]}}
    return files


@pytest.mark.parametrize("kind", list(DTYPE_NAMES), ids=str)
def test_files_written_tensor_by_tensor_are_valid_safetensors(kind: torch.dtype, tmp_path: Path) -> None:
    tensors = {**MANY, "other": torch.arange(3).to(kind)}
    entry = write_safetensors(tensors, tmp_path / "x.safetensors")
    for read in (read_safetensors(tmp_path / "x.safetensors"), load_file(tmp_path / "x.safetensors")):
        assert read.keys() == tensors.keys()
        assert all(
            torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in tensors.items()
        )
    content = (tmp_path / "x.safetensors").read_bytes()
    assert entry == {"bytes": len(content), "sha256": sha256(content).hexdigest()}


def test_a_file_without_tensors_can_be_read(tmp_path: Path) -> None:
    write_safetensors({}, tmp_path / "x.safetensors")
    assert read_safetensors(tmp_path / "x.safetensors") == {}


def test_numbers_of_no_known_kind_and_no_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"x: 't' has dtype torch.complex64, which safetensors does not support"):
        write_safetensors({"t": torch.ones(1, dtype=torch.complex64)}, tmp_path / "x")
    with pytest.raises(WeightsError, match=r"y: 't' contains NaN or infinity"):
        write_safetensors({"t": torch.tensor([torch.nan])}, tmp_path / "y")


@pytest.mark.parametrize("cuts", [[0, 7], [0, 3, 7], [0, 3, 6, 7], [0, 4, 7, 7]], ids=str)
def test_any_rows_can_be_read_however_a_tensor_is_cut(cuts: list[int], tmp_path: Path) -> None:
    tensor = torch.randn(7, 2)
    stored = read_shards(tmp_path, "x.safetensors", in_rows(tmp_path, cuts, tensor))["t"]
    assert stored.shape == stored.meta().shape == tensor.shape
    assert torch.equal(stored.full(), tensor)
    for begin in range(8):
        for end in range(begin, 8):
            assert torch.equal(stored.rows(begin, end), tensor[begin:end])


def test_slices_that_are_not_contiguous_are_refused(tmp_path: Path) -> None:
    files = in_rows(tmp_path, [0, 3, 6, 7], torch.randn(7))
    last = "x-00003-of-00003.safetensors"
    for slices, message in (([5, 6], "are not contiguous"), ([6, 8], "holds 1 rows of 't', expected 2")):
        with pytest.raises(WeightsError, match=message):
            read_shards(tmp_path, "x.safetensors", {**files, last: {**files[last], "slices": {"t": slices}}})
    with pytest.raises(WeightsError, match=rf"does not list {last}, one of 3 shards of x.safetensors"):
        shard_files(tmp_path, "x.safetensors", {name: entry for name, entry in files.items() if name != last})
    with pytest.raises(WeightsError, match=r"does not list y.safetensors: this is not a checkpoint"):
        shard_files(tmp_path, "y.safetensors", files)


def test_one_file_is_its_own_part(tmp_path: Path) -> None:
    files = {"x.safetensors": write_safetensors(MANY, tmp_path / "x.safetensors")}
    read = read_shards(tmp_path, "x.safetensors", files)
    assert all(torch.equal(read[name].full(), tensor) for name, tensor in MANY.items())
    assert torch.equal(StoredTensor.from_tensor(MANY["a"]).rows(1, 3), MANY["a"][1:3])


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_tensors_are_sharded_evenly_and_indexed(count: int, tmp_path: Path) -> None:
    tensors = {f"t{number}": torch.zeros(number % 5 + 1) for number in range(30)}
    homes = assign_shards(tensors, count)
    loads = [total_bytes({name: t for name, t in tensors.items() if homes[name] == number}) for number in range(count)]
    assert sum(loads) == total_bytes(tensors)
    assert max(loads) - min(loads) <= 20
    write_index(tmp_path, homes, count, total_bytes(tensors))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == total_bytes(tensors)
    assert index["weight_map"]["t0"] == shard_name("model.safetensors", homes["t0"], count)
