"""A run that is killed again and again, at any moment, and started again. Run as a program, it reports in JSON.

    python -m tests.train.crashing FOLDER KILLS

It loads torch once and forks a child for each life of a run, so that thirty lives take seconds.
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

STEPS, LONGEST = 100, 0.3
"""Steps of a run, and seconds until it is killed at the latest."""


@dataclass
class Report:
    """What came of it."""

    kills: int = 0
    failed: int = 0
    """Lives that ended by themselves, and not well."""
    corrupt: int = 0
    """Checkpoints that were found damaged after a kill."""
    lost: int = 0
    """Times that a run went on from an earlier step than one that had been saved."""
    inside: int = 0
    """Kills that came in the middle of a save."""
    left: int = 0
    """Half-made folders that were still there after the next start."""
    finished: int = 0
    equal: int = 0
    """Runs that ended, and those of them that ended as the uninterrupted one."""


def life(folder: Path) -> int:
    """Start a run, or go on with it, in a child."""
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


def over(child: int, seconds: float) -> bool:
    """Did it end by itself within this time? Else it is killed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def steps(folder: Path, kind: str) -> list[int]:
    """The steps of all events of a kind, over all lives."""
    log = folder / "events.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event["step"] for event in events if event["event"] == kind]


def examine(folder: Path, report: Report) -> None:
    """What a kill left behind."""
    report.inside += bool(list(folder.glob("checkpoints/.*.partial")))
    for path in CheckpointManager(folder).list_checkpoints():
        try:
            verify_manifest(path)
        except WeightsError:
            report.corrupt += 1


def end(folder: Path, whole: Path, report: Report) -> None:
    """A run that ended: was it as the uninterrupted one?"""
    report.finished += 1
    names = ("model.safetensors", "model_non_ema.safetensors", "optimizer.safetensors", "rng_state.safetensors")
    own, others = (
        [read_safetensors(CheckpointManager(run).path(STEPS) / name) for name in names] for run in (folder, whole)
    )
    same = all(
        a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a) for a, b in zip(own, others, strict=True)
    )
    report.equal += same
    report.left += len(list(folder.rglob(".*.partial")))


def live(folder: Path, whole: Path, seconds: float, report: Report) -> bool:
    """One life of a run. Is it over?"""
    saved, begun = max(steps(folder, "saved"), default=0), len(steps(folder, "started"))
    ended = over(life(folder), seconds)
    started = steps(folder, "started")
    report.lost += len(started) > begun and started[-1] < saved
    if not ended:
        report.kills += 1
        examine(folder, report)
    elif CheckpointManager(folder).path(STEPS).exists():
        end(folder, whole, report)
    else:
        report.failed += 1
    return ended


def main(where: Path, kills: int) -> Report:
    report, generator, number = Report(), random.Random(7), 0
    whole = where / "whole"
    build_optimizer(model(), FAST)  # torch loads the rest of itself here; every child would have to wait for it
    os.waitpid(life(whole), 0)
    while report.kills < kills and not report.failed:
        number += live(where / f"run {number}", whole, generator.uniform(0, LONGEST), report)
    live(where / f"run {number}", whole, 120, report)
    return report


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(asdict(main(Path(sys.argv[1]), int(sys.argv[2])))))
