"""World of processes: collectives, DDP, launching.

Every process iterates over the same batches in the same order and computes its share of each step, so that a run gives
the same result on one device or on many.
"""

import atexit
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.fsdp import FSDPModule
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from softlook.base.device import local_rank
from softlook.base.errors import TrainingError
from softlook.train.batching.collate import split_batch
from softlook.train.config import HEARTBEAT_TIMEOUT
from softlook.train.distributed.heartbeat import Heartbeat, RankLostError, start_heartbeat

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""How long other ranks wait while rank 0 evaluates or saves."""


@dataclass(frozen=True)
class World:
    """The processes of a run. For a single process every collective is a no-op."""

    rank: int = 0
    size: int = 1
    is_sharded: bool = False
    """FSDP: each process holds a shard of every weight. Otherwise each holds a copy."""
    is_initialized: bool = False
    """Whether there is a process group, possibly of one process."""
    device: torch.device = torch.device("cpu")
    """Where tensors of collectives are."""

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def local_batches(self, batches: Sequence[Any]) -> Sequence[Any]:
        """This process's share of a step: whole batches if they can be divided evenly, else rows of each.

        >>> World(rank=1, size=2).local_batches(["a", "b", "c", "d"])
        ['b', 'd']
        >>> World(rank=1, size=2).local_batches([torch.tensor([5, 6, 7])])
        [tensor([6, 7])]
        """
        if len(batches) % self.size == 0:
            return batches[self.rank :: self.size]
        return [chunk for batch in batches for chunk in split_batch(batch, self.size)][self.rank :: self.size]

    def wrap_ddp(self, model: nn.Module) -> nn.Module:
        """Wrap a model that is not sharded in DistributedDataParallel."""
        if not self.is_initialized or self.is_sharded:
            return model
        return DistributedDataParallel(model, find_unused_parameters=True)

    def no_sync(self, model: nn.Module, *, unless: bool) -> AbstractContextManager[object]:
        """Keep gradients local (gradient accumulation), `unless` this is the last micro-batch."""
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(unless)
        return model.no_sync() if isinstance(model, DistributedDataParallel) and not unless else nullcontext()

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place."""
        if self.is_initialized:
            dist.all_reduce(tensor)
        return tensor

    def all_reduce_max(self, number: int, device: torch.device) -> int:
        """The largest number of any rank."""
        if not self.is_initialized:
            return number
        tensor = torch.tensor(number, device=device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor.item())

    def broadcast(self, number: float, device: torch.device) -> float:
        """Rank 0's number."""
        if not self.is_initialized:
            return number
        tensor = torch.tensor(number, device=device, dtype=torch.float64)
        dist.broadcast(tensor, 0)
        return tensor.item()

    def all_gather(self, tensor: Tensor, device: torch.device) -> list[Tensor]:
        """The tensors of all ranks, in order, on the CPU."""
        if not self.is_initialized:
            return [tensor]
        own = tensor.to(device)
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(gathered, own)
        return [one.cpu() for one in gathered]

    def all_gather_text(self, text: str) -> list[str]:
        """The texts of all ranks, in order."""
        encoded = torch.tensor(list(text.encode()), dtype=torch.uint8)
        lengths = self.all_gather(torch.tensor([len(encoded)]), self.device)
        length = max(int(one) for one in lengths)
        if not length:
            return [""] * len(lengths)
        gathered = self.all_gather(F.pad(encoded, (0, length - len(encoded))), self.device)
        return [bytes(one[:size].tolist()).decode() for one, size in zip(gathered, lengths, strict=True)]

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.is_initialized:
            dist.barrier()


@contextmanager
def process_group(
    device: torch.device, *, is_sharded: bool = False, heartbeat_timeout: float = HEARTBEAT_TIMEOUT
) -> Iterator[World]:
    """The world that torchrun or `launch` started this process in; without them, a world of one.

    The process group stays initialized until the process ends: initializing it twice can fail. A rank that sends no
    heartbeat for `heartbeat_timeout` seconds ends the run; 0 turns this off.
    """
    if local_rank() is None:
        yield World()
        return
    if not dist.is_initialized():
        _initialize(device, heartbeat_timeout)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), is_sharded, is_initialized=True, device=device)
    except BaseException:
        if _HEARTBEAT:
            _HEARTBEAT[0].is_healthy = False
        raise


_HEARTBEAT: list[Heartbeat] = []
"""That of this process, once the process group is initialized."""


def _initialize(device: torch.device, heartbeat_timeout: float) -> None:
    """Initialize the process group: NCCL between GPUs, gloo otherwise."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend, device_id = ("nccl", device) if device.type == "cuda" else ("gloo", None)
    dist.init_process_group(backend, device_id=device_id, timeout=COLLECTIVE_TIMEOUT)
    atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
    if heartbeat := start_heartbeat(dist.get_rank(), dist.get_world_size(), heartbeat_timeout):
        _HEARTBEAT[:] = [heartbeat]
        atexit.register(heartbeat.stop)


def launch(main: Callable[..., Any], devices: int, *arguments: Any) -> Any:
    """Run `main(*arguments)` in `devices` processes on this machine and return what rank 0 returns.

    `main` must be a module-level function and its arguments picklable. If one process fails, the others are ended too,
    and the error names it.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=devices,
        run_id="softlook",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        signals_to_handle="SIGTERM",
    )
    try:
        with _ignore_sigint():
            return elastic_launch(config, main)(*arguments)[0]
    except SignalException as error:
        raise SystemExit(128 + error.sigval) from None  # the processes got the signal too, and have saved
    except ChildFailedError as error:
        raise TrainingError(_describe_failure(error, devices)) from None


@contextmanager
def _ignore_sigint() -> Iterator[None]:
    """Leave Ctrl-C to the children: a terminal sends it to every process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _describe_failure(error: ChildFailedError, devices: int) -> str:
    """Which process failed, and why. A lost rank comes first, then a signal: other failures mostly follow."""
    lost = f"{RankLostError.__name__}: "  # torch records exceptions as "ClassName: message"
    for failure in error.failures.values():
        if (message := _last_line(failure.message)).startswith(lost):
            return f"{message.removeprefix(lost)}. The same command resumes from the last checkpoint."
    rank, first = min(error.failures.items(), key=lambda item: (item[1].exitcode >= 0, item[1].timestamp))
    how = signal.Signals(-first.exitcode).name if first.exitcode < 0 else f"exit code {first.exitcode}"
    why = "" if first.exitcode < 0 else f" Its last message: {_last_line(first.message)}."
    return (
        f"process {first.pid}, rank {rank} of {devices}, ended with {how}, and the others were ended with it.{why} "
        "The same command resumes from the last checkpoint."
    )


def _last_line(message: Any) -> str:
    text = str(message.get("message", message) if isinstance(message, dict) else message)
    return text.strip().splitlines()[-1].rstrip(".")[:500] if text.strip() else "(none)"
