"""Weights that are parted among processes (FSDP2), and whole again where somebody wants to see them."""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard

from softlook.weights.parts import Stored

DOORS = ("encode", "decode")
"""Ways into a model beside `forward`."""


def part(model: nn.Module, device: torch.device, size: int) -> None:
    """Give each process a part of every weight. Those of a block are brought together while it is at work."""
    mesh = init_device_mesh(device.type, (size,))
    for module in model.modules():
        for block in module if isinstance(module, nn.ModuleList) else ():
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for door in DOORS:
        if hasattr(model, door):
            register_fsdp_forward_method(model, door)


def keep_apart(model: nn.Module, *, until: bool) -> None:
    """Gradients stay at home until the last piece."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(until)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor. All processes ask for it at once."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own(tensor: Tensor) -> Tensor:
    """The part of it that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def span(place: DTensor) -> tuple[int, int]:
    """The rows of a whole tensor that this process holds.

    >>> from types import SimpleNamespace as Some
    >>> meshes = [Some(size=lambda: 3, get_local_rank=lambda rank=rank: rank) for rank in range(3)]
    >>> [span(Some(shape=(4, 2), placements=(Shard(0),), device_mesh=mesh)) for mesh in meshes]
    [(0, 2), (2, 4), (4, 4)]
    """
    assert place.placements == (Shard(0),), place.placements
    count, mesh = place.shape[0], place.device_mesh
    most = -(-count // mesh.size())
    begin = min(most * mesh.get_local_rank(), count)
    return begin, min(begin + most, count)


def rows_for(place: Tensor, stored: Stored) -> Tensor:
    """What of a tensor on disk belongs into a place of this process."""
    return stored.rows(*span(place)) if isinstance(place, DTensor) else stored.whole()


def as_in(place: Tensor, stored: Stored) -> Tensor:
    """A tensor from disk, parted as `place` is."""
    rows = rows_for(place, stored).to(place.device, copy=True)
    if not isinstance(place, DTensor):
        return rows
    mesh, placements = place.device_mesh, place.placements
    return DTensor.from_local(rows, mesh, placements, run_check=False, shape=place.shape, stride=place.stride())


def gather_in(model: nn.Module) -> None:
    """Let go of weights that were brought together, so that nobody goes on with them after the parts have changed."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
