"""Tensor and context parallelism in several processes, to be launched by tests.

python -m tests.train.distributed.model_parallel PROCESSES
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from softlook.models import GPT, GPTConfig, Llama, LlamaConfig
from softlook.train.distributed.context_parallel import (
    gather_sequence,
    parallelize_context,
    shard_sequence,
    sum_gradients,
)
from softlook.train.distributed.fsdp import full_tensor
from softlook.train.distributed.tensor_parallel import parallelize_tensors
from softlook.train.distributed.world import launch, process_group

LENGTH, VOCAB = 16, 11
SIZES: dict[str, Any] = {"vocab_size": VOCAB, "context": LENGTH, "dim": 32, "depth": 2, "heads": 4}


def models() -> dict[str, nn.Module]:
    """Models in float64, so that only the order of summation differs."""
    torch.manual_seed(0)
    made = {
        "gpt": GPT(GPTConfig(**SIZES, dropout=0.0)),
        "rotary": GPT(GPTConfig(**SIZES, dropout=0.0, positions="rotary", parallel=True)),
        "llama": Llama(LlamaConfig(**SIZES, kv_heads=4, hidden=64)),
        "windowed": Llama(LlamaConfig(**SIZES, kv_heads=4, hidden=64, sliding_window=5, windowed_layers=(0,))),
    }
    return {name: model.double() for name, model in made.items()}


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: full_tensor(one.grad) for name, one in model.named_parameters() if one.grad is not None}


def check(name: str, tensor_mesh: DeviceMesh | None, context_mesh: DeviceMesh | None) -> None:
    """A parallel model has the logits and gradients of the model in one process."""
    ids = torch.randint(VOCAB, (2, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    inputs, targets = ids[:, :-1], ids[:, 1:]
    single = models()[name]
    expected = single(inputs)
    loss_of(expected, targets).backward()

    model = models()[name]
    if tensor_mesh is not None:
        parallelize_tensors(model, tensor_mesh)
    if context_mesh is None:
        logits = model(inputs)
        loss_of(logits, targets).backward()
    else:
        parallelize_context(model, context_mesh)
        positions = shard_sequence(torch.arange(LENGTH), context_mesh, dim=0)
        local = model(shard_sequence(inputs, context_mesh), positions=positions)
        loss_of(local, shard_sequence(targets, context_mesh)).backward()
        sum_gradients(model, context_mesh)
        logits = gather_sequence(local, context_mesh)
    torch.testing.assert_close(full_tensor(logits), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradients(model), gradients(single), rtol=1e-9, atol=1e-9)


def main(size: int) -> None:
    torch.set_num_threads(1)
    with process_group(torch.device("cpu"), heartbeat_timeout=0):
        line = init_device_mesh("cpu", (size,))
        for name in models():
            check(name, line, None)
            check(name, None, line)
        if size == 4:
            square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("context", "tensor"))
            for name in models():
                check(name, square["tensor"], square["context"])


if __name__ == "__main__":
    launch(main, int(sys.argv[1]), int(sys.argv[1]))
