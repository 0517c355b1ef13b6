"""A run that is killed repeatedly at random moments and restarted. Run as a program, it writes a report as JSON.

    python -m tests.train.crashing FOLDER KILLS

It loads torch once and forks a child for each attempt, so that thirty attempts take seconds.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from softlook.base.errors import WeightsError
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.events import EventLog
from softlook.train.optimizer import build_optimizer
from softlook.weights.manifest import verify_manifest
from softlook.weights.tensor_files import read_safetensors
from tests.train.tiny import FAST, make_evaluator, model, run_training

STEPS, MAX_SECONDS = 100, 0.3
"""Steps of a run, and the maximum time in seconds before it is killed."""


@dataclass
class Report:
    """Outcomes of all attempts."""

    kills: int = 0
    failed: int = 0
    """Attempts that ended with an error."""
    corrupt: int = 0
    """Checkpoints that were found damaged after a kill."""
    lost: int = 0
    """Attempts that resumed from an earlier step than the last one saved."""
    during_save: int = 0
    """Kills during a save."""
    left: int = 0
    """Partial folders that remained after the next start."""
    finished: int = 0
    equal: int = 0
    """Finished runs, and those of them that equal the uninterrupted one."""


def start_attempt(folder: Path) -> int:
    """Start or resume a run in a child process."""
    child = os.fork()
    if child:
        return child
    try:
        events = EventLog(folder / "events.jsonl")
        events.path.parent.mkdir(exist_ok=True)
        run_training(
            folder,
            [],
            max_steps=STEPS,
            save_every=1,
            ema_decay=0.9,
            gradient_accumulation_steps=2,
            evaluate=make_evaluator(),
            evaluate_every=7,
            callback=events,
        )
        os._exit(0)
    finally:
        os._exit(1)


def wait_or_kill(child: int, seconds: float) -> bool:
    """Whether the child ended by itself within this time; otherwise it is killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def steps(folder: Path, kind: str) -> list[int]:
    """The steps of all events of a kind, over all attempts."""
    log = folder / "events.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event["step"] for event in events if event["event"] == kind]


def check_after_kill(folder: Path, report: Report) -> None:
    """Verify the checkpoints after a kill."""
    report.during_save += bool(list(folder.glob("checkpoints/.*.partial")))
    for path in CheckpointManager(folder).list_checkpoints():
        try:
            verify_manifest(path)
        except WeightsError:
            report.corrupt += 1


def compare_finished(folder: Path, uninterrupted: Path, report: Report) -> None:
    """Compare a finished run with the uninterrupted one."""
    report.finished += 1
    names = ("model.safetensors", "model_non_ema.safetensors", "optimizer.safetensors", "rng_state.safetensors")
    actual, expected = (
        [read_safetensors(CheckpointManager(run).path(STEPS) / name) for name in names]
        for run in (folder, uninterrupted)
    )
    same = all(
        a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a) for a, b in zip(actual, expected, strict=True)
    )
    report.equal += same
    report.left += len(list(folder.rglob(".*.partial")))


def run_attempt(folder: Path, uninterrupted: Path, seconds: float, report: Report) -> bool:
    """One attempt. Whether the run has finished."""
    saved, num_started = max(steps(folder, "saved"), default=0), len(steps(folder, "started"))
    ended = wait_or_kill(start_attempt(folder), seconds)
    started = steps(folder, "started")
    report.lost += len(started) > num_started and started[-1] < saved
    if not ended:
        report.kills += 1
        check_after_kill(folder, report)
    elif CheckpointManager(folder).path(STEPS).exists():
        compare_finished(folder, uninterrupted, report)
    else:
        report.failed += 1
    return ended


def main(path: Path, kills: int) -> Report:
    report, generator, number = Report(), random.Random(7), 0
    uninterrupted = path / "uninterrupted"
    build_optimizer(model(), FAST)  # warm up torch's lazy imports once, not in every child
    os.waitpid(start_attempt(uninterrupted), 0)
    while report.kills < kills and not report.failed:
        number += run_attempt(path / f"run {number}", uninterrupted, generator.uniform(0, MAX_SECONDS), report)
    run_attempt(path / f"run {number}", uninterrupted, 120, report)
    return report


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(asdict(main(Path(sys.argv[1]), int(sys.argv[2])))))
