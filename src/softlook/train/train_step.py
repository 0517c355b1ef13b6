"""One training step: forward, backward, clipping, optimizer."""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, TrainingError, is_out_of_memory
from softlook.train.batching.collate import batch_size, split_batch, to_device
from softlook.train.compilation import LossCompiler, Sums
from softlook.train.distributed.world import World
from softlook.train.ema import EMA
from softlook.train.mixed_precision import autocast
from softlook.train.optimizer import scale_and_clip_grads_

log = logging.getLogger("softlook.train")


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


class PendingStep:
    """A step that the device may still be working on."""

    def __init__(self, values: Tensor) -> None:
        """`values`: the sums of losses, targets and reported losses, and the gradient norm."""
        self.applied = torch.isfinite(values[0]) & torch.isfinite(values[3])
        """Whether the weights change, as a number on the device."""
        self._values, self._copied = values, None
        if values.is_cuda:
            self._values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def wait(self) -> StepResult:
        """The metrics of the step, once the device has computed them."""
        if self._copied is not None:
            self._copied.synchronize()
        loss_sum, count, reported_sum, norm = self._values.tolist()
        applied = math.isfinite(loss_sum) and math.isfinite(norm)
        return StepResult((reported_sum if applied else loss_sum) / max(count, 1), int(count), norm, applied)


class TrainStep:
    """Optimizer steps on a model, with gradient accumulation: every target weighs the same, as in one large batch.

    `compile_reason` says why the step is not compiled; None compiles it with `backend` of torch.compile, after
    `warmup_calls` batches and only for their common shapes, or at once for all.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        *,
        grad_clip: float,
        dtype: torch.dtype = torch.float32,
        world: World | None = None,
        compile_reason: str | None = "not requested",
        backend: str = "inductor",
        warmup_calls: int = 0,
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
        self.compile_reason = compile_reason
        self.compiler: LossCompiler | None = None
        if compile_reason is None:
            self.compiler = LossCompiler(self._loss, backend=backend, warmup_calls=warmup_calls)
        # The kernel of a fused optimizer reads on the device whether to skip a step: the host need not wait.
        is_fused = bool(optimizer.defaults.get("fused"))
        self.skips_on_device = is_fused and self.device.type == "cuda" and not self.world.is_sharded
        self.skips_on_device &= not self.scaler.is_enabled()

    @property
    def max_in_flight(self) -> int:
        """Steps whose metrics the host need not know before it launches the next one."""
        return int(self.skips_on_device)

    def explain(self) -> str:
        """How the step runs, and why."""
        loss = f"eager: {self.compile_reason}" if self.compiler is None else str(self.compiler)
        wait = "the host runs one step ahead" if self.skips_on_device else "the host waits for every step"
        name = type(self.optimizer).__name__
        fused = "fused " if self.optimizer.defaults.get("fused") else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"Forward, loss and backward in {dtype}, {loss}. Optimizer: {fused}{name}; {wait}."

    def autocast(self) -> AbstractContextManager[object]:
        """Compute in the chosen dtype."""
        return autocast(self.dtype, self.device)

    def step(self, batches: Sequence[Any], lr: float) -> StepResult:
        """One optimizer step on `batches` at learning rate `lr`."""
        return self.launch(batches, lr).wait()

    def launch(self, batches: Sequence[Any], lr: float) -> PendingStep:
        """One optimizer step, which a GPU may still be working on."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        sums, divisor = self._compute_gradients(batches)
        total, targets, reported = sums
        self.scaler.unscale_(self.optimizer)
        scale = divisor * self.world.size / targets.clamp(min=1)
        grads = (p.grad for p in self.parameters if p.grad is not None)
        grad_norm = scale_and_clip_grads_(grads, scale, self.grad_clip)
        pending = PendingStep(torch.stack([total, targets, reported, grad_norm]))
        if self.skips_on_device:
            self.optimizer.found_inf = (~pending.applied).float()  # pyright: ignore[reportAttributeAccessIssue]
            self.optimizer.step()
        elif pending.wait().applied:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return pending

    def update_ema(self, ema: EMA, step: int, pending: PendingStep) -> None:
        """Include the weights after a step in their average, unless the step was skipped."""
        if self.skips_on_device:
            ema.update(step, pending.applied)
        elif pending.wait().applied:
            ema.update(step)

    def _compute_gradients(self, batches: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Backward through all batches, in micro-batches that fit into memory."""
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            try:
                return self._backward(batches)
            except Exception as error:
                is_memory, reason = is_out_of_memory(error), str(error)
                if not is_memory and not self._fall_back(error):
                    raise
            # Only here, outside the handler, are the tensors of the failed attempt freed.
            if is_memory:
                self._split_further(batches, reason)

    def _fall_back(self, error: Exception) -> bool:
        """Run eagerly from now on if the step was compiled: an error that has another cause is raised again then."""
        if self.compiler is None or self.compiler.reason is not None:
            return False
        log.warning(f"The training step runs eagerly: {self.compiler.disable(error)}")
        return True

    def _loss(self, model: nn.Module, batch: Any) -> Sums:
        loss = self.objective(model, batch)
        return loss.total, loss.count, loss.reported

    def _backward(self, batches: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """The sums over all batches (loss, number of targets, reported loss) and the divisor of the gradients.

        The divisor is the number of targets of the first micro-batch: it keeps gradients in the range of float16.
        """
        work = self._micro_batches(batches)
        sums, divisor = torch.zeros(3, device=self.device, dtype=self.sum_dtype), None
        for number, (micro_batch, weight) in enumerate(work, 1):
            with self.world.no_sync(self.model, unless=number == len(work)):
                with self.autocast():
                    compute = self._loss if self.compiler is None else self.compiler
                    total, count, reported = compute(self.model, to_device(micro_batch, self.device))
                count = torch.as_tensor(count).to(sums, non_blocking=True)
                if divisor is None:
                    divisor = self.world.all_reduce_sum(count.clone()).clamp(min=1) / self.world.size
                self.scaler.scale(total * (weight / divisor).to(total.dtype)).backward()
            reported = total if reported is None else reported
            sums += weight * torch.stack([total.detach().to(sums), count, reported.detach().to(sums)])
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
