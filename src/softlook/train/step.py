"""One update of the weights: forward, backward, and what may go wrong on the way."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, TrainingError, is_out_of_memory
from softlook.train.device import working_in
from softlook.train.distributed import World
from softlook.train.optimizer import shorten
from softlook.train.tensors import parted, rows, there


@dataclass(frozen=True)
class Loss:
    """What an objective says of a batch: the sum over its targets, and how many there are."""

    total: Tensor
    count: int | Tensor
    """A tensor where it was counted on the device, so that nobody has to wait for it."""


Objective = Callable[[nn.Module, Any], Loss]
"""(model, batch) -> loss."""


@dataclass(frozen=True)
class Stepped:
    """What came of one update."""

    loss: float
    """The mean over all targets of all batches that went into it."""
    targets: int
    gradient: float
    """Its length before it was clipped."""
    taken: bool
    """False where it was no number, and the weights were left alone."""


class Stepper:
    """Updates a model. Several batches added up give what one large batch gives: each target weighs the same."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        *,
        clip: float,
        kind: torch.dtype = torch.float32,
        world: World | None = None,
    ) -> None:
        self.objective, self.optimizer, self.clip, self.kind = objective, optimizer, clip, kind
        self.world = world or World()
        self.model = self.world.joined(model)
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.device = self.parameters[0].device
        self.exact = torch.float32 if self.device.type == "mps" else torch.float64
        if self.world.is_parted and kind == torch.float16:
            raise ConfigError("float16 and weights in parts do not go together. Take bfloat16, or parallel=ddp.")
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=kind == torch.float16)
        self.parts = 1
        """Pieces that each batch is cut into: twice as many whenever the memory is full."""

    def working(self) -> AbstractContextManager[object]:
        """Compute in the kind of numbers that was chosen."""
        return working_in(self.kind, self.device)

    def step(self, batches: Sequence[Any], lr: float) -> Stepped:
        """One update from `batches`, at learning rate `lr`."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        total, targets, divisor = self._gradients(batches)
        self.scaler.unscale_(self.optimizer)
        factor = divisor * self.world.size / targets.clamp(min=1)
        length = shorten((p.grad for p in self.parameters if p.grad is not None), factor, self.clip)
        heard = torch.stack([total, targets, length]).tolist()  # the only time that the device is waited for
        taken = math.isfinite(heard[0]) and math.isfinite(heard[2])
        if taken:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return Stepped(heard[0] / max(heard[1], 1), int(heard[1]), heard[2], taken)

    def _gradients(self, batches: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
        """Backward through all batches, in pieces for which there is room."""
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            try:
                return self._backward(batches)
            except RuntimeError as fault:
                if not is_out_of_memory(fault):
                    raise
                reason = str(fault)
            # Only here, where nothing holds on to the failed attempt any more, is there room again.
            self._halve(batches, reason)

    def _backward(self, batches: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
        """The summed loss, the number of targets, and the number that the gradients of the sum were divided by.

        That is the number of targets of the first piece: so they stay in the range of half precision.
        """
        pieces = self._pieces(batches)
        said, divisor = torch.zeros(2, device=self.device, dtype=self.exact), None
        for number, (piece, weight) in enumerate(pieces, 1):
            with self.world.quiet(self.model, until=number == len(pieces)):
                with self.working():
                    loss = self.objective(self.model, there(piece, self.device))
                count = torch.as_tensor(loss.count).to(said)
                if divisor is None:
                    divisor = self.world.summed(count.clone()).clamp(min=1) / self.world.size
                self.scaler.scale(loss.total * (weight / divisor).to(loss.total.dtype)).backward()
            said += weight * torch.stack([loss.total.detach().to(said), count])
        total, targets = self.world.summed(said)
        assert divisor is not None
        return total, targets, divisor

    def _pieces(self, batches: Sequence[Any]) -> list[tuple[Any, float]]:
        """What this process works through, and what it counts for.

        Whoever has nothing to do does something that counts for nothing; and where weights are in parts, which have
        to be brought together by all at once, everybody works through as many pieces as the others.
        """
        own = [(piece, 1.0) for piece in self._share(batches, self.world)]
        everybody = [replace(self.world, rank=rank) for rank in range(self.world.size)] if self.world.is_parted else []
        most = max([1, *(len(self._share(batches, one)) for one in everybody)])
        idle = [(parted(batches[0], rows(batches[0]))[0], 0.0)] if len(own) < most else []
        return own + idle * (most - len(own))

    def _share(self, batches: Sequence[Any], world: World) -> list[Any]:
        return [piece for batch in world.share(batches) for piece in parted(batch, self.parts)]

    def _halve(self, batches: Sequence[Any], reason: str) -> None:
        """Smaller pieces from now on.

        Not where several learn as one: while this process ran out of memory the others have begun to add up gradients
        with it, and nothing brings them back from there.
        """
        why = ""
        if self.world.size > 1:
            why = f"rank {self.world.rank} of {self.world.size} cannot change its pieces while the others wait for it"
        elif self.parts >= max(rows(batch) for batch in batches):
            why = "the batch cannot be made smaller"
        if why:
            raise TrainingError(
                f"the memory of {self.device} is full, and {why}: {reason.splitlines()[0]} "
                "Try a smaller batch or model, or shorter examples."
            )
        self.parts *= 2
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
