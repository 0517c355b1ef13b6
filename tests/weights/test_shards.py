"""Sharded tensors: streaming writes, reads of row ranges, and errors of inconsistent shards."""

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

TENSORS = {
    "a": torch.randn(5, 3),
    "empty": torch.empty(0, 4),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "boolean": torch.tensor([True, False, True]),
    "half": torch.randn(3).bfloat16(),
    "count": torch.arange(7),
}


def write_slices(folder: Path, cuts: list[int], tensor: Tensor) -> FileEntries:
    """Write a tensor in slices, each to its own file."""
    files: FileEntries = {}
    for number, (begin, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
        name = shard_name("x.safetensors", number, len(cuts) - 1)
        files[name] = {**write_safetensors({"t": tensor[begin:end]}, folder / name), "slices": {"t": [begin, end]}}
    return files


@pytest.mark.parametrize("dtype", list(DTYPE_NAMES), ids=str)
def test_files_written_tensor_by_tensor_are_valid_safetensors(dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = {**TENSORS, "other": torch.arange(3).to(dtype)}
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


def test_unsupported_dtypes_and_nan_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"x: 't' has dtype torch.complex64, which safetensors does not support"):
        write_safetensors({"t": torch.ones(1, dtype=torch.complex64)}, tmp_path / "x")
    with pytest.raises(WeightsError, match=r"y: 't' contains NaN or infinity"):
        write_safetensors({"t": torch.tensor([torch.nan])}, tmp_path / "y")


@pytest.mark.parametrize("cuts", [[0, 7], [0, 3, 7], [0, 3, 6, 7], [0, 4, 7, 7]], ids=str)
def test_any_range_of_rows_can_be_read_from_any_slices(cuts: list[int], tmp_path: Path) -> None:
    tensor = torch.randn(7, 2)
    stored = read_shards(tmp_path, "x.safetensors", write_slices(tmp_path, cuts, tensor))["t"]
    assert stored.shape == stored.meta().shape == tensor.shape
    assert torch.equal(stored.full(), tensor)
    for begin in range(8):
        for end in range(begin, 8):
            assert torch.equal(stored.rows(begin, end), tensor[begin:end])


def test_slices_that_are_not_contiguous_raise_an_error(tmp_path: Path) -> None:
    files = write_slices(tmp_path, [0, 3, 6, 7], torch.randn(7))
    last = "x-00003-of-00003.safetensors"
    for slices, message in (([5, 6], "are not contiguous"), ([6, 8], "holds 1 rows of 't', expected 2")):
        with pytest.raises(WeightsError, match=message):
            read_shards(tmp_path, "x.safetensors", {**files, last: {**files[last], "slices": {"t": slices}}})
    with pytest.raises(WeightsError, match=rf"does not list {last}, one of 3 shards of x.safetensors"):
        shard_files(tmp_path, "x.safetensors", {name: entry for name, entry in files.items() if name != last})
    with pytest.raises(WeightsError, match=r"does not list y.safetensors: this is not a checkpoint"):
        shard_files(tmp_path, "y.safetensors", files)


def test_a_single_file_is_read_as_one_shard(tmp_path: Path) -> None:
    files = {"x.safetensors": write_safetensors(TENSORS, tmp_path / "x.safetensors")}
    read = read_shards(tmp_path, "x.safetensors", files)
    assert all(torch.equal(read[name].full(), tensor) for name, tensor in TENSORS.items())
    assert torch.equal(StoredTensor.from_tensor(TENSORS["a"]).rows(1, 3), TENSORS["a"][1:3])


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_tensors_are_sharded_evenly_and_indexed(count: int, tmp_path: Path) -> None:
    tensors = {f"t{number}": torch.zeros(number % 5 + 1) for number in range(30)}
    shards = assign_shards(tensors, count)
    sizes = [total_bytes({name: t for name, t in tensors.items() if shards[name] == number}) for number in range(count)]
    assert sum(sizes) == total_bytes(tensors)
    assert max(sizes) - min(sizes) <= 20
    write_index(tmp_path, shards, count, total_bytes(tensors))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == total_bytes(tensors)
    assert index["weight_map"]["t0"] == shard_name("model.safetensors", shards["t0"], count)
