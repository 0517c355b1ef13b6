"""One training run as a lane: ours by `softlook.train.fit`, theirs by `transformers.Trainer`, asked for the same."""

import tempfile
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from benchmarks.training_cases import Case, Feature, heard, spoken
from benchmarks.training_lanes import Lane
from softlook.train import Optim, Training, fit
from softlook.train.batches import Batches, Place
from softlook.train.events import Event, Trained
from softlook.train.optimizer import EPS

OPTIM = Optim(lr=5e-4, schedule="constant", warmup=0, weight_decay=0.01, beta1=0.9, beta2=0.98, clip=1.0)


class Ours:
    """`fit`, which says a word after every lap."""

    def __init__(self, case: Case, model: torch.nn.Module, batches: Batches | Sequence[Any], *, lap: int) -> None:
        self.case, self.model, self.batches, self.lap = case, model, batches, lap

    def lane(self, steps: int) -> Lane:
        return Lane("softlook", lambda lane: self.run(lane, steps))

    def run(self, lane: Lane, steps: int) -> None:
        def listen(event: Event) -> None:
            if isinstance(event, Trained):
                lane.lap_done(event.loss)

        training = Training(steps=steps, report_every=self.lap, device="cpu", precision="float32")
        fit(self.model, self.batches, self.case.objective, training=training, optim=OPTIM, listeners=[listen])

    def tokens(self, steps: int) -> list[int]:
        """In each step: a batch is the same whenever its place is reached."""
        return [heard(batch) for _, batch in islice(self.case.batches.start(Place()), steps)]


class Theirs:
    """`Trainer`, with what it is told as far as its defaults are others than ours."""

    def __init__(self, case: Case, model: Any, strategy: str, *, lap: int) -> None:
        self.case, self.model, self.strategy, self.lap = case, model, strategy, lap
        self.counts: list[int] = []

    def lane(self, steps: int) -> Lane:
        return Lane(f"Trainer, {self.strategy}", lambda lane: self.run(lane, steps))

    def run(self, lane: Lane, steps: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                self.model,
                self.arguments(folder, steps),
                data_collator=self.collate,
                train_dataset=self.case.features,  # pyright: ignore[reportArgumentType]  (a list is one)
                callbacks=[Telling(lane)],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()

    def collate(self, features: list[Feature]) -> Any:
        self.counts.append(sum(map(spoken, features)))
        return self.case.collate(features)

    def tokens(self, steps: int) -> list[int]:
        """In each step, as they were taken: the loader makes them in order, one ahead."""
        return self.counts[:steps]

    def arguments(self, folder: str, steps: int) -> TrainingArguments:
        return TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=self.case.together,
            train_sampling_strategy=self.strategy,
            learning_rate=OPTIM.lr,
            lr_scheduler_type=OPTIM.schedule,
            weight_decay=OPTIM.weight_decay,
            adam_beta1=OPTIM.beta1,
            adam_beta2=OPTIM.beta2,
            adam_epsilon=EPS,
            max_grad_norm=OPTIM.clip,
            logging_steps=self.lap,
            disable_tqdm=True,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
        )


class Telling(TrainerCallback):
    """Passes on what the Trainer says of its loss."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **rest: Any) -> None:
        if logs and "loss" in logs:
            self.lane.lap_done(float(logs["loss"]))
