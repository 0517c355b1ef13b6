"""Training runs of softlook and of transformers.Trainer with the same settings."""

import tempfile
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from benchmarks.training_cases import Case, Feature, batch_tokens, feature_tokens
from benchmarks.training_lanes import Lane
from softlook.train import OptimizerConfig, TrainingConfig, fit
from softlook.train.batching.batches import Batches, DataCursor
from softlook.train.events import Event, StepLogged
from softlook.train.optimizer import EPS

OPTIM = OptimizerConfig(lr=5e-4, schedule="constant", warmup=0, weight_decay=0.01, beta1=0.9, beta2=0.98, grad_clip=1.0)


class SoftlookRun:
    """`softlook.train.fit`, logging after every lap."""

    def __init__(self, case: Case, model: torch.nn.Module, batches: Batches | Sequence[Any], *, lap: int) -> None:
        self.case, self.model, self.batches, self.lap = case, model, batches, lap

    def lane(self, steps: int) -> Lane:
        return Lane("softlook", lambda lane: self.run(lane, steps))

    def run(self, lane: Lane, steps: int) -> None:
        def record(event: Event) -> None:
            if isinstance(event, StepLogged):
                lane.lap_done(event.loss)

        training = TrainingConfig(max_steps=steps, log_every=self.lap, device="cpu", precision="float32")
        fit(self.model, self.batches, self.case.objective, training=training, optim=OPTIM, callbacks=[record])

    def tokens(self, steps: int) -> list[int]:
        """Tokens per step; batches are deterministic."""
        return [batch_tokens(batch) for _, batch in islice(self.case.batches.iter_from(DataCursor()), steps)]


class TrainerRun:
    """`transformers.Trainer` with the settings of softlook."""

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
                callbacks=[LapCallback(lane)],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()

    def collate(self, features: list[Feature]) -> Any:
        self.counts.append(sum(map(feature_tokens, features)))
        return self.case.collate(features)

    def tokens(self, steps: int) -> list[int]:
        """Tokens per step, in order; the loader prefetches one batch."""
        return self.counts[:steps]

    def arguments(self, folder: str, steps: int) -> TrainingArguments:
        return TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=self.case.trainer_batch_size,
            train_sampling_strategy=self.strategy,
            learning_rate=OPTIM.lr,
            lr_scheduler_type=OPTIM.schedule,
            weight_decay=OPTIM.weight_decay,
            adam_beta1=OPTIM.beta1,
            adam_beta2=OPTIM.beta2,
            adam_epsilon=EPS,
            max_grad_norm=OPTIM.grad_clip,
            logging_steps=self.lap,
            disable_tqdm=True,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
        )


class LapCallback(TrainerCallback):
    """Reports the logged loss to the lane."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **rest: Any) -> None:
        if logs and "loss" in logs:
            self.lane.lap_done(float(logs["loss"]))
