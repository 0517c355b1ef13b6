"""J. Training throughput: softlook compared with transformers.Trainer."""

import copy
import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

import torch

from benchmarks.report import Report, Table
from benchmarks.timing import Deadline, Samples, ratio_noise
from benchmarks.training_cases import Case, cases
from benchmarks.training_lanes import Lane, interleave
from benchmarks.training_runs import SoftlookRun, TrainerRun

Item = TypeVar("Item")
THREADS = 2
DROPOUT = 0.1
"""The default of transformers."""
LAP = 2
"""Steps of a run per turn: few, so that other load on the machine affects all runs equally."""
WARMUP_LAPS = 2
"""Warm-up laps, not measured."""
GOAL = 1.2
MAX_LOSS_DIFFERENCE = 1e-4
"""Relative."""
COMPARED = 4
"""Steps on the same batches without dropout, after which losses are compared."""


def measure(report: Report, deadline: Deadline, quick: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        _measure(report, deadline, quick)
    finally:
        torch.set_num_threads(before)


def _measure(report: Report, deadline: Deadline, quick: bool) -> None:
    report.section(
        "J. training",
        "Tokens per second over whole steps without padding: data, forward, backward, clipping, AdamW and the loop, "
        f"without evaluation and checkpoints. float32, {THREADS} threads, dropout {DROPOUT}. The runs alternate every "
        f"{LAP} steps; the first {WARMUP_LAPS} laps are not measured, and the ratio, softlook over Trainer, is the "
        "median over the laps. The Trainer's batches have equally many tokens, sampled at random or grouped by length. "
        f"`loss diff` is the largest relative difference of losses in {COMPARED} steps on the same batches without "
        "dropout; `loss` is that of the first and the last lap, of softlook and of the Trainer.",
    )
    table = report.table("model", "Trainer's batches", "softlook", "Trainer", "ratio", "±", "goal", "loss diff", "loss")
    for case in cases(quick):
        if deadline.passed():
            report.say(f"The time limit was reached before {case.name}.")
            return
        _add(table, case, quick)


def _add(table: Table, case: Case, quick: bool) -> None:
    difference = loss_difference(case)
    if not difference <= MAX_LOSS_DIFFERENCE:
        table.add(case.name, "–", "–", "–", None, None, GOAL, f"{difference:.1e}: NOT EQUAL", "–")
        return
    steps = LAP * (WARMUP_LAPS + 2) if quick else case.steps
    pair = case.make(DROPOUT)
    ours = SoftlookRun(case, pair.ours, case.batches, lap=LAP)
    theirs = [TrainerRun(case, copy.deepcopy(pair.theirs), strategy, lap=LAP) for strategy in case.strategies]
    lanes = [run.lane(steps) for run in (ours, *theirs)]
    interleave(lanes)
    speed, *speeds = (throughput(run, lane, steps) for run, lane in zip((ours, *theirs), lanes, strict=True))
    for strategy, lane, other in zip(case.strategies, lanes[1:], speeds, strict=True):
        ratio = statistics.median(one / another for one, another in zip(speed, other, strict=True))
        words = (f"{statistics.median(each):,.0f}" for each in (speed, other))
        loss = f"{format_losses(lanes[0])}, {format_losses(lane)}"
        table.add(case.name, strategy, *words, ratio, ratio_noise(speed, other), GOAL, f"{difference:.1e}", loss)


def throughput(run: SoftlookRun | TrainerRun, lane: Lane, steps: int) -> Samples:
    """Tokens per second of each lap."""
    counts = [sum(counts) for counts in chunks(run.tokens(steps), LAP)]
    return [count / lap.seconds for count, lap in zip(counts, lane.laps, strict=True)][WARMUP_LAPS:]


def loss_difference(case: Case) -> float:
    """The largest relative difference of losses in the same steps on the same batches."""
    pair, batch_size = case.make(0.0), case.trainer_batch_size
    groups = islice(chunks(case.features, batch_size), COMPARED)
    ours = SoftlookRun(case, pair.ours, [case.same(group) for group in groups], lap=1).lane(COMPARED)
    theirs = TrainerRun(case, pair.theirs, "sequential", lap=1).lane(COMPARED)
    interleave([ours, theirs])
    laps = zip(ours.laps, theirs.laps, strict=True)
    return max((abs(one.loss - other.loss) / abs(other.loss) for one, other in laps), default=math.inf)


def chunks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    """Chunks of `size` items; an incomplete one at the end is dropped.

    >>> list(chunks("abcde", 2))
    [['a', 'b'], ['c', 'd']]
    """
    return (list(items[start : start + size]) for start in range(0, len(items) - size + 1, size))


def format_losses(lane: Lane) -> str:
    return f"{lane.laps[0].loss:.2f} → {lane.laps[-1].loss:.2f}"
