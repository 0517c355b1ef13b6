"""FSDP2: sharding a model, full and local tensors."""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard

from softlook.weights.tensor_files import StoredTensor

EXTRA_FORWARD_METHODS = ("encode", "decode")
"""Methods of a model, besides `forward`, that need its full weights."""


def shard_model(model: nn.Module, device: torch.device, size: int) -> None:
    """Shard every parameter over `size` processes, one FSDP unit per block."""
    mesh = init_device_mesh(device.type, (size,))
    for module in model.modules():
        for block in module if isinstance(module, nn.ModuleList) else ():
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for method in EXTRA_FORWARD_METHODS:
        if hasattr(model, method):
            register_fsdp_forward_method(model, method)


def full_tensor(tensor: Tensor) -> Tensor:
    """The unsharded tensor. A collective: all processes must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_tensor(tensor: Tensor) -> Tensor:
    """This process's shard."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def row_range(tensor: DTensor) -> tuple[int, int]:
    """The rows of the full tensor that this process holds.

    >>> from types import SimpleNamespace as Fake
    >>> meshes = [Fake(size=lambda: 3, get_local_rank=lambda rank=rank: rank) for rank in range(3)]
    >>> [row_range(Fake(shape=(4, 2), placements=(Shard(0),), device_mesh=mesh)) for mesh in meshes]
    [(0, 2), (2, 4), (4, 4)]
    """
    assert tensor.placements == (Shard(0),), tensor.placements
    count, mesh = tensor.shape[0], tensor.device_mesh
    rows_per_rank = -(-count // mesh.size())
    begin = min(rows_per_rank * mesh.get_local_rank(), count)
    return begin, min(begin + rows_per_rank, count)


def read_local(tensor: Tensor, stored: StoredTensor) -> Tensor:
    """The part of a stored tensor that belongs to this process's shard of `tensor`."""
    return stored.rows(*row_range(tensor)) if isinstance(tensor, DTensor) else stored.full()


def read_sharded_like(tensor: Tensor, stored: StoredTensor) -> Tensor:
    """A stored tensor on the device of `tensor`, sharded as `tensor` is."""
    rows = read_local(tensor, stored).to(tensor.device, copy=True)
    if not isinstance(tensor, DTensor):
        return rows
    mesh, placements = tensor.device_mesh, tensor.placements
    return DTensor.from_local(rows, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride())


def reshard(model: nn.Module) -> None:
    """Free gathered weights, so that no stale copy is used after the shards have changed."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
