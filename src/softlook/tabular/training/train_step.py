"""Training step: eager on a CPU, a CUDA graph on a GPU.

A step on a table is hundreds of kernels of a few microseconds each; launched one by one, the host would be slower than
the device.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import is_out_of_memory
from softlook.models.ft_transformer import FTTransformer
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import Target
from softlook.tabular.presets import Hyperparameters
from softlook.train.mixed_precision import bf16_if_faster

log = logging.getLogger("softlook.tabular")
Forward = Callable[[nn.Module, TableTensors], Tensor]
CPU_CHUNK_VALUES = 5 << 20
"""Token and attention map values that a CPU processes at a time in training: more would leave its caches."""
MIN_CPU_CHUNK_ROWS = 128
WARMUP_STEPS = 3
"""Steps before a graph capture, in which libraries allocate their workspaces; they leave no trace."""


def ensemble_outputs(model: nn.Module, rows: TableTensors) -> Tensor:
    """(N, E, K): every member's outputs; a model without an ensemble is one member."""
    outputs = model(rows.numbers, rows.categories)
    return outputs if outputs.ndim == 3 else outputs[:, None]


class TableTrainStep:
    """Forward, backward and AdamW step of a batch."""

    can_capture = True
    """Whether a full batch on a GPU runs as a CUDA graph."""

    def __init__(
        self,
        model: nn.Module,
        target: Target | None,
        hparams: Hyperparameters,
        more_parameters: Iterable[nn.Parameter] = (),
    ) -> None:
        self.model, self.target, self.hparams = model, target, hparams
        self.optimizer = build_optimizer(model, hparams)
        if more := list(more_parameters):
            self.optimizer.add_param_group({"params": more, "weight_decay": 0.0})
        self.parameters = [weights for group in self.optimizer.param_groups for weights in group["params"]]
        self.device = self.parameters[0].device
        self.captured_size, self.replay = 0, None

    def step(self, rows: Any, lr: float, batch_size: int) -> Tensor:
        """One step at a learning rate; returns the loss. `batch_size` is that of a full batch."""
        set_lr(self.optimizer, lr)
        if not self._captures or len(rows) != batch_size:
            return self._eager_step(rows)
        if self.replay is None or self.captured_size != batch_size:
            self.captured_size, self.replay = batch_size, self._capture(rows)
        return self.replay(rows)

    def micro_batches(self, rows: Any) -> Iterator[Any]:
        """The parts of a batch that are processed at a time; their gradients are accumulated."""
        return rows.split(cpu_micro_batch_size(self.model, rows) if self.device.type == "cpu" else len(rows))

    def loss(self, rows: Any, forward: Forward) -> Tensor:
        """The mean loss of some rows."""
        assert self.target is not None and rows.targets is not None and rows.weight is not None
        with bf16_if_faster(self.device) if self.hparams.mixed_precision else nullcontext():
            outputs = forward(self.model, rows)
        losses = self.target.loss(outputs.to(self.parameters[0]), rows.targets)
        return (losses.mean(1) * rows.weight).mean()

    @property
    def _captures(self) -> bool:
        return self.can_capture and self.device.type == "cuda"

    def _eager_step(self, rows: Any, forward: Forward = ensemble_outputs) -> Tensor:
        self.optimizer.zero_grad(set_to_none=not self._captures)  # a graph knows gradients by their addresses
        parts = [self._backward(part, len(part) / len(rows), forward) for part in self.micro_batches(rows)]
        if self.hparams.grad_clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.hparams.grad_clip)
        self.optimizer.step()
        return torch.stack(parts).sum()

    def _backward(self, rows: Any, fraction: float, forward: Forward) -> Tensor:
        """Accumulate the gradients of a fraction of the batch; returns its part of the loss."""
        loss = self.loss(rows, forward) * fraction
        loss.backward()
        return loss.detach()

    def _capture(self, rows: TableTensors) -> Callable[[TableTensors], Tensor]:
        """Capture a step as a CUDA graph. Weights, optimizer state and random state are restored afterwards."""
        static_rows = rows.clone()
        rng_state = torch.cuda.get_rng_state(self.device)
        before = {id(tensor): tensor.detach().clone() for tensor in self._state_tensors()}
        forward = torch.compile(ensemble_outputs, dynamic=False) if self.hparams.compile else ensemble_outputs
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            forward = self._warm_up(static_rows, forward)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self._eager_step(static_rows, forward)
        with torch.no_grad():
            for tensor in self._state_tensors():  # new state begins at 0
                tensor.copy_(before[id(tensor)]) if id(tensor) in before else tensor.zero_()
        torch.cuda.set_rng_state(rng_state, self.device)

        def replay(rows: TableTensors) -> Tensor:
            for static, tensor in zip(static_rows.tensors(), rows.tensors(), strict=True):
                if static is not None and tensor is not None:
                    static.copy_(tensor)
            graph.replay()
            return loss

        return replay

    def _warm_up(self, rows: TableTensors, forward: Forward) -> Forward:
        """Some steps; returns the forward pass to capture, which is not compiled if that fails."""
        try:
            for _ in range(WARMUP_STEPS):
                self._eager_step(rows, forward)
        except Exception as error:
            if forward is ensemble_outputs or is_out_of_memory(error):
                raise
            log.warning(f"Training steps are not compiled: {type(error).__name__}: {' '.join(str(error).split()):.300}")
            return self._warm_up(rows, ensemble_outputs)
        return forward

    def _state_tensors(self) -> list[Tensor]:
        """Weights and optimizer state."""
        values = (value for state in self.optimizer.state.values() for value in state.values())
        return [*self.parameters, *(value for value in values if isinstance(value, Tensor))]


def cpu_micro_batch_size(model: nn.Module, rows: TableTensors) -> int:
    """Rows that a CPU processes at a time. A TableTransformer takes the whole batch: parts were measured slower."""
    if not isinstance(model, FTTransformer):
        return len(rows)
    tokens = 1 + rows.numbers.shape[1] + rows.categories.shape[1]
    values_per_row = tokens * (model.config.dim + model.config.heads * tokens)
    return max(MIN_CPU_CHUNK_ROWS, CPU_CHUNK_VALUES // values_per_row)


def cosine_warmup(peak: float, *, warmup: float, decay: float) -> float:
    """Learning rate with linear warmup and cosine decay; both are progress fractions, clipped at 1.

    >>> [round(cosine_warmup(1.0, warmup=up, decay=down), 2) for up, down in ((0.5, 0), (1.0, 0), (2.0, 0.5), (9.0, 1))]
    [0.5, 1.0, 0.5, 0.0]
    """
    return peak * min(1.0, warmup) * (1 + math.cos(math.pi * min(1.0, decay))) / 2


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of all groups; a tensor is updated in place, because a CUDA graph reads it there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def build_optimizer(model: nn.Module, hparams: Hyperparameters) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only: not on embeddings, norms, biases, vectors and member scales."""
    own = (module for module in model.modules() if type(module).__module__.startswith("softlook.embed."))
    embeddings = [*own, *(module for module in model.modules() if isinstance(module, nn.Embedding))]
    no_decay = {id(weights) for module in embeddings for weights in module.parameters()}
    named = model.named_parameters()
    no_decay |= {id(weights) for name, weights in named if weights.ndim < 2 or name in ("member_scale", "head_bias")}
    trainable = [weights for weights in model.parameters() if weights.requires_grad and weights.numel()]
    groups = [
        {"params": [one for one in trainable if id(one) not in no_decay], "weight_decay": hparams.weight_decay},
        {"params": [one for one in trainable if id(one) in no_decay], "weight_decay": 0.0},
    ]
    device = trainable[0].device
    if device.type == "cuda":  # in a graph the learning rate must be on the device
        lr = torch.tensor(hparams.lr, device=device)
        return torch.optim.AdamW(groups, lr=lr, fused=True, capturable=True)
    return torch.optim.AdamW(groups, lr=hparams.lr, fused=device.type == "cpu")
