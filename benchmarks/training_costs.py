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
from benchmarks.training_interleaving import InterleavedRun, interleave
from benchmarks.training_runs import SoftlookRun, TrainerRun

Item = TypeVar("Item")
THREADS = 2
DROPOUT = 0.1
"""The default of transformers."""
TURN_STEPS = 2
"""Steps of a run per turn: few, so that other load on the machine affects all runs equally."""
WARMUP_TURNS = 2
"""Turns at the start that are not measured."""
GOAL = 1.2
MAX_LOSS_DIFFERENCE = 1e-4
"""Relative."""
LOSS_STEPS = 4
"""Steps on the same batches without dropout whose losses are compared."""


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
        f"{TURN_STEPS} steps; the first {WARMUP_TURNS} turns are not measured, and the ratio, softlook over Trainer, "
        "is the median over the turns. The Trainer's batches have equally many tokens, sampled at random or grouped by "
        "length. "
        f"`loss diff` is the largest relative difference of losses in {LOSS_STEPS} steps on the same batches without "
        "dropout; `loss` is that of the first and the last turn, of softlook and of the Trainer.",
    )
    table = report.table("model", "Trainer's batches", "softlook", "Trainer", "ratio", "±", "goal", "loss diff", "loss")
    for case in cases(quick):
        if deadline.passed():
            report.text(f"The time limit was reached before {case.name}.")
            return
        _add_rows(table, case, quick)


def _add_rows(table: Table, case: Case, quick: bool) -> None:
    difference = loss_difference(case)
    if not difference <= MAX_LOSS_DIFFERENCE:
        table.add(case.name, "–", "–", "–", None, None, GOAL, f"{difference:.1e}: NOT EQUAL", "–")
        return
    steps = TURN_STEPS * (WARMUP_TURNS + 2) if quick else case.steps
    pair = case.make(DROPOUT)
    runs = [
        SoftlookRun(case, pair.softlook, case.batches, turn_steps=TURN_STEPS),
        *(
            TrainerRun(case, copy.deepcopy(pair.transformers), strategy, turn_steps=TURN_STEPS)
            for strategy in case.strategies
        ),
    ]
    interleaved = [run.interleaved(steps) for run in runs]
    interleave(interleaved)
    speed, *speeds = (throughput(*pair, steps) for pair in zip(runs, interleaved, strict=True))
    for strategy, trainer, other in zip(case.strategies, interleaved[1:], speeds, strict=True):
        ratio = statistics.median(one / another for one, another in zip(speed, other, strict=True))
        medians = (f"{statistics.median(each):,.0f}" for each in (speed, other))
        loss = f"{format_losses(interleaved[0])}, {format_losses(trainer)}"
        table.add(case.name, strategy, *medians, ratio, ratio_noise(speed, other), GOAL, f"{difference:.1e}", loss)


def throughput(run: SoftlookRun | TrainerRun, interleaved: InterleavedRun, steps: int) -> Samples:
    """Tokens per second of each turn."""
    counts = [sum(counts) for counts in chunks(run.tokens(steps), TURN_STEPS)]
    return [count / turn.seconds for count, turn in zip(counts, interleaved.turns, strict=True)][WARMUP_TURNS:]


def loss_difference(case: Case) -> float:
    """The largest relative difference of losses in the same steps on the same batches."""
    pair, batch_size = case.make(0.0), case.trainer_batch_size
    groups = islice(chunks(case.features, batch_size), LOSS_STEPS)
    batches = [case.to_softlook(group) for group in groups]
    softlook = SoftlookRun(case, pair.softlook, batches, turn_steps=1).interleaved(LOSS_STEPS)
    trainer = TrainerRun(case, pair.transformers, "sequential", turn_steps=1).interleaved(LOSS_STEPS)
    interleave([softlook, trainer])
    turns = zip(softlook.turns, trainer.turns, strict=True)
    return max((abs(one.loss - other.loss) / abs(other.loss) for one, other in turns), default=math.inf)


def chunks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    """Chunks of `size` items; an incomplete one at the end is dropped.

    >>> list(chunks("abcde", 2))
    [['a', 'b'], ['c', 'd']]
    """
    return (list(items[start : start + size]) for start in range(0, len(items) - size + 1, size))


def format_losses(run: InterleavedRun) -> str:
    return f"{run.turns[0].loss:.2f} → {run.turns[-1].loss:.2f}"
