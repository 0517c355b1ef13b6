"""Worlds of several processes whose weights are in parts. Run as a program, it leaves what came of them in a folder.

    python -m tests.train.distributed_cases FOLDER JOB [JOB ...]

It loads torch once and forks a child for each process, so that many worlds take seconds.
"""

import atexit
import errno
import json
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.checkpoint.train_state import TrainState
from softlook.train.distributed.fsdp import full_tensor, shard_model
from softlook.train.distributed.world import World, process_group
from softlook.train.ema import EMA
from softlook.train.optimizer import build_optimizer
from softlook.weights.manifest import verify_manifest
from softlook.weights.meta import unique_tensors
from softlook.weights.tensor_files import SafetensorsWriter, write_safetensors
from tests.train.tiny import CPU, FAST, NO_DROPOUT, make_evaluator, model, run_training

STEPS, HALF = 8, 5
EXACT: dict[str, Any] = {
    "max_steps": STEPS,
    "save_every": 1,
    "ema_decay": 0.9,
    "gradient_accumulation_steps": 2,
    "parallel": "fsdp",
}
"""With dropout, in single precision."""
SHORT = 1.5
"""Seconds of silence."""
LONGEST = 60.0
"""Seconds for one world."""


def world(size: int, job: Callable[[], None]) -> list[int]:
    """Run a job in as many processes. Gives how each ended, as subprocess would say it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [_child(rank, size, port, job) for rank in range(size)]
    ended: dict[int, int] = {}
    until = time.monotonic() + LONGEST
    while len(ended) < size and time.monotonic() < until:
        for child in children:
            if child not in ended and (found := os.waitpid(child, os.WNOHANG))[0]:
                ended[child] = os.waitstatus_to_exitcode(found[1])
        if any(ended.values()):
            until = min(until, time.monotonic() + 5)  # the others hear of it from gloo
        time.sleep(0.005)
    for child in children:
        if child not in ended:
            os.kill(child, signal.SIGKILL)
            ended[child] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [ended[child] for child in children]


def _child(rank: int, size: int, port: int, job: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    try:
        job()
        atexit._run_exitfuncs()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def well(size: int, job: Callable[[], None]) -> None:
    """A world in which nothing goes wrong."""
    ended = world(size, job)
    assert not any(ended), ended


def exact(folder: Path, **more: Any) -> Callable[[], None]:
    return lambda: void(run_training(folder, **{**EXACT, **more}))


def calm(folder: Path | None, **more: Any) -> nn.Module:
    """A run without dropout, in double precision, so that nothing but the order of additions differs."""
    return run_training(folder, model=model(NO_DROPOUT).double(), **{**EXACT, **more})[0]


def void(value: object) -> None:
    """Nobody wants to know."""


# --- the jobs --------------------------------------------------------------------------------------------------------


def resumed(where: Path) -> None:
    """Two processes, uninterrupted and broken off."""
    well(2, exact(where / "whole"))
    for stop in (3, HALF):
        well(2, exact(where / f"broken at {stop}", stop_at=stop))
        well(2, exact(where / f"broken at {stop}"))


OTHERS = ((1, "fsdp"), (2, "fsdp"), (4, "fsdp"), (2, "ddp"))


def begun(where: Path) -> None:
    """Begun by three, and read by two."""
    well(3, lambda: void(calm(where / "three", stop_at=HALF)))
    well(2, lambda: reread(where / "three", where / "read 2 fsdp", "fsdp"))


def resized(where: Path) -> None:
    """Begun by three, and read and ended by others."""
    begun(where)
    for size, way in OTHERS:
        target = where / f"{size} {way}"
        _copied(where / "three", target)
        well(size, lambda way=way, target=target: void(calm(target, parallel=way)))
        well(size, lambda way=way, to=where / f"read {size} {way}": reread(where / "three", to, way))


def _copied(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file() and path.name not in ("lock.json", "run.lock"):
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())


def make_state(own: World) -> TrainState:
    """Somebody who knows nothing yet."""
    made = model(NO_DROPOUT).double()
    if own.is_sharded:
        shard_model(made, CPU, own.size)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return TrainState(made, build_optimizer(made, FAST), scaler, EMA(made, 0.9), CPU, own)


def reread(run: Path, target: Path, parallel: str) -> None:
    """Everything that this world reads from a checkpoint, put together again."""
    with process_group(CPU, is_sharded=parallel == "fsdp") as own:
        known, manager = make_state(own), CheckpointManager(run)
        manager.settings = json.loads((manager.list_checkpoints()[0] / "trainer_state.json").read_text())["settings"]
        manager.restore(known, lambda message: sys.exit(message))
        flat = {
            f"{file}/{name}": full_tensor(tensor.detach())
            for file, tensors in known.state_files().items()
            for name, tensor in tensors.items()
        }
        if own.is_rank_zero:
            write_safetensors(flat, target)


def looked(where: Path) -> None:
    """A look that finds nothing better, so that nothing is saved after it."""

    def job() -> None:
        left = calm(None, evaluate=worse(), evaluate_every=2)
        tensors = {name: full_tensor(tensor.detach()) for name, tensor in unique_tensors(left).items()}
        if os.environ["RANK"] == "0":
            write_safetensors(tensors, where / "looked")

    well(2, job)


def worse() -> Callable[[nn.Module], dict[str, float]]:
    """The first look is the best; it says so with what it saw."""
    looks = 0

    def evaluate(model: nn.Module) -> dict[str, float]:
        nonlocal looks
        looks += 1
        return {"loss": 100.0 * looks + make_evaluator()(model)["loss"] if looks < STEPS // 2 else 0.0}

    return evaluate


def killed(where: Path) -> None:
    """Each of two processes is killed in the middle of saves."""
    run, report = where / "killed", {"kills": 0, "corrupt": 0, "left": 0, "inside": 0}
    for rank, after in ((0, 40), (1, 40), (0, 97), (1, 133), (1, 18), (0, 150)):
        ended = world(2, lambda rank=rank, after=after: dying(run, rank, after))
        report["kills"] += -signal.SIGKILL in ended
        report["inside"] += bool(list(run.glob("checkpoints/.*.partial")))
        for path in CheckpointManager(run).list_checkpoints():
            try:
                verify_manifest(path)
            except WeightsError:
                report["corrupt"] += 1
    well(2, exact(run))
    report["left"] = len(list(run.rglob(".*.partial")))
    (where / "killed.json").write_text(json.dumps(report))


def dying(run: Path, rank: int, after: int) -> None:
    """Written so many tensors, and no more."""
    add, written = SafetensorsWriter.add, 0

    def one_more(self: SafetensorsWriter, name: str, tensor: Tensor) -> None:
        nonlocal written
        written += 1
        if written == after and os.environ["RANK"] == str(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        add(self, name, tensor)

    SafetensorsWriter.add = one_more
    exact(run)()


def full(where: Path) -> None:
    """The disk is full for the second of three processes, while weights or memory are written."""
    for after in (1, 2):
        run = where / f"full {after}"
        well(3, exact(run, max_steps=2))
        assert world(3, lambda run=run, after=after: limit_memory(run, after)) == [0, 0, 0]


def limit_memory(run: Path, after: int) -> None:
    """One file fits, and no more."""
    fsync, synced = os.fsync, 0

    def one_more(handle: int) -> None:
        nonlocal synced
        synced += 1
        if synced == after and os.environ["RANK"] == "1":
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    os.fsync = one_more
    try:
        exact(run, max_steps=3)()
    except ValueError as error:
        (run / f"told {os.environ['RANK']}").write_text(f"{type(error).__name__}: {error}")
    os.fsync = fsync


def silent(where: Path) -> None:
    """The process that keeps the meeting place is stopped, and the others say so."""

    def job() -> None:
        handler = logging.FileHandler(where / f"silent {os.environ['RANK']}")
        logging.getLogger("softlook.train").addHandler(handler)
        with process_group(CPU, heartbeat_timeout=SHORT) as own:
            own.barrier()
            if own.is_rank_zero:
                os.kill(os.getpid(), signal.SIGSTOP)
            own.barrier()

    assert world(3, job)[1:] == [1, 1]


def busy(where: Path) -> None:
    """The first one takes its time, over a look and when the others have gone: nobody is missed."""

    def job() -> None:
        def evaluate(model: nn.Module) -> dict[str, float]:
            time.sleep(2 * SHORT)
            return {"loss": 1.0}

        run_training(where / "busy", max_steps=2, heartbeat_timeout=SHORT, evaluate=evaluate, evaluate_every=2)
        if os.environ["RANK"] == "0":
            time.sleep(2 * SHORT)
            (where / "busy.json").write_text("{}")

    well(3, job)


if __name__ == "__main__":
    torch.set_num_threads(1)
    build_optimizer(model(), FAST)  # torch loads the rest of itself here; every child would have to wait for it
    for name in sys.argv[2:]:
        globals()[name](Path(sys.argv[1]))
