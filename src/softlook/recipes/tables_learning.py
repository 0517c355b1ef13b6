"""A table's learner at work in the folder of a run: it tells how it gets on, is kept, and can stop at any step."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import numpy as np
import torch
from torch import nn

from softlook.recipes.settings import TableTraining
from softlook.tabular.checkpoints import Checkpointed
from softlook.tabular.defaults import Recipe
from softlook.tabular.encoding.targets import Amounts
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.learning.fitting import Epoch, Learner, Limits
from softlook.tabular.wording import many
from softlook.train.batches import Place
from softlook.train.device import choose_precision
from softlook.train.events import Evaluated, Event, Finished, Saved, Started, Trained, Warned
from softlook.train.folder import RunFolder
from softlook.train.half import cpu_has_units
from softlook.train.progress import Progress
from softlook.train.snapshots import Snapshots
from softlook.train.stop import Stop

log = logging.getLogger("softlook.recipes")
WORD = 5.0
"""Seconds between two words about the loss within an epoch."""
MOST_LINES = 40
"""Columns that are told of, each on its line."""
FREE = ("epochs", "patience")
"""What a recipe may change its mind about while a run goes on."""


class Paused(BaseException):
    """Somebody asked for the end, and everything is kept."""


class Keeping:
    """Has a learner learn, from where the run stands to its end or to a signal."""

    def __init__(
        self, folder: RunFolder, estimator: TableEstimator, training: TableTraining, say: Callable[[Event], None]
    ) -> None:
        self.folder, self.estimator, self.training, self.say = folder, estimator, training, say
        self.finished: Finished | None = None

    def __call__(self, learner: Learner, limits: Limits) -> list[Epoch]:
        """What an estimator's `fit` asks for: the whole of learning."""
        self.learner, self.checkpointed = learner, Checkpointed.of(learner, self.estimator)
        fixed = {name: value for name, value in asdict(learner.recipe).items() if name not in FREE}
        self.snapshots = Snapshots(self.folder.path, keep=self.training.keep, settings=fixed)
        self.snapshots.sweep()
        before = self.snapshots.restore(self.checkpointed, self._warn) or Progress()
        self.began = time.monotonic() - before.seconds
        self.saved = self.spoken = time.monotonic()
        self.counted = learner.steps, self.spoken
        count = sum(weights.numel() for weights in learner.model.parameters())
        device = self.checkpointed.device
        precision = precision_of(learner.recipe, device)
        self.say(Started(learner.steps, self._steps(learner), str(device), precision, count, limits.seconds))
        learner.between = self._between
        with Stop().listening() as self.stop:
            history = learner.learn(replace(limits, began=self.began), self._told)
        self._finish(self._reason(limits), complete=True)
        return history

    def _steps(self, learner: Learner) -> int:
        """How many there will be at most, where that is known: 0 where patience or the clock decide."""
        last = learner.last_epoch()
        return 0 if last is None or self.training.minutes is not None else last * learner.steps_an_epoch()

    def _between(self) -> None:
        """After a step within an epoch: stop, keep or tell, each where it is time to."""
        now = time.monotonic()
        if self.stop.asked is not None:
            self._pause()
        if now - self.spoken >= WORD:
            self._tell(self.learner.total.item() / self.learner.seen)
        if now - self.saved >= self.training.save_every:
            self._save()

    def _told(self, epoch: Epoch) -> None:
        """After an epoch."""
        self._tell(epoch["loss"])
        if "held_out_loss" in epoch:
            self.say(Evaluated(self.learner.steps, scores_of(self.estimator, epoch), epoch["is_best"]))
        if self.learner.ended or time.monotonic() - self.saved >= self.training.save_every:
            self._save()
        if self.stop.asked is not None and not self.learner.ended:
            self._pause()

    def _pause(self) -> None:
        self._save()
        self._finish(f"stopped by {self.stop.asked}", complete=False)
        raise Paused

    def _tell(self, loss: float) -> None:
        learner, now = self.learner, time.monotonic()
        (step, when), self.counted, self.spoken = self.counted, (learner.steps, now), now
        rows = (learner.steps - step) * learner.size / max(now - when, 1e-9)
        gradients = [weights.grad for weights in learner.weights if weights.grad is not None]
        length = nn.utils.get_total_norm(gradients).item() if gradients else 0.0
        lr = float(learner.optimizer.param_groups[0]["lr"])
        self.say(Trained(learner.steps, loss, lr, length, rows, now - self.began))

    def _save(self) -> None:
        learner = self.learner
        is_new = not self.snapshots.path(learner.steps).exists()
        best = [epoch["held_out_loss"] for epoch in learner.history if epoch.get("is_best")]
        progress = Progress(
            step=learner.steps,
            place=Place(len(learner.history), learner.seen),
            seconds=time.monotonic() - self.began,
            best=best[-1] if best else None,
            best_step=learner.steps,  # each checkpoint answers with the best weights so far
            looked=learner.looked,
            waited=learner.waited,
        )
        path = self.snapshots.save(self.checkpointed, progress)
        self.saved = time.monotonic()
        if is_new:
            self.say(Saved(learner.steps, path.name))

    def _finish(self, reason: str, *, complete: bool) -> None:
        best = self.snapshots.best()
        seconds = time.monotonic() - self.began
        asked = self.stop.asked if not complete else None
        self.finished = Finished(self.learner.steps, reason, seconds, complete, asked, best and str(best))
        self.say(self.finished)

    def _reason(self, limits: Limits) -> str:
        learner = self.learner
        if learner.waited >= learner.recipe.patience:
            return f"no better for {learner.waited} looks"
        # Time for a last look is kept free: a run may end for want of it before the limit.
        is_whole = limits.seconds is None or len(learner.history) == learner.last_epoch()
        return "all epochs are done" if is_whole else "the time is up"

    def _warn(self, message: str) -> None:
        log.warning(message)
        self.say(Warned(0, message))


def introduced(learner: Learner, estimator: TableEstimator, training: TableTraining) -> list[str]:
    """What was understood of a table, how large the model is, and when it will be over."""
    held = 0 if learner.held is None else len(learner.held)
    return [
        "\n".join(["What the columns hold; --kinds says otherwise:", *listed(estimator.reading_.told())]),
        f"{len(learner.train):,} rows are learned from, {held:,} are held out to stop by.",
        f"{learner.recipe.model}: {sized(**sizes_of(learner))}. {_ends(learner, training)}",
    ]


def precision_of(recipe: Recipe, device: torch.device) -> str:
    """What the products of a step are computed in; whatever they are added up to is in single precision."""
    if not recipe.half:
        return "float32"
    if device.type == "cpu":
        return "bfloat16" if cpu_has_units() else "float32"
    return str(choose_precision("auto", device)).removeprefix("torch.")


def sizes_of(learner: Learner) -> dict[str, int]:
    """How large a model is, by name."""
    return {name: getattr(learner.recipe, name) for name in ("depth", "dim", "heads", "members")}


def sized(*, depth: int, dim: int, heads: int, members: int) -> str:
    """The same in words.

    >>> sized(depth=2, dim=64, heads=8, members=1)
    '2 blocks, 64 wide, 8 heads'
    """
    more = f", {members} members" if members > 1 else ""
    return f"{many(depth, 'block')}, {dim} wide, {many(heads, 'head')}{more}"


def listed(lines: Sequence[str]) -> list[str]:
    """Lines about columns below one another, as many as anybody reads."""
    more = [f"  and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else []
    return [*(f"  {line}" for line in lines[:MOST_LINES]), *more]


def _ends(learner: Learner, training: TableTraining) -> str:
    """When it will be over, in words."""
    last, patience = learner.last_epoch(), learner.recipe.patience
    ends = [] if last is None else [f"after {many(last, 'time')} through the rows"]
    ends += [] if learner.held is None else [f"after {many(patience, 'look')} without a better one"]
    if training.minutes is not None:
        return f"It ends {', '.join(ends)} or when the time is up, whichever comes first."
    first = ", whichever comes first" if len(ends) > 1 else ""
    return f"It ends {' or '.join(ends)}{first}; --training.minutes sets a limit."


def scores_of(estimator: TableEstimator, epoch: Epoch) -> dict[str, float]:
    """What a look has found, in words that people use; the first one is the loss."""
    loss, targets = epoch["held_out_loss"], estimator.targets_
    if isinstance(targets, Amounts):
        error = float(np.sqrt(loss * np.mean(targets.spread**2))) if targets.outputs == 1 else None
        return {"loss": loss} | ({} if error is None else {"rmse": error})
    return {"loss": loss, "accuracy": epoch["held_out_score"]}
