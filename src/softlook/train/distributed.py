"""Several processes that learn as one: torch's own engine, DistributedDataParallel under torchrun.

Every process goes through the same batches in the same order and takes its share of each update, so that a run is
the same run on one device or on many.
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
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from softlook.base.errors import TrainingError
from softlook.train.heart import GIVEN_UP, Heart, start_heart
from softlook.train.ranks import local_rank
from softlook.train.settings import SILENCE
from softlook.train.sharding import keep_apart
from softlook.train.tensors import parted

PATIENCE = timedelta(minutes=30)
"""How long the others wait while the first one looks at held-out data or saves."""


@dataclass(frozen=True)
class World:
    """Who takes part. A process that is alone is a world of one, in which all of this does nothing."""

    rank: int = 0
    size: int = 1
    is_parted: bool = False
    """Does each process hold a part of every weight, or a copy of them all?"""
    has_met: bool = False
    """Did torch's engine bring them together? It may also bring one together with itself."""
    device: torch.device = torch.device("cpu")
    """Where what they tell one another lies."""

    @property
    def first(self) -> bool:
        """Is this the one that writes and speaks?"""
        return self.rank == 0

    def share(self, batches: Sequence[Any]) -> Sequence[Any]:
        """This process's part of an update: whole batches where they can be dealt out evenly, else rows of each.

        >>> World(rank=1, size=2).share(["a", "b", "c", "d"])
        ['b', 'd']
        >>> World(rank=1, size=2).share([torch.tensor([5, 6, 7])])
        [tensor([6, 7])]
        """
        if len(batches) % self.size == 0:
            return batches[self.rank :: self.size]
        return [piece for batch in batches for piece in parted(batch, self.size)][self.rank :: self.size]

    def joined(self, model: nn.Module) -> nn.Module:
        """A model whose gradients are averaged over all processes."""
        if not self.has_met or self.is_parted:
            return model
        return DistributedDataParallel(model, find_unused_parameters=True)

    def quiet(self, model: nn.Module, *, until: bool) -> AbstractContextManager[object]:
        """Gradients stay at home until the last piece."""
        keep_apart(model, until=until)
        return model.no_sync() if isinstance(model, DistributedDataParallel) and not until else nullcontext()

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum of everybody's tensors."""
        if self.has_met:
            dist.all_reduce(tensor)
        return tensor

    def most(self, number: int, device: torch.device) -> int:
        """The largest number that anybody says, so that all act on it at the same step."""
        if not self.has_met:
            return number
        said = torch.tensor(number, device=device)
        dist.all_reduce(said, dist.ReduceOp.MAX)
        return int(said.item())

    def same(self, number: float, device: torch.device) -> float:
        """What the first one says."""
        if not self.has_met:
            return number
        told = torch.tensor(number, device=device, dtype=torch.float64)
        dist.broadcast(told, 0)
        return told.item()

    def gathered(self, tensor: Tensor, device: torch.device) -> list[Tensor]:
        """Everybody's tensor, in the order of their ranks."""
        if not self.has_met:
            return [tensor]
        own = tensor.to(device)
        every = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(every, own)
        return [one.cpu() for one in every]

    def heard(self, text: str) -> list[str]:
        """What everybody says, in the order of their ranks."""
        said = torch.tensor(list(text.encode()), dtype=torch.uint8)
        lengths = self.gathered(torch.tensor([len(said)]), self.device)
        longest = max(int(length) for length in lengths)
        every = self.gathered(F.pad(said, (0, longest - len(said))), self.device) if longest else [said] * len(lengths)
        return [bytes(one[:length].tolist()).decode() for one, length in zip(every, lengths, strict=True)]

    def together(self) -> None:
        """Nobody goes on before all are here."""
        if self.has_met:
            dist.barrier()


@contextmanager
def in_company(device: torch.device, *, is_parted: bool = False, silence: float = SILENCE) -> Iterator[World]:
    """The world that torchrun or `launch` put this process into; without them, a world of one.

    Processes that met stay together until they end, for whoever comes next: to part and meet again can fail. One that
    gives no sign of life for `silence` seconds is given up by the others; with 0 it never is.
    """
    if local_rank() is None:
        yield World()
        return
    if not dist.is_initialized():
        _meet(device, silence)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), is_parted, has_met=True, device=device)
    except BaseException:
        if _HEART:
            _HEART[0].is_well = False
        raise


_HEART: list[Heart] = []
"""That of this process, once it met others."""


def _meet(device: torch.device, silence: float) -> None:
    """NCCL between GPUs, gloo between everything else."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend, own = ("nccl", device) if device.type == "cuda" else ("gloo", None)
    dist.init_process_group(backend, device_id=own, timeout=PATIENCE)
    atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
    if heart := start_heart(dist.get_rank(), dist.get_world_size(), silence):
        _HEART[:] = [heart]
        atexit.register(heart.leave)


def launch(main: Callable[..., Any], devices: int, *arguments: Any) -> Any:
    """Run `main(*arguments)` in as many processes of this machine, which find one another on 127.0.0.1.

    `main` is a plain function of a module, and its arguments are plain values: each process starts from nothing. Gives
    what the first one returns. Where one of them dies the others are ended too, and the error says which.
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
        with _ctrl_c_left_to_them():
            return elastic_launch(config, main)(*arguments)[0]
    except SignalException as fault:
        raise SystemExit(128 + fault.sigval) from None  # they were told, and have saved
    except ChildFailedError as fault:
        raise TrainingError(_obituary(fault, devices)) from None


@contextmanager
def _ctrl_c_left_to_them() -> Iterator[None]:
    """A terminal sends Ctrl-C to every process by itself; whoever waits for them has nothing to do but to wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _obituary(fault: ChildFailedError, devices: int) -> str:
    """Who died, and of what. Those who ended by themselves mostly died of it, or say themselves who is missing."""
    for failure in fault.failures.values():
        if GIVEN_UP in (words := _last_words(failure.message)):
            return f"{words.removeprefix('TrainingError: ')}. The same command goes on from the last checkpoint."
    rank, first = min(fault.failures.items(), key=lambda item: (item[1].exitcode >= 0, item[1].timestamp))
    how = signal.Signals(-first.exitcode).name if first.exitcode < 0 else f"exit code {first.exitcode}"
    why = "" if first.exitcode < 0 else f" It said: {_last_words(first.message)}."
    return (
        f"process {first.pid}, rank {rank} of {devices}, ended with {how}, and the others with it.{why} "
        "The same command goes on from the last checkpoint."
    )


def _last_words(message: Any) -> str:
    text = str(message.get("message", message) if isinstance(message, dict) else message)
    return text.strip().splitlines()[-1].rstrip(".")[:500] if text.strip() else "nothing"
