"""Training runs of softlook and of transformers.Trainer with the same settings."""

import tempfile
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from benchmarks.training_cases import Case, Feature, batch_tokens, feature_tokens
from benchmarks.training_interleaving import InterleavedRun
from softlook.train import OptimizerConfig, TrainingConfig, fit
from softlook.train.batching.batches import Batches, DataCursor
from softlook.train.events import Event, StepLogged
from softlook.train.optimizer import EPS

OPTIM = OptimizerConfig(lr=5e-4, schedule="constant", warmup=0, weight_decay=0.01, beta1=0.9, beta2=0.98, grad_clip=1.0)


class SoftlookRun:
    """`softlook.train.fit`, logging at the end of every turn."""

    def __init__(
        self, case: Case, model: torch.nn.Module, batches: Batches | Sequence[Any], *, turn_steps: int
    ) -> None:
        self.case, self.model, self.batches, self.turn_steps = case, model, batches, turn_steps

    def interleaved(self, steps: int) -> InterleavedRun:
        return InterleavedRun("softlook", lambda run: self.train(run, steps))

    def train(self, run: InterleavedRun, steps: int) -> None:
        def record(event: Event) -> None:
            if isinstance(event, StepLogged):
                run.end_turn(event.loss)

        training = TrainingConfig(max_steps=steps, log_every=self.turn_steps, device="cpu", precision="float32")
        fit(self.model, self.batches, self.case.objective, training=training, optim=OPTIM, callbacks=[record])

    def tokens(self, steps: int) -> list[int]:
        """Tokens per step; batches are deterministic."""
        return [batch_tokens(batch) for _, batch in islice(self.case.batches.iter_from(DataCursor()), steps)]


class TrainerRun:
    """`transformers.Trainer` with the settings of softlook."""

    def __init__(self, case: Case, model: Any, strategy: str, *, turn_steps: int) -> None:
        self.case, self.model, self.strategy, self.turn_steps = case, model, strategy, turn_steps
        self.counts: list[int] = []

    def interleaved(self, steps: int) -> InterleavedRun:
        return InterleavedRun(f"Trainer, {self.strategy}", lambda run: self.train(run, steps))

    def train(self, run: InterleavedRun, steps: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                self.model,
                self.arguments(folder, steps),
                data_collator=self.collate,
                train_dataset=self.case.features,  # pyright: ignore[reportArgumentType]  (a list is one)
                callbacks=[TurnCallback(run)],
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
            logging_steps=self.turn_steps,
            disable_tqdm=True,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
        )


class TurnCallback(TrainerCallback):
    """Ends the turn when the loss is logged."""

    def __init__(self, run: InterleavedRun) -> None:
        self.run = run

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **rest: Any) -> None:
        if logs and "loss" in logs:
            self.run.end_turn(float(logs["loss"]))
