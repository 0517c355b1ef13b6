"""Trainer: the training loop with evaluation and checkpoints."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.device import choose_device
from softlook.train.batching.batches import Batches, as_batches, pinned, prefetch, resume_warning
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.checkpoint.run_dir import RunDir
from softlook.train.checkpoint.train_state import Progress, TrainState, lora_fingerprint
from softlook.train.compilation import WARMUP_CALLS, reason_not_to_compile
from softlook.train.config import OptimizerConfig, TrainingConfig, fixed_settings
from softlook.train.distributed.fsdp import shard_model
from softlook.train.distributed.world import process_group
from softlook.train.ema import EMA, trainable_tensors
from softlook.train.events import (
    Callback,
    Evaluated,
    Event,
    Finished,
    MetricWindow,
    Saved,
    Started,
    StopTraining,
    Warned,
    describe_stop,
    dispatch,
)
from softlook.train.mixed_precision import choose_dtype
from softlook.train.optimizer import build_optimizer
from softlook.train.progress import progress_bar
from softlook.train.rng import derive_seed, preserve_rng_states
from softlook.train.schedule import RunClock, RunSchedule
from softlook.train.signals import GracefulStop, Interrupted
from softlook.train.step_reporter import LaunchedStep, StepReporter
from softlook.train.train_step import Objective, TrainStep
from softlook.weights.meta import unique_tensors

log = logging.getLogger("softlook.train")
EvaluateFn = Callable[[nn.Module], dict[str, float]]
"""Evaluation on held-out data: scores by name, the first of which is minimized."""


MIN_SHARE, MAX_SHARE = 0.15, 0.6
"""Of the time, between which a run that has learned nothing starts again."""
RESTART_LR_SCALE, MIN_LR_SCALE = 0.25, 0.1
LEARNED_SHARE = 0.995
"""Loss of a run that has learned something, as a share of the loss without an input."""


class StopRequest(IntEnum):
    """Why a rank asks to stop; the largest of all ranks decides."""

    NONE = 0
    TIME_LIMIT = 1
    CALLBACK = 2
    SIGNAL = 3


def fit(
    model: nn.Module,
    batches: Batches | Iterable[Any],
    objective: Objective,
    *,
    evaluate: EvaluateFn | None = None,
    training: TrainingConfig | None = None,
    optim: OptimizerConfig | None = None,
    run_dir: Path | None = None,
    tokenizer: Path | None = None,
    callbacks: Sequence[Callback] = (),
    clock: RunClock | None = None,
    uninformed_loss: float | None = None,
    progress: bool = True,
) -> Progress:
    """Train a model and leave it with its best weights, which are also in `run_dir`.

    The same call resumes from the newest checkpoint, bit for bit as if it had never stopped. With
    `training.max_minutes` the learning rate follows the clock, and so the result depends on the machine. A finished run
    that gets more steps or minutes trains on, with a new warmup and decay of the learning rate.

    `uninformed_loss` is the held-out loss of a prediction that ignores the input: a run with a time limit whose loss
    stays above starts again from its first weights, at a lower learning rate.

    `callbacks` are called with every event, and may raise `StopTraining`. In a terminal or a notebook a progress bar is
    shown, unless `progress` is False or the environment variable SOFTLOOK_PROGRESS is 0.

    >>> from softlook.train import Loss
    >>> def objective(model, batch):
    ...     return Loss((model(batch) - 3 * batch).square().sum(), len(batch))
    >>> model, optim = nn.Linear(1, 1), OptimizerConfig(lr=0.1, warmup=10)
    >>> _ = fit(model, [torch.randn(8, 1)], objective, training=TrainingConfig(max_steps=300), optim=optim)
    >>> round(model(torch.ones(1)).item(), 1)
    3.0
    """
    training, optim = training or TrainingConfig(), optim or OptimizerConfig()
    device = choose_device(training.device)
    is_sharded = training.parallel == "fsdp"
    with ExitStack() as stack:
        world = stack.enter_context(
            process_group(device, is_sharded=is_sharded, heartbeat_timeout=training.heartbeat_timeout)
        )
        if run_dir is not None:
            stack.enter_context(RunDir(run_dir).lock())
        torch.manual_seed(training.seed if world.is_rank_zero else derive_seed(training.seed, world.rank))
        dtype = choose_dtype(training.precision, device)
        model.to(device)
        settings = fixed_settings(training, optim) | lora_fingerprint(model)
        if world.is_sharded:
            shard_model(model, device, world.size)
        optimizer = build_optimizer(model, optim)
        eager_reason = reason_not_to_compile(
            training.compile,
            device,
            is_distributed=world.is_initialized,
            steps=training.step_limit,
            seconds=training.time_limit,
        )
        train_step = TrainStep(
            model,
            objective,
            optimizer,
            grad_clip=optim.grad_clip,
            dtype=dtype,
            world=world,
            compile_reason=eager_reason,
            warmup_calls=0 if training.compile is True else WARMUP_CALLS,
        )
        ema = EMA(model, training.ema_decay) if training.ema_decay else None
        keep = training.keep_checkpoints
        shown = stack.enter_context(progress_bar(progress and world.is_rank_zero))
        trainer = Trainer(
            training,
            RunSchedule(training, optim, clock or RunClock()),
            state=TrainState(model, optimizer, train_step.scaler, ema, device, world),
            train_step=train_step,
            batches=as_batches(batches),
            checkpoints=CheckpointManager(run_dir, keep_checkpoints=keep, settings=settings) if run_dir else None,
            stop=stack.enter_context(GracefulStop(debounce=1.0 if world.size > 1 else 0.0).install()),
            evaluate=evaluate,
            tokenizer=tokenizer,
            callbacks=(*callbacks, *shown) if world.is_rank_zero else (),
            uninformed_loss=uninformed_loss,
        )
        return trainer.train()


@dataclass
class Trainer:
    """The training loop. `fit` builds one."""

    training: TrainingConfig
    schedule: RunSchedule
    state: TrainState
    train_step: TrainStep
    batches: Batches
    stop: GracefulStop
    checkpoints: CheckpointManager | None = None
    evaluate: EvaluateFn | None = None
    tokenizer: Path | None = None
    callbacks: Sequence[Callback] = ()
    uninformed_loss: float | None = None
    callback_request: StopTraining | None = None
    """Raised by a callback: the run ends after this step."""

    def train(self) -> Progress:
        """Train from the start, or from the newest checkpoint, to the end."""
        progress = self.maybe_evaluate(self.setup())
        with closing(self.source):
            if progress.step and self.stop_reason(progress) and self.state.world.is_rank_zero:
                log.info("This run is finished: a larger training.max_steps or training.max_minutes trains on.")
            while (reason := self.stop_reason(progress)) is None:
                progress = self.step(progress)
                progress = self.maybe_evaluate(progress)
                self.maybe_save(progress)
                progress = replace(progress, seconds=self.elapsed())
        return self.finish(progress, reason)

    def setup(self) -> Progress:
        """Restore the newest checkpoint, if any, and start the batches."""
        progress = self.restore() or Progress()
        self.started_at = self.schedule.clock.started_at - progress.seconds
        progress = self.schedule.begin(replace(progress, seconds=self.elapsed()))
        # Batches that cannot seek may use the global RNG, as dropout does: they are not prefetched.
        count = 0 if resume_warning(self.batches) else self.training.prefetch
        self.source = prefetch(pinned(self.batches.iter_from(progress.cursor), self.state.device), count)
        newest = None if self.checkpoints is None else self.checkpoints.describe_newest
        self.reporter = StepReporter(
            self.training, self.schedule, self.emit, newest, MetricWindow(progress.loss_window)
        )
        self.is_exhausted, self.best_weights = False, dict[str, Tensor]()
        may_restart = self.uninformed_loss is not None and self.training.time_limit is not None and not progress.step
        self.first_weights = clone(trainable_tensors(self.state.model)) if may_restart else {}
        self.train_step.micro_batches = progress.micro_batches
        self.state.model.train()
        count = sum(parameter.numel() for parameter in self.state.model.parameters())
        dtype = str(self.train_step.dtype).removeprefix("torch.")
        steps, limit = self.training.step_limit or 0, self.training.time_limit
        self.emit(Started(progress.step, steps, str(self.state.device), dtype, count, limit, progress.phase_step))
        if self.state.world.is_rank_zero and self.state.device.type != "cpu":
            log.info(self.train_step.explain())
        if progress.step and (warning := resume_warning(self.batches)):
            self.warn(warning)
        if progress.step and progress.phase_step == progress.step and self.state.world.is_rank_zero:
            log.info(
                f"The run had reached its limit at step {progress.step:,} and gets more: the learning rate warms up "
                "again and decays until the new limit."
            )
        return progress

    def elapsed(self) -> float:
        """Seconds of the run so far. All ranks get the same, since the schedule depends on it."""
        seconds, state = time.monotonic() - self.started_at, self.state
        return seconds if self.training.time_limit is None else state.world.broadcast(seconds, state.device)

    def restore(self) -> Progress | None:
        """Load the newest checkpoint. Rank 0 cleans the run directory up before the others read it."""
        if self.checkpoints is None:
            return None
        world = self.state.world
        if world.is_rank_zero:
            self.checkpoints.remove_partial()
        world.barrier()
        return self.checkpoints.restore(self.state, self.warn if world.is_rank_zero else lambda message: None)

    def step(self, progress: Progress) -> Progress:
        """Launch one optimizer step, and report those that the device has finished."""
        group = list(islice(self.source, self.training.gradient_accumulation_steps))
        if not group:
            self.is_exhausted = True
            return progress
        lr = self.schedule.learning_rate(progress)
        pending = self.train_step.launch([batch for _, batch in group], lr)
        after = replace(
            progress,
            step=progress.step + 1,
            cursor=group[-1][0],
            seconds=self.elapsed(),
            micro_batches=self.train_step.micro_batches,
        )
        self.schedule.step_seconds = after.seconds - progress.seconds
        if self.state.ema is not None:
            self.train_step.update_ema(self.state.ema, after.step, pending)
        self.reporter.add(LaunchedStep(pending, lr, progress, after))
        waits = self.schedule.is_evaluation_due(after) or self.schedule.is_save_due(after)
        return self.reporter.report(after, in_flight=0 if waits else self.train_step.max_in_flight)

    def maybe_evaluate(self, progress: Progress) -> Progress:
        """Evaluate every `evaluate_every` steps, or by the clock, and after the last step."""
        due = progress.step and self.schedule.is_evaluation_due(progress)
        return self.evaluate_now(progress) if due else progress

    def evaluate_now(self, progress: Progress) -> Progress:
        """Evaluate, unless done at this step. An interrupted evaluation is repeated when the run resumes."""
        state = self.state
        if self.evaluate is None or progress.last_eval_step == progress.step:
            return progress
        scores = self.compute_scores(self.evaluate)
        self.schedule.record_evaluation(progress, self.elapsed() - progress.seconds)
        if not state.world.broadcast(len(scores), state.device):
            return progress
        loss = state.world.broadcast(next(iter(scores.values()), 0.0), state.device)
        progress = progress.record_evaluation(loss)
        self.emit(Evaluated(progress.step, scores, progress.best_step == progress.step))
        if self.checkpoints is None and progress.best_step == progress.step:
            self.best_weights = clone(state.inference_weights())
        return self.maybe_restart(progress, scores)

    def maybe_restart(self, progress: Progress, scores: dict[str, float]) -> Progress:
        """Start again at a lower learning rate if the model has learned nothing and there is time for another try."""
        state, loss = self.state, scores.get("attention_loss", scores.get("loss", 0.0))
        learned = self.uninformed_loss is None or loss < LEARNED_SHARE * self.uninformed_loss
        is_early = MIN_SHARE < self.schedule.share(progress) < MAX_SHARE
        if not self.first_weights or progress.lr_scale <= MIN_LR_SCALE or not is_early:
            return progress
        if state.world.broadcast(learned, state.device):  # only rank zero has the scores
            return progress
        state.load_weights(unique_tensors(state.model) | self.first_weights)
        state.optimizer.state.clear()
        if state.ema is not None:
            state.ema.reset()
        progress = replace(progress, lr_scale=progress.lr_scale * RESTART_LR_SCALE).start_phase()
        lr = progress.lr_scale * self.schedule.optim.lr
        if state.world.is_rank_zero:
            self.warn(
                f"Step {progress.step:,}: the model has not learned anything yet. Its loss of {loss:.3f} is no better "
                f"than {self.uninformed_loss:.3f}, that of ignoring the input. Starting again at a learning rate of "
                f"{lr:.1g}."
            )
        return progress

    def compute_scores(self, evaluate: EvaluateFn) -> dict[str, float]:
        """Scores of the inference weights; empty if interrupted, or on ranks that do not evaluate."""
        state, is_sharded = self.state, self.state.world.is_sharded
        if not state.world.is_rank_zero and not is_sharded:
            return {}
        # With FSDP the forward is a collective: all ranks have to evaluate, and to the end.
        interruptible = nullcontext() if is_sharded else self.stop.interruptible()
        try:
            with state.evaluation_mode(), preserve_rng_states(state.device), interruptible, self.train_step.autocast():
                return evaluate(state.model)
        except Interrupted:
            return {}

    def maybe_save(self, progress: Progress) -> None:
        """Save a checkpoint every `save_every` steps, or by the clock, and whenever the model is the best so far."""
        due = self.schedule.is_save_due(progress) and not progress.nonfinite_steps
        best = progress.best_loss is not None and progress.best_step == progress.step
        if due or best:
            self.save_checkpoint(progress)

    def save_checkpoint(self, progress: Progress) -> None:
        """Save a checkpoint, unless this step has one."""
        if self.checkpoints is not None:
            existed = self.checkpoints.path(progress.step).exists()
            path = self.checkpoints.save(self.state, progress, self.tokenizer)
            if not existed:
                self.emit(Saved(progress.step, path.name))

    def stop_reason(self, progress: Progress) -> str | None:
        """Why the run stops now; None if it continues. All ranks decide alike."""
        training = self.training
        request = StopRequest.TIME_LIMIT if self.schedule.is_out_of_time(progress) else StopRequest.NONE
        request = request if self.callback_request is None else StopRequest.CALLBACK
        request = request if self.stop.received is None else StopRequest.SIGNAL
        self.request = StopRequest(self.state.world.all_reduce_max(request, self.state.device))
        if self.request == StopRequest.SIGNAL:
            return f"stopped by {self.stop.received or 'another process'}"
        if self.schedule.is_last_step(progress):
            return "max_steps reached"
        if self.is_exhausted:
            return "no more batches"
        if self.request == StopRequest.TIME_LIMIT:
            return "time limit reached"
        if self.request == StopRequest.CALLBACK:
            return describe_stop(self.callback_request)
        if training.patience is not None and progress.evals_since_best >= training.patience:
            return f"early stopping: no improvement in {progress.evals_since_best} evaluations"
        return None

    def finish(self, progress: Progress, reason: str) -> Progress:
        """Evaluate, save, and load the best weights."""
        progress, is_complete = self.reporter.report(progress), self.request != StopRequest.SIGNAL
        if is_complete:
            # A run that a callback stopped continues its schedule, should it be resumed.
            is_phase_complete = self.request != StopRequest.CALLBACK or self.schedule.is_last_step(progress)
            progress = replace(self.evaluate_now(progress), is_phase_complete=is_phase_complete)
        if self.request == StopRequest.TIME_LIMIT:  # the rest of the time is for what follows: it is used up
            progress = replace(progress, seconds=max(progress.seconds, self.training.time_limit or 0.0))
        self.save_checkpoint(progress)
        if self.train_step.compiler is not None:
            log.info(self.train_step.explain())
        best = self.load_best()
        self.emit(Finished(progress.step, reason, progress.seconds, is_complete, self.stop.received, best))
        return progress

    def load_best(self) -> str | None:
        """Load the weights of the best checkpoint; returns its path."""
        state, best = self.state, None
        state.world.barrier()
        if self.checkpoints is not None and (best := self.checkpoints.best()) is not None:
            state.load_weights(self.checkpoints.weights(best, state))
        else:
            state.load_weights(self.best_weights or state.inference_weights())
        state.model.eval()
        return best and str(best)

    def emit(self, event: Event) -> None:
        """Pass an event to all callbacks, which may ask to stop."""
        try:
            dispatch(self.callbacks, event)
        except StopTraining as request:
            self.callback_request = request

    def warn(self, message: str) -> None:
        """Log a warning and emit it."""
        log.warning(message)
        self.emit(Warned(0, message))


def clone(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
