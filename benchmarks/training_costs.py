"""J. Training as a user gets it: `softlook.train.fit` beside `transformers.Trainer`, same weights, same texts."""

import copy
import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

import torch

from benchmarks.report import Report, Table
from benchmarks.timing import Deadline, Samples, spread
from benchmarks.training_cases import Case, cases
from benchmarks.training_lanes import Lane, in_turn
from benchmarks.training_runs import Ours, Theirs

Thing = TypeVar("Thing")
THREADS = 2
DROPOUT = 0.1
"""As Hugging Face's configs have it."""
LAP = 2
"""Steps that a run makes before it is the next one's turn: short, so that other work on the machine falls on all."""
FIRST = 2
"""Laps that are left out: what is made once is made then."""
GOAL = 1.2
ENOUGH = 1e-4
"""Relative distance within which two losses are the same."""
COMPARED = 4
"""Steps on the same batches, without dropout, after each of which the losses are compared."""


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
        "Tokens a second over whole steps, padding not counted: data, forward, backward, clipping, AdamW and the loop, "
        f"but no looks at held-out data and no saving. float32, {THREADS} threads, dropout {DROPOUT}. Each run goes on "
        f"in turn for {LAP} steps; the first {FIRST} laps are left out, and the ratio, ours over theirs, is the median "
        "over the laps. Their batches hold as many texts as make as many tokens, drawn at random or grouped by length. "
        f"`apart` is the largest distance between losses in {COMPARED} steps on the same batches without dropout; "
        "`loss` is that of the first and of the last lap of the run, ours and theirs.",
    )
    table = report.table("model", "Trainer's batches", "softlook", "Trainer", "ratio", "±", "goal", "apart", "loss")
    for case in cases(quick):
        if deadline.passed():
            report.say(f"The time was up before {case.name}.")
            return
        _add(table, case, quick)


def _add(table: Table, case: Case, quick: bool) -> None:
    apart = distance(case)
    if not apart <= ENOUGH:
        table.add(case.name, "–", "–", "–", None, None, GOAL, f"{apart:.1e}: NOT THE SAME", "–")
        return
    steps = LAP * (FIRST + 2) if quick else case.steps
    pair = case.make(DROPOUT)
    ours = Ours(case, pair.ours, case.batches, lap=LAP)
    theirs = [Theirs(case, copy.deepcopy(pair.theirs), strategy, lap=LAP) for strategy in case.strategies]
    lanes = [run.lane(steps) for run in (ours, *theirs)]
    in_turn(lanes)
    speed, *speeds = (paces(run, lane, steps) for run, lane in zip((ours, *theirs), lanes, strict=True))
    for strategy, lane, other in zip(case.strategies, lanes[1:], speeds, strict=True):
        ratio = statistics.median(one / another for one, another in zip(speed, other, strict=True))
        words = (f"{statistics.median(each):,.0f}" for each in (speed, other))
        loss = f"{fall(lanes[0])}, {fall(lane)}"
        table.add(case.name, strategy, *words, ratio, spread(speed, other), GOAL, f"{apart:.1e}", loss)


def paces(run: Ours | Theirs, lane: Lane, steps: int) -> Samples:
    """Tokens a second, lap by lap."""
    counts = [sum(some) for some in in_groups(run.tokens(steps), LAP)]
    return [count / lap.seconds for count, lap in zip(counts, lane.laps, strict=True)][FIRST:]


def distance(case: Case) -> float:
    """How far losses come apart at most, relative to theirs, where both take the same steps on the same batches."""
    pair, together = case.make(0.0), case.together
    groups = islice(in_groups(case.features, together), COMPARED)
    ours = Ours(case, pair.ours, [case.same(group) for group in groups], lap=1).lane(COMPARED)
    theirs = Theirs(case, pair.theirs, "sequential", lap=1).lane(COMPARED)
    in_turn([ours, theirs])
    laps = zip(ours.laps, theirs.laps, strict=True)
    return max((abs(one.loss - other.loss) / abs(other.loss) for one, other in laps), default=math.inf)


def in_groups(things: Sequence[Thing], size: int) -> Iterator[list[Thing]]:
    """So many at a time; what is left over at the end makes no group.

    >>> list(in_groups("abcde", 2))
    [['a', 'b'], ['c', 'd']]
    """
    return (list(things[start : start + size]) for start in range(0, len(things) - size + 1, size))


def fall(lane: Lane) -> str:
    return f"{lane.laps[0].loss:.2f} → {lane.laps[-1].loss:.2f}"
