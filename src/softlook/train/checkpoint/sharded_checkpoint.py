"""Sharded checkpoints: written and verified by all ranks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torch import Tensor
from torch.distributed.tensor import DTensor

from softlook.base.errors import DiskError, WeightsError
from softlook.train.distributed.fsdp import full_tensor, local_tensor, row_range
from softlook.train.distributed.world import World
from softlook.weights.atomic_folder import atomic_folder, disk_errors
from softlook.weights.manifest import FileEntries, read_manifest, verify_file
from softlook.weights.tensor_files import (
    SINGLE_FILE,
    SLICES_KEY,
    assign_shards,
    open_writer,
    shard_files,
    shard_name,
    storage_order,
    total_bytes,
    write_index,
    write_safetensors,
)

TensorFiles = Mapping[str, Mapping[str, Tensor]]
"""Tensors by file and name."""


@contextmanager
def shared_folder(target: Path, world: World) -> Iterator[Path]:
    """An atomic folder that all ranks write into; rank 0 renames it at the end."""
    with ExitStack() as stack:
        partial = stack.enter_context(atomic_folder(target)) if world.is_rank_zero else target
        yield target.parent / world.all_gather_text(partial.name)[0]


def write_sharded(files: TensorFiles, folder: Path, world: World) -> FileEntries:
    """Write this rank's shard of every file; returns the manifest entries of all ranks.

    The model's weights are distributed as full tensors, which any reader understands. Of everything else each rank
    writes the rows it holds.
    """
    entries: FileEntries = {}
    with raise_on_all_ranks(world), disk_errors("write", folder):
        for file, tensors in files.items():
            path = folder / shard_name(file, world.rank, world.size)
            entries[path.name] = (_write_full if file == SINGLE_FILE else _write_rows)(tensors, path, world)
        if world.is_rank_zero:
            shards = assign_shards(files[SINGLE_FILE], world.size)
            write_index(folder, shards, world.size, total_bytes(files[SINGLE_FILE]))
    return {
        name: entry for one in world.all_gather_text(json.dumps(entries)) for name, entry in json.loads(one).items()
    }


def _write_full(tensors: Mapping[str, Tensor], path: Path, world: World) -> dict[str, object]:
    """Write the full tensors assigned to this rank. Each is gathered by all ranks and freed before the next."""
    shards = assign_shards(tensors, world.size)
    own = {name: tensor for name, tensor in tensors.items() if shards[name] == world.rank}
    gathered = ((name, full_tensor(tensors[name])) for name in storage_order(tensors))
    try:
        with open_writer(path, own) as writer:
            for name, tensor in gathered:
                if name in own:
                    writer.add(name, tensor)
            return writer.manifest_entry()
    finally:
        for _ in gathered:  # if this rank failed, the others still need its rows
            pass


def _write_rows(tensors: Mapping[str, Tensor], path: Path, world: World) -> dict[str, object]:
    """Write the rows that this rank holds; rank 0 also writes what is not sharded."""
    rows = {name: row_range(tensor) for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    own = {
        name: local_tensor(tensor)
        for name, tensor in tensors.items()
        if world.is_rank_zero or (name in rows and rows[name][0] < rows[name][1])
    }
    return {**write_safetensors(own, path), SLICES_KEY: {name: rows[name] for name in own if name in rows}}


def verify_sharded(folder: Path, required: Sequence[str], world: World) -> FileEntries:
    """The manifest entries of a checkpoint, after all ranks together verified its files."""
    entries: FileEntries = {}
    with raise_on_all_ranks(world):
        entries = read_manifest(folder)
        for file in required:
            shard_files(folder, file, entries)
        for name in list(entries)[world.rank :: world.size]:
            verify_file(folder / name, entries[name])
    return entries


@contextmanager
def raise_on_all_ranks(world: World) -> Iterator[None]:
    """Raise an error of one rank on all of them, so that none waits for one that failed."""
    own = ""
    try:
        yield
    except (DiskError, WeightsError) as error:
        own = json.dumps([isinstance(error, DiskError), str(error)])
    for encoded in filter(None, world.all_gather_text(own)):
        is_disk_error, message = json.loads(encoded)
        raise (DiskError if is_disk_error else WeightsError)(message)
