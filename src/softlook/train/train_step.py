"""One training step: forward, backward, clipping, optimizer."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, TrainingError, is_out_of_memory
from softlook.train.batching.collate import batch_size, split_batch, to_device
from softlook.train.distributed.world import World
from softlook.train.mixed_precision import autocast
from softlook.train.optimizer import scale_and_clip_grads_


@dataclass(frozen=True)
class Loss:
    """The loss of a batch: the sum over its targets, and their number."""

    total: Tensor
    count: int | Tensor
    """A tensor if counted on the device, which avoids a synchronization."""
    reported: Tensor | None = None
    """What is logged: the sum without label smoothing and R-Drop, to compare with held-out losses; default `total`."""


Objective = Callable[[nn.Module, Any], Loss]
"""(model, batch) -> loss."""


@dataclass(frozen=True)
class StepResult:
    """Metrics of one training step."""

    loss: float
    """Mean over all targets of all batches of the step, without label smoothing and R-Drop."""
    targets: int
    grad_norm: float
    """Before clipping."""
    applied: bool
    """False if loss or gradient was NaN or infinite, and the weights were left alone."""


class TrainStep:
    """Optimizer steps on a model, with gradient accumulation: every target weighs the same, as in one large batch."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        *,
        grad_clip: float,
        dtype: torch.dtype = torch.float32,
        world: World | None = None,
    ) -> None:
        self.objective, self.optimizer, self.grad_clip, self.dtype = objective, optimizer, grad_clip, dtype
        self.world = world or World()
        self.model = self.world.wrap_ddp(model)
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.device = self.parameters[0].device
        self.sum_dtype = torch.float32 if self.device.type == "mps" else torch.float64
        if self.world.is_sharded and dtype == torch.float16:
            raise ConfigError("precision=float16 does not work with parallel=fsdp. Use bfloat16, or parallel=ddp.")
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=dtype == torch.float16)
        self.micro_batches = 1
        """Micro-batches per batch: doubled whenever the device runs out of memory."""

    def autocast(self) -> AbstractContextManager[object]:
        """Compute in the chosen dtype."""
        return autocast(self.dtype, self.device)

    def step(self, batches: Sequence[Any], lr: float) -> StepResult:
        """One optimizer step on `batches` at learning rate `lr`."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        sums, divisor = self._compute_gradients(batches)
        total, targets, reported = sums
        self.scaler.unscale_(self.optimizer)
        scale = divisor * self.world.size / targets.clamp(min=1)
        grads = (p.grad for p in self.parameters if p.grad is not None)
        grad_norm = scale_and_clip_grads_(grads, scale, self.grad_clip)
        values = torch.stack([total, targets, reported, grad_norm])
        loss_sum, count, reported_sum, norm = values.tolist()  # the step's only synchronization
        applied = math.isfinite(loss_sum) and math.isfinite(norm)
        if applied:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return StepResult((reported_sum if applied else loss_sum) / max(count, 1), int(count), norm, applied)

    def _compute_gradients(self, batches: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Backward through all batches, in micro-batches that fit into memory."""
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            try:
                return self._backward(batches)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error)
            # Only here, outside the handler, are the tensors of the failed attempt freed.
            self._split_further(batches, reason)

    def _backward(self, batches: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """The sums over all batches (loss, number of targets, reported loss) and the divisor of the gradients.

        The divisor is the number of targets of the first micro-batch: it keeps gradients in the range of float16.
        """
        work = self._micro_batches(batches)
        sums, divisor = torch.zeros(3, device=self.device, dtype=self.sum_dtype), None
        for number, (micro_batch, weight) in enumerate(work, 1):
            with self.world.no_sync(self.model, unless=number == len(work)):
                with self.autocast():
                    loss = self.objective(self.model, to_device(micro_batch, self.device))
                count = torch.as_tensor(loss.count).to(sums)
                if divisor is None:
                    divisor = self.world.all_reduce_sum(count.clone()).clamp(min=1) / self.world.size
                self.scaler.scale(loss.total * (weight / divisor).to(loss.total.dtype)).backward()
            reported = loss.total if loss.reported is None else loss.reported
            sums += weight * torch.stack([loss.total.detach().to(sums), count, reported.detach().to(sums)])
        assert divisor is not None
        return self.world.all_reduce_sum(sums), divisor

    def _micro_batches(self, batches: Sequence[Any]) -> list[tuple[Any, float]]:
        """The micro-batches of this process with their weights.

        A process without work computes one of weight 0. With FSDP, whose forward is a collective, every process
        computes as many as the others.
        """
        own = [(chunk, 1.0) for chunk in self._split(batches, self.world)]
        ranks = [replace(self.world, rank=rank) for rank in range(self.world.size)] if self.world.is_sharded else []
        count = max([1, *(len(self._split(batches, rank)) for rank in ranks)])
        idle = [(split_batch(batches[0], batch_size(batches[0]))[0], 0.0)] if len(own) < count else []
        return own + idle * (count - len(own))

    def _split(self, batches: Sequence[Any], world: World) -> list[Any]:
        return [chunk for batch in world.local_batches(batches) for chunk in split_batch(batch, self.micro_batches)]

    def _split_further(self, batches: Sequence[Any], reason: str) -> None:
        """Double the number of micro-batches, or raise.

        Not with several processes: the others have already started to reduce gradients with the one that ran out of
        memory.
        """
        why = ""
        if self.world.size > 1:
            why = f"rank {self.world.rank} of {self.world.size} cannot split its batch while the others wait for it"
        elif self.micro_batches >= max(batch_size(batch) for batch in batches):
            why = "the batch cannot be split further"
        if why:
            raise TrainingError(
                f"{self.device} is out of memory, and {why}: {reason.splitlines()[0]} "
                "Use a smaller batch or model, or shorter examples."
            )
        self.micro_batches *= 2
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
