"""A checkpoint that several processes write and check together: each its part, all of them or none."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torch import Tensor
from torch.distributed.tensor import DTensor

from softlook.base.errors import DiskError, WeightsError
from softlook.train.distributed import World
from softlook.train.sharding import own, span, whole
from softlook.weights.files import SINGLE
from softlook.weights.folders import new_folder, told
from softlook.weights.manifest import Listed, check_file, listed
from softlook.weights.parts import SLICES, part_name, parts_of
from softlook.weights.writing import dealt, in_order, size_of, write_index, writing

Kept = Mapping[str, Mapping[str, Tensor]]
"""Tensors by the file they belong to and their name."""


@contextmanager
def shared_folder(target: Path, world: World) -> Iterator[Path]:
    """A new folder that all processes fill. It takes its name when the first one is done with it."""
    with ExitStack() as stack:
        made = stack.enter_context(new_folder(target)) if world.first else target
        yield target.parent / world.heard(made.name)[0]


def write_parts(kept: Kept, folder: Path, world: World) -> Listed:
    """Each process writes its part of every file. Gives what a manifest says of all parts.

    The weights to answer with are dealt out whole, so that anybody can read them. Of everything else each process
    writes the rows it holds.
    """
    entries: Listed = {}
    with agreement(world), told("write", folder):
        for file, tensors in kept.items():
            path = folder / part_name(file, world.rank, world.size)
            entries[path.name] = (_deal if file == SINGLE else _cut)(tensors, path, world)
        if world.first:
            write_index(folder, dealt(kept[SINGLE], world.size), world.size, size_of(kept[SINGLE]))
    return {name: entry for one in world.heard(json.dumps(entries)) for name, entry in json.loads(one).items()}


def _deal(tensors: Mapping[str, Tensor], path: Path, world: World) -> dict[str, object]:
    """Whole tensors. Each is brought together in all processes at once, and let go before the next."""
    homes = dealt(tensors, world.size)
    mine = {name: tensor for name, tensor in tensors.items() if homes[name] == world.rank}
    every = ((name, whole(tensors[name])) for name in in_order(tensors))
    try:
        with writing(path, mine) as writer:
            for name, tensor in every:
                if name in mine:
                    writer.add(name, tensor)
            return writer.entry()
    finally:
        for _ in every:  # where this one failed, the others still want its rows
            pass


def _cut(tensors: Mapping[str, Tensor], path: Path, world: World) -> dict[str, object]:
    """The rows that this process holds; what everybody holds, the first one writes."""
    spans = {name: span(tensor) for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    mine = {
        name: own(tensor)
        for name, tensor in tensors.items()
        if world.first or (name in spans and spans[name][0] < spans[name][1])
    }
    with writing(path, mine) as writer:
        for name in writer.names:
            writer.add(name, mine[name])
        return {**writer.entry(), SLICES: {name: spans[name] for name in mine if name in spans}}


def checked(folder: Path, needed: Sequence[str], world: World) -> Listed:
    """What a checkpoint's manifest lists, after everything was compared with it: by each process a share."""
    files: Listed = {}
    with agreement(world):
        files = listed(folder)
        for file in needed:
            parts_of(folder, file, files)
        for name in list(files)[world.rank :: world.size]:
            check_file(folder / name, files[name])
    return files


@contextmanager
def agreement(world: World) -> Iterator[None]:
    """What goes wrong in one process goes wrong in all, in the same words: nobody waits for one that gave up."""
    words = ""
    try:
        yield
    except (DiskError, WeightsError) as fault:
        words = json.dumps([isinstance(fault, DiskError), str(fault)])
    for said in filter(None, world.heard(words)):
        is_of_disk, message = json.loads(said)
        raise (DiskError if is_of_disk else WeightsError)(message)
