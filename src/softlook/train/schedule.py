"""`RunSchedule`: the learning rate and the end of a run, by steps and by the clock."""

import statistics
import time
from dataclasses import dataclass, field

from softlook.train.checkpoint.train_state import Progress
from softlook.train.config import OptimizerConfig, TrainingConfig
from softlook.train.optimizer import SCHEDULES

HORIZON_FREE = ("constant", "inverse_sqrt")
"""Schedules that do not depend on the end of the run."""
MAX_INTERVAL, NUM_INTERVALS = 600.0, 10
"""Seconds between two evaluations at most, and evaluations of a run, if they follow the clock."""
FIRST_INTERVAL, INTERVAL_GROWTH = 0.01, 0.5
"""The first interval as a share of the time, and the next ones as a share of the time so far.

A fast device reads small data many times before a tenth of its time is over: the best model may be an early one.
"""
MAX_EVALUATION_SHARE = 0.07
"""Share of the time that evaluations during training may take."""


@dataclass
class RunClock:
    """When a run began, and how much work follows its last step."""

    started_at: float = field(default_factory=time.monotonic)
    """A time of `time.monotonic`. Preparation from then on counts against `max_minutes`."""
    final_evaluations: float = 1.0
    """The work after the last step, in multiples of one evaluation during training, without samples of the output."""
    final_seconds: float = 0.0
    """Other work after the last step."""
    sample_seconds: float = 0.0
    """The part of an evaluation that does not grow with the data: samples of the output."""


@dataclass
class RunSchedule:
    """How far a run is, its learning rate, and when it evaluates and ends.

    The limits are steps, seconds, or both: the learning rate decays towards the one that will be reached first. A run
    that has reached its limits and gets more time or steps starts a new phase, with its own warmup and decay.
    """

    training: TrainingConfig
    optim: OptimizerConfig
    clock: RunClock = field(default_factory=RunClock)
    evaluations: list[float] = field(default_factory=list)
    """Seconds of each evaluation so far."""
    step_seconds: float = 0.0
    next_evaluation: float = 0.0
    """Seconds of the run at which the next evaluation is due."""

    def begin(self, progress: Progress) -> Progress:
        """The progress with which training begins: a new phase at the start, and after a finished phase."""
        limit = self.training.step_limit
        has_more = (limit is None or progress.step < limit) and self.seconds_left(progress) > 0
        is_extended = progress.is_phase_complete and has_more and self.optim.schedule not in HORIZON_FREE
        if progress.step == 0 or is_extended:
            progress = progress.start_phase()
        self.next_evaluation = progress.seconds + self.evaluation_interval(progress)
        return progress

    def seconds_left(self, progress: Progress) -> float:
        """Seconds of training that are left, after what follows the last step."""
        limit = self.training.time_limit
        return float("inf") if limit is None else limit - self.reserve - progress.seconds

    @property
    def evaluation_seconds(self) -> float:
        """The usual cost of an evaluation: some are slower, the first one on a GPU and any beside other processes."""
        return statistics.median(self.evaluations) if self.evaluations else 0.0

    @property
    def reserve(self) -> float:
        """Seconds for the work after the last step."""
        scoring = max(self.evaluation_seconds - self.clock.sample_seconds, 0.0)
        return self.clock.final_evaluations * scoring + self.clock.sample_seconds + self.clock.final_seconds

    def steps(self, progress: Progress) -> float:
        """Steps of the current phase: as limited, or as estimated from the time that its steps took so far."""
        limit, step = self.training.step_limit, progress.step + 1 - progress.phase_step
        by_count = float("inf") if limit is None else limit - progress.phase_step
        spent = max(progress.seconds - progress.phase_seconds, 1e-3)
        return min(by_count, step * (spent + self.seconds_left(progress)) / spent)

    def learning_rate(self, progress: Progress) -> float:
        """The learning rate of the step after `progress`."""
        steps, step = self.steps(progress), progress.step + 1 - progress.phase_step
        warmup = self.optim.warmup if self.optim.warmup >= 1 else self.optim.warmup * steps
        return progress.lr_scale * self.optim.lr * SCHEDULES[self.optim.schedule](warmup, steps)(step)

    def is_out_of_time(self, progress: Progress) -> bool:
        """Whether the next step would end after the time for training."""
        return self.seconds_left(progress) <= self.step_seconds / 2

    def is_last_step(self, progress: Progress) -> bool:
        return self.training.step_limit is not None and progress.step >= self.training.step_limit

    def share(self, progress: Progress) -> float:
        """How much of the current phase is done, from 0 to 1."""
        return min((progress.step - progress.phase_step) / max(self.steps(progress), 1.0), 1.0)

    def is_evaluation_due(self, progress: Progress) -> bool:
        """Every `evaluate_every` steps, or by the clock; and after the last step."""
        every = self.training.interval("evaluate_every")
        if every is not None:
            return progress.step % every == 0 or self.is_last_step(progress)
        is_near_end = self.seconds_left(progress) < self.evaluation_interval(progress) / 3
        return self.is_last_step(progress) or (progress.seconds >= self.next_evaluation and not is_near_end)

    def is_save_due(self, progress: Progress) -> bool:
        """Every `save_every` steps; by the clock, after each evaluation."""
        every = self.training.interval("save_every")
        return progress.last_eval_step == progress.step if every is None else progress.step % every == 0

    def record_evaluation(self, progress: Progress, seconds: float) -> None:
        """Plan the next evaluation, given the seconds that this one took."""
        self.evaluations.append(seconds)
        self.next_evaluation = progress.seconds + seconds + self.evaluation_interval(progress)

    def evaluation_interval(self, progress: Progress) -> float:
        """Seconds between two evaluations, so that they take a small share of the time."""
        limit = self.training.time_limit
        if limit is None:
            return float("inf")
        total, elapsed = limit - progress.phase_seconds, progress.seconds - progress.phase_seconds
        usual = min(total / NUM_INTERVALS, MAX_INTERVAL, max(FIRST_INTERVAL * total, INTERVAL_GROWTH * elapsed))
        return max(usual, self.evaluation_seconds / MAX_EVALUATION_SHARE)
