"""One run: step after step, a look at the held-out data now and then, and checkpoints to go on from."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from torch import Tensor, nn

from softlook.base.errors import TrainingError
from softlook.train.ahead import ahead
from softlook.train.batches import Batches, Place, doubt
from softlook.train.events import Evaluated, Event, Finished, Halved, Listener, Saved, Skipped, Started, Warned
from softlook.train.learner import Learner
from softlook.train.progress import Progress, dice_kept
from softlook.train.recent import Recent
from softlook.train.schedule import SCHEDULES
from softlook.train.settings import Optim, Training
from softlook.train.snapshots import Snapshots
from softlook.train.step import Stepped, Stepper
from softlook.train.stop import Interrupted, Stop

log = logging.getLogger("softlook.train")
Evaluate = Callable[[nn.Module], dict[str, float]]
"""A look at held-out data: scores by name, of which the first is the one to make small."""
GO_ON, TIME_IS_UP, ASKED = range(3)


@dataclass
class Run:
    """The parts of a run, and how they work together."""

    training: Training
    optim: Optim
    learner: Learner
    stepper: Stepper
    batches: Batches
    stop: Stop
    snapshots: Snapshots | None = None
    evaluate: Evaluate | None = None
    tokenizer: Path | None = None
    listeners: Sequence[Listener] = ()

    def go(self) -> Progress:
        """From the start, or from the newest checkpoint, to the end."""
        progress = self.look(self.begin())
        with closing(self.source):
            while (reason := self.over(progress)) is None:
                progress = self.step(progress)
                progress = self.look(progress)
                self.save(progress)
        return self.finish(progress, reason)

    def begin(self) -> Progress:
        """Stand where the run stands."""
        progress = self.restored() or Progress()
        self.schedule = SCHEDULES[self.optim.schedule](self.optim.warmup, self.training.steps)
        # What cannot be entered at a place may roll the dice that dropout rolls: it is asked for one at a time.
        self.source = ahead(self.batches.start(progress.place), 0 if doubt(self.batches) else self.training.ahead)
        self.begun, self.recent = time.monotonic() - progress.seconds, Recent(progress.window)
        self.used_up, self.best = False, dict[str, Tensor]()
        self.stepper.parts = progress.parts
        self.learner.model.train()
        count = sum(parameter.numel() for parameter in self.learner.model.parameters())
        kind = str(self.stepper.kind).removeprefix("torch.")
        self.say(Started(progress.step, self.training.steps, str(self.learner.device), kind, count))
        if progress.step and (why := doubt(self.batches)):
            self.warn(why)
        return progress

    def restored(self) -> Progress | None:
        """What a checkpoint knows. The first process puts the folder in order before the others look into it."""
        if self.snapshots is None:
            return None
        world = self.learner.world
        if world.first:
            self.snapshots.sweep()
        world.together()
        return self.snapshots.restore(self.learner, self.warn if world.first else lambda message: None)

    def step(self, progress: Progress) -> Progress:
        """One update of the weights."""
        group = list(islice(self.source, self.training.accumulate))
        if not group:
            self.used_up = True
            return progress
        lr = self.optim.lr * self.schedule(progress.step + 1)
        stepped = self.stepper.step([batch for _, batch in group], lr)
        after = replace(
            progress,
            step=progress.step + 1,
            place=group[-1][0],
            seconds=time.monotonic() - self.begun,
            skipped=0 if stepped.taken else progress.skipped + 1,
            parts=self.stepper.parts,
        )
        if stepped.taken and self.learner.average is not None:
            self.learner.average.update(after.step)
        self.tell(stepped, lr, progress, after)
        return replace(after, window=self.recent.window)

    def tell(self, stepped: Stepped, lr: float, before: Progress, after: Progress) -> None:
        """Say what came of a step."""
        self.recent.add(stepped)
        if after.parts != before.parts:
            self.say(Halved(after.step, after.parts))
        if not stepped.taken:
            self.heed(stepped, before.place, after)
        if after.step % self.training.report_every == 0 or after.step >= self.training.steps:
            self.say(self.recent.told(after.step, lr=lr, gradient=stepped.gradient, seconds=after.seconds))

    def heed(self, stepped: Stepped, place: Place, progress: Progress) -> None:
        """A step that gives no numbers is left out; many in a row end the run before anything is spoilt."""
        self.say(Skipped(progress.step, stepped.loss, stepped.gradient, (place.epoch, place.offset)))
        if progress.skipped > self.training.bad_steps:
            kept = "" if self.snapshots is None else f" {self.snapshots.last_good()}"
            raise TrainingError(
                f"{progress.skipped} steps in a row gave no numbers, the last of them step {progress.step} with batch "
                f"{place.offset} of epoch {place.epoch}: loss {stepped.loss}, gradient {stepped.gradient}. The weights "
                f"were left as they were.{kept} Try a smaller optim.lr or a longer optim.warmup."
            )

    def look(self, progress: Progress) -> Progress:
        """Look at the held-out data where it is time to."""
        due = progress.step % self.training.evaluate_every == 0 or progress.step >= self.training.steps
        return self.look_now(progress) if progress.step and due else progress

    def look_now(self, progress: Progress) -> Progress:
        """Look at the held-out data. A look that is broken off is made up for when the run goes on."""
        learner = self.learner
        if self.evaluate is None or progress.looked == progress.step:
            return progress
        scores = self.scores(self.evaluate)
        if not learner.world.same(len(scores), learner.device):
            return progress
        progress = progress.after_look(learner.world.same(next(iter(scores.values()), 0.0), learner.device))
        self.say(Evaluated(progress.step, scores, progress.best_step == progress.step))
        if self.snapshots is None and progress.best_step == progress.step:
            self.best = {name: tensor.detach().clone() for name, tensor in learner.answer().items()}
        return progress

    def scores(self, evaluate: Evaluate) -> dict[str, float]:
        """What the weights to answer with are worth; nothing where one was broken off, or is not the one to look."""
        learner, parted = self.learner, self.learner.world.is_parted
        if not learner.world.first and not parted:
            return {}
        # Where each has a part of the weights all have to look, and to the end.
        breaking_off = nullcontext() if parted else self.stop.breaking_off()
        try:
            with learner.answering(), dice_kept(learner.device), breaking_off, self.stepper.working():
                return evaluate(learner.model)
        except Interrupted:
            return {}

    def save(self, progress: Progress) -> None:
        """Keep a checkpoint where it is time to, and of the best so far in any case."""
        due = progress.step % self.training.save_every == 0 and not progress.skipped
        best = progress.best is not None and progress.best_step == progress.step
        if due or best:
            self.keep(progress)

    def keep(self, progress: Progress) -> None:
        if self.snapshots is not None:
            known = self.snapshots.path(progress.step).exists()
            path = self.snapshots.save(self.learner, progress, self.tokenizer)
            if not known:
                self.say(Saved(progress.step, path.name))

    def over(self, progress: Progress) -> str | None:
        """Why the run ends here, if it does."""
        late = self.training.minutes is not None and progress.seconds >= 60 * self.training.minutes
        wish = ASKED if self.stop.asked is not None else TIME_IS_UP if late else GO_ON
        self.wish = self.learner.world.most(wish, self.learner.device)
        if self.wish == ASKED:
            return f"stopped by {self.stop.asked or 'another process'}"
        if progress.step >= self.training.steps:
            return "all steps are done"
        if self.used_up:
            return "the batches are used up"
        if self.wish == TIME_IS_UP:
            return "the time is up"
        if self.training.patience is not None and progress.waited >= self.training.patience:
            return f"no better for {progress.waited} looks"
        return None

    def finish(self, progress: Progress, reason: str) -> Progress:
        """Save, and leave the model with the weights that answer best."""
        if self.wish != ASKED:
            progress = self.look_now(progress)
        self.keep(progress)
        path = self.leave_best()
        self.say(Finished(progress.step, reason, progress.seconds, self.wish != ASKED, self.stop.asked, path))
        return progress

    def leave_best(self) -> str | None:
        """The model answers from now on as the best checkpoint does."""
        learner, best = self.learner, None
        learner.world.together()
        if self.snapshots is not None and (best := self.snapshots.best()) is not None:
            learner.take(self.snapshots.weights(best, learner))
        else:
            learner.take(self.best or learner.answer())
        learner.model.eval()
        return best and str(best)

    def say(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def warn(self, message: str) -> None:
        log.warning(message)
        self.say(Warned(0, message))
