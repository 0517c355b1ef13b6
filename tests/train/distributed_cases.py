"""Process groups with sharded weights. Run as a program, it writes the results of its jobs to a folder.

    python -m tests.train.distributed_cases FOLDER JOB [JOB ...]

It loads torch once and forks a child for each process, so that many process groups take seconds.
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
"""With dropout, in float32."""
HEARTBEAT_TIMEOUT = 1.5
"""Seconds without a heartbeat after which a rank is considered dead."""
MAX_SECONDS = 60.0
"""Seconds for one process group."""


def run_group(size: int, job: Callable[[], None]) -> list[int]:
    """Run a job in `size` processes, and return their exit codes (negative for signals)."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    children = [_child(rank, size, port, job) for rank in range(size)]
    exit_codes: dict[int, int] = {}
    deadline = time.monotonic() + MAX_SECONDS
    while len(exit_codes) < size and time.monotonic() < deadline:
        for child in children:
            if child not in exit_codes and (found := os.waitpid(child, os.WNOHANG))[0]:
                exit_codes[child] = os.waitstatus_to_exitcode(found[1])
        if any(exit_codes.values()):
            deadline = min(deadline, time.monotonic() + 5)  # gloo notifies the others
        time.sleep(0.005)
    for child in children:
        if child not in exit_codes:
            os.kill(child, signal.SIGKILL)
            exit_codes[child] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [exit_codes[child] for child in children]


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


def run_checked(size: int, job: Callable[[], None]) -> None:
    """Run a job in `size` processes that must all succeed."""
    exit_codes = run_group(size, job)
    assert not any(exit_codes), exit_codes


def train_exact(folder: Path, **more: Any) -> Callable[[], None]:
    return lambda: discard(run_training(folder, **{**EXACT, **more}))


def train_deterministic(folder: Path | None, **more: Any) -> nn.Module:
    """Train without dropout, in float64, so that only the order of summation differs."""
    return run_training(folder, model=model(NO_DROPOUT).double(), **{**EXACT, **more})[0]


def discard(value: object) -> None:
    """Ignore a result."""


# --- the jobs --------------------------------------------------------------------------------------------------------


def resumed(root: Path) -> None:
    """Two processes, uninterrupted and interrupted."""
    run_checked(2, train_exact(root / "uninterrupted"))
    for stop in (3, HALF):
        run_checked(2, train_exact(root / f"stopped at {stop}", stop_at=stop))
        run_checked(2, train_exact(root / f"stopped at {stop}"))


RESUMING_GROUPS = ((1, "fsdp"), (2, "fsdp"), (4, "fsdp"), (2, "ddp"))


def started(root: Path) -> None:
    """Started by three processes, read by two."""
    run_checked(3, lambda: discard(train_deterministic(root / "three", stop_at=HALF)))
    run_checked(2, lambda: read_checkpoint(root / "three", root / "read 2 fsdp", "fsdp"))


def resized(root: Path) -> None:
    """Started by three processes, read and finished by other numbers."""
    started(root)
    for size, parallel in RESUMING_GROUPS:
        target = root / f"{size} {parallel}"
        _copy_run(root / "three", target)
        run_checked(
            size, lambda parallel=parallel, target=target: discard(train_deterministic(target, parallel=parallel))
        )
        run_checked(
            size,
            lambda parallel=parallel, to=root / f"read {size} {parallel}": read_checkpoint(
                root / "three", to, parallel
            ),
        )


def _copy_run(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file() and path.name not in ("lock.json", "run.lock"):
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())


def make_state(world: World) -> TrainState:
    """A fresh training state."""
    network = model(NO_DROPOUT).double()
    if world.is_sharded:
        shard_model(network, CPU, world.size)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return TrainState(network, build_optimizer(network, FAST), scaler, EMA(network, 0.9), CPU, world)


def read_checkpoint(run: Path, target: Path, parallel: str) -> None:
    """Write everything that this process group reads from a checkpoint, unsharded."""
    with process_group(CPU, is_sharded=parallel == "fsdp") as world:
        state, manager = make_state(world), CheckpointManager(run)
        manager.settings = json.loads((manager.list_checkpoints()[0] / "trainer_state.json").read_text())["settings"]
        manager.restore(state, lambda message: sys.exit(message))
        flat = {
            f"{file}/{name}": full_tensor(tensor.detach())
            for file, tensors in state.state_files().items()
            for name, tensor in tensors.items()
        }
        if world.is_rank_zero:
            write_safetensors(flat, target)


def evaluated(root: Path) -> None:
    """Evaluations without an improvement, so that nothing is saved after them."""

    def job() -> None:
        trained = train_deterministic(None, evaluate=worsening_evaluator(), evaluate_every=2)
        tensors = {name: full_tensor(tensor.detach()) for name, tensor in unique_tensors(trained).items()}
        if os.environ["RANK"] == "0":
            write_safetensors(tensors, root / "evaluated")

    run_checked(2, job)


def worsening_evaluator() -> Callable[[nn.Module], dict[str, float]]:
    """An evaluator whose first loss is the best; the losses depend on the weights."""
    evaluations = 0

    def evaluate(model: nn.Module) -> dict[str, float]:
        nonlocal evaluations
        evaluations += 1
        return {"loss": 100.0 * evaluations + make_evaluator()(model)["loss"] if evaluations < STEPS // 2 else 0.0}

    return evaluate


def killed(root: Path) -> None:
    """Each of two processes is killed during saves."""
    run, report = root / "killed", {"kills": 0, "corrupt": 0, "left": 0, "during_save": 0}
    for rank, after in ((0, 40), (1, 40), (0, 97), (1, 133), (1, 18), (0, 150)):
        exit_codes = run_group(2, lambda rank=rank, after=after: train_until_killed(run, rank, after))
        report["kills"] += -signal.SIGKILL in exit_codes
        report["during_save"] += bool(list(run.glob("checkpoints/.*.partial")))
        for path in CheckpointManager(run).list_checkpoints():
            try:
                verify_manifest(path)
            except WeightsError:
                report["corrupt"] += 1
    run_checked(2, train_exact(run))
    report["left"] = len(list(run.rglob(".*.partial")))
    (root / "killed.json").write_text(json.dumps(report))


def train_until_killed(run: Path, rank: int, after: int) -> None:
    """Train; this rank is killed when it writes its `after`-th tensor."""
    add, written = SafetensorsWriter.add, 0

    def counting(self: SafetensorsWriter, name: str, tensor: Tensor) -> None:
        nonlocal written
        written += 1
        if written == after and os.environ["RANK"] == str(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        add(self, name, tensor)

    SafetensorsWriter.add = counting
    train_exact(run)()


def full(root: Path) -> None:
    """The disk is full for the second of three processes, while the weights or the optimizer state are written."""
    for after in (1, 2):
        run = root / f"full {after}"
        run_checked(3, train_exact(run, max_steps=2))
        assert run_group(3, lambda run=run, after=after: train_with_full_disk(run, after)) == [0, 0, 0]


def train_with_full_disk(run: Path, after: int) -> None:
    """Train; the second rank fails at its `after`-th fsync."""
    fsync, synced = os.fsync, 0

    def counting(handle: int) -> None:
        nonlocal synced
        synced += 1
        if synced == after and os.environ["RANK"] == "1":
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    os.fsync = counting
    try:
        train_exact(run, max_steps=3)()
    except ValueError as error:
        (run / f"error {os.environ['RANK']}").write_text(f"{type(error).__name__}: {error}")
    os.fsync = fsync


def silent(root: Path) -> None:
    """Rank 0, which hosts the store, is stopped, and the other ranks report it."""

    def job() -> None:
        handler = logging.FileHandler(root / f"silent {os.environ['RANK']}")
        logging.getLogger("softlook.train").addHandler(handler)
        with process_group(CPU, heartbeat_timeout=HEARTBEAT_TIMEOUT) as world:
            world.barrier()
            if world.is_rank_zero:
                os.kill(os.getpid(), signal.SIGSTOP)
            world.barrier()

    assert run_group(3, job)[1:] == [1, 1]


def busy(root: Path) -> None:
    """Rank 0 is slow, in an evaluation and after the others have finished: no rank is reported."""

    def job() -> None:
        def evaluate(model: nn.Module) -> dict[str, float]:
            time.sleep(2 * HEARTBEAT_TIMEOUT)
            return {"loss": 1.0}

        run_training(
            root / "busy", max_steps=2, heartbeat_timeout=HEARTBEAT_TIMEOUT, evaluate=evaluate, evaluate_every=2
        )
        if os.environ["RANK"] == "0":
            time.sleep(2 * HEARTBEAT_TIMEOUT)
            (root / "busy.json").write_text("{}")

    run_checked(3, job)


if __name__ == "__main__":
    torch.set_num_threads(1)
    build_optimizer(model(), FAST)  # warm up torch's lazy imports once, not in every child
    for name in sys.argv[2:]:
        globals()[name](Path(sys.argv[1]))
