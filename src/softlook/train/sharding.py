"""Weights that are parted among processes (FSDP2), and whole again where somebody wants to see them."""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

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


def as_in(place: Tensor, tensor: Tensor) -> Tensor:
    """A whole tensor parted as `place` is."""
    if not isinstance(place, DTensor):
        return tensor
    return distribute_tensor(tensor.to(place.device), place.device_mesh, place.placements, src_data_rank=None)
