"""Tensor parallelism (Shoeybi et al. 2019): heads and hidden units of every block, divided among processes."""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel.style import ParallelStyle

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore, SelfAttention
from softlook.blocks.feed_forward import FeedForward, GatedFeedForward

BLOCK_PLAN: dict[str, ParallelStyle] = {
    "attn.to_query": ColwiseParallel(),
    "attn.to_key": ColwiseParallel(),
    "attn.to_value": ColwiseParallel(),
    "attn.to_out": RowwiseParallel(),
    "ffn.to_gate": ColwiseParallel(),
    "ffn.to_up": ColwiseParallel(),
    "ffn.to_out": RowwiseParallel(),
}
"""How the linear layers of a block are divided. Two all-reduces per block: after `to_out` of each sub-layer."""


def parallelize_tensors(model: nn.Module, mesh: DeviceMesh) -> None:
    """Divide the blocks of a GPT, a Llama or another model of `blocks` over a one-dimensional mesh, in place.

    All processes must hold the same weights, and pass the same inputs; they get the same outputs. Embeddings, norms and
    the head stay whole. Random dropout would differ between the processes: set it to 0.
    """
    for block in model.get_submodule("blocks").children():
        _check_block(block, mesh.size())
        plan = {name: style for name, style in BLOCK_PLAN.items() if _has_module(block, name)}
        parallelize_module(block, mesh, plan)


def _check_block(block: nn.Module, size: int) -> None:
    """Raise ConfigError for a block that the plan does not describe."""
    attn, ffn = getattr(block, "attn", None), getattr(block, "ffn", None)
    if type(attn) is not SelfAttention or type(attn.core) is not AttentionCore or attn.core.sink is not None:
        raise ConfigError("tensor parallelism expects SelfAttention without attention sinks in every block")
    if not isinstance(ffn, FeedForward | GatedFeedForward):
        raise ConfigError(f"tensor parallelism expects feed-forward layers, got {type(ffn).__name__}")
    heads, kv_heads = attn.to_query.out_features // attn.head_dim, attn.to_key.out_features // attn.head_dim
    if heads % size or kv_heads % size:
        raise ConfigError(f"{heads} heads and {kv_heads} key/value heads cannot be divided by {size} processes")
    if ffn.to_up.out_features % size:
        raise ConfigError(f"a hidden width of {ffn.to_up.out_features} cannot be divided by {size} processes")


def _has_module(block: nn.Module, name: str) -> bool:
    return any(name == own for own, _ in block.named_modules())
