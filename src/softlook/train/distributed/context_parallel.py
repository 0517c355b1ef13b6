"""Context parallelism: the tokens of long sequences, divided among processes.

Every process computes all layers for its own tokens; attention alone needs those of the others, whose keys and values
are gathered (as in Llama 3, section 3.3.2). With a causal mask the first tokens of a sequence attend to few keys, and
the last ones to all. So a sequence is cut into twice as many chunks as there are processes, and each gets one from the
front and one from the back, which is the same work for all.
"""

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from softlook.base.errors import ConfigError, MaskError, ShapeError
from softlook.blocks.attention import AttentionCore, MultiHeadAttention
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask
from softlook.ops.masks.masks import WindowMask

SEQUENCE_DIM = 2
"""Of queries, keys and values (B, H, T, D)."""


def parallelize_context(model: nn.Module, mesh: DeviceMesh) -> None:
    """Let every causal self-attention of a model attend to the tokens of all processes of a one-dimensional mesh.

    The model is then called with the tokens and positions of this process:

        positions = shard_sequence(torch.arange(length), mesh, dim=0)
        logits = model(shard_sequence(ids, mesh), positions=positions)

    The gradients of a loss that is a sum over tokens are summed by `sum_gradients`.
    """
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            if not isinstance(module.core, AttentionCore):
                raise ConfigError(f"context parallelism expects AttentionCore, got {type(module.core).__name__}")
            module.core = ContextParallelAttention(module.core, mesh)


class ContextParallelAttention(nn.Module):
    """Causal attention from the tokens of this process to those of all: `core`, called once for each of two chunks."""

    def __init__(self, core: AttentionCore, mesh: DeviceMesh) -> None:
        super().__init__()
        self.core, self.mesh = core, mesh

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None, bias: Bias | None = None
    ) -> Tensor:
        if not isinstance(mask, WindowMask) or mask.right != 0:
            raise MaskError(f"context parallelism expects a causal mask, or a causal window, got {mask}")
        key, value = (gather_sequence(one, self.mesh, SEQUENCE_DIM) for one in (key, value))
        outputs: list[Tensor] = []
        for number, chunk in zip(_own_chunks(self.mesh), query.chunk(2, SEQUENCE_DIM), strict=True):
            stop = (number + 1) * chunk.shape[SEQUENCE_DIM]  # causal masks align queries with the last keys
            outputs.append(self.core(chunk, key[:, :, :stop], value[:, :, :stop], mask, bias))
        return torch.cat(outputs, SEQUENCE_DIM)


def shard_sequence(tensor: Tensor, mesh: DeviceMesh, dim: int = 1) -> Tensor:
    """The two chunks of a tensor that belong to this process."""
    count = 2 * mesh.size()
    if tensor.shape[dim] % count:
        raise ShapeError(f"a sequence of {tensor.shape[dim]} tokens cannot be cut into {count} equal chunks: pad it")
    chunks = tensor.chunk(count, dim)
    return torch.cat([chunks[number] for number in _own_chunks(mesh)], dim)


def gather_sequence(tensor: Tensor, mesh: DeviceMesh, dim: int = 1) -> Tensor:
    """The inverse of `shard_sequence`: all tokens in order, differentiable. All processes must call it together."""
    sharded = DTensor.from_local(tensor, mesh, [Shard(dim)], run_check=False)
    gathered = sharded.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
    chunks, size = gathered.chunk(2 * mesh.size(), dim), mesh.size()
    front, back = chunks[0::2], chunks[1::2]  # of each process
    assert len(front) == len(back) == size
    return torch.cat([*front, *reversed(back)], dim)


def sum_gradients(model: nn.Module, mesh: DeviceMesh) -> None:
    """Add up the gradients of all processes of a mesh, each from its own tokens."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            local = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
            dist.all_reduce(local, group=mesh.get_group())


def _own_chunks(mesh: DeviceMesh) -> tuple[int, int]:
    """The numbers of this process's chunks: one from the front, one from the back."""
    rank = mesh.get_local_rank()
    return rank, 2 * mesh.size() - 1 - rank
