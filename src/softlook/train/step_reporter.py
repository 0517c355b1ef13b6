"""Reports of training steps, in order, as the device finishes them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from softlook.base.errors import TrainingError
from softlook.train.batching.batches import DataCursor
from softlook.train.checkpoint.train_state import Progress
from softlook.train.config import TrainingConfig
from softlook.train.events import BatchSplit, Event, MetricWindow, StepSkipped
from softlook.train.schedule import RunSchedule
from softlook.train.train_step import PendingStep, StepResult


@dataclass(frozen=True)
class LaunchedStep:
    """A step that was launched, with its learning rate and the progress before and after it."""

    pending: PendingStep
    lr: float
    before: Progress
    after: Progress


@dataclass
class StepReporter:
    """Emits the events of launched steps. A GPU may be some steps behind: only a report waits for it."""

    training: TrainingConfig
    schedule: RunSchedule
    emit: Callable[[Event], None]
    describe_newest: Callable[[], str] | None
    """Describes the newest checkpoint."""
    window: MetricWindow
    launched: deque[LaunchedStep] = field(default_factory=deque)

    def add(self, step: LaunchedStep) -> None:
        """A step that was launched."""
        self.launched.append(step)

    def report(self, progress: Progress, in_flight: int = 0) -> Progress:
        """Report steps until at most `in_flight` are left; returns the progress with their results."""
        while len(self.launched) > in_flight:
            progress = self._report(self.launched.popleft(), progress)
        return progress

    def _report(self, step: LaunchedStep, progress: Progress) -> Progress:
        result, after = step.pending.wait(), step.after
        progress = replace(progress, nonfinite_steps=0 if result.applied else progress.nonfinite_steps + 1)
        if after.micro_batches != step.before.micro_batches:
            self.emit(BatchSplit(after.step, after.micro_batches))
        if result.applied:
            self.window.add(result.loss, result.targets)
        else:
            self._report_nonfinite(result, after.step, step.before.cursor, progress.nonfinite_steps)
        if after.step % self.training.log_every == 0 or self.schedule.is_last_step(after):
            self.emit(self.window.flush(after.step, lr=step.lr, grad_norm=result.grad_norm, seconds=after.seconds))
        return replace(progress, loss_window=self.window.state)

    def _report_nonfinite(self, result: StepResult, step: int, cursor: DataCursor, count: int) -> None:
        """Report a step with NaN or infinity, which was skipped; raise after too many in a row."""
        self.emit(StepSkipped(step, result.loss, result.grad_norm, (cursor.epoch, cursor.offset)))
        if count > self.training.max_nonfinite_steps:
            newest = "" if self.describe_newest is None else f" {self.describe_newest()}"
            raise TrainingError(
                f"{count} steps in a row gave NaN or infinity, the last at step {step} "
                f"with batch {cursor.offset} of epoch {cursor.epoch}: loss {result.loss}, "
                f"gradient norm {result.grad_norm}. The weights were not changed.{newest} "
                "Try a smaller optim.lr or a longer optim.warmup."
            )
