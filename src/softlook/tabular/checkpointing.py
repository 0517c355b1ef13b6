"""Checkpoints of a table trainer, restored bit for bit.

A checkpoint is what an estimator's `save` writes, with the best weights so far, plus the state of the trainer:
`softlook.tabular.load` reads any of them.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import TrainingError, WeightsError
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.serialization import MAX_JSON_BYTES, write_metadata
from softlook.tabular.training.trainer import TableTrainer
from softlook.train.checkpoint.train_state import NON_EMA, OPTIMIZER, RNG_STATE, StoredFiles, TrainState
from softlook.train.distributed.world import World
from softlook.train.optimizer import load_optimizer_state, optimizer_state
from softlook.train.rng import set_rng_states
from softlook.weights.meta import check_tensors_match, unique_tensors
from softlook.weights.schema import read_json
from softlook.weights.tensor_files import SINGLE_FILE, StoredTensor

TRAINER_FILE = "table_trainer.json"
COUNTERS = (
    "steps",
    "last_eval_step",
    "best",
    "patience_mark",
    "bad_evals",
    "rows_seen",
    "n_validation_rows",
    "uses_retrieval",
    "reached_limit",
)
"""The plain values of a trainer that change."""
REQUIRED = (*COUNTERS, "loss_sum", "has_best", "history")
"""The contents of the trainer's file."""


@dataclass(frozen=True)
class TableTrainState(TrainState):
    """The state of a table trainer, as checkpoints store it."""

    trainer: TableTrainer | None = None
    estimator: TableEstimator | None = None

    @staticmethod
    def of(trainer: TableTrainer, estimator: TableEstimator) -> "TableTrainState":
        device = trainer.loss_sum.device
        scaler = torch.amp.GradScaler(enabled=False)
        return TableTrainState(trainer.model, trainer.optimizer, scaler, None, device, World(), trainer, estimator)

    def state_files(self) -> dict[str, dict[str, Tensor]]:
        best = self._trainer.best_weights()
        return {
            SINGLE_FILE: {name: best[name] for name in unique_tensors(self.model)},
            OPTIMIZER: optimizer_state(self.model, self.optimizer),
            NON_EMA: {name: tensor.detach() for name, tensor in self._changing_tensors().items()},
        }

    def write_extra(self, folder: Path) -> None:
        assert self.estimator is not None
        trainer = self._trainer
        write_metadata(self.estimator, folder, trainer.hparams, trainer.history, trainer.retrieval)
        counters = {name: getattr(trainer, name) for name in COUNTERS}
        values = {name: value if math.isfinite(value) else None for name, value in counters.items()}
        values |= {"loss_sum": trainer.loss_sum.item(), "has_best": bool(trainer.best_state)}
        content = json.dumps(values | {"history": trainer.history})
        (folder / TRAINER_FILE).write_text(f"{content}\n", encoding="utf-8")

    def required_files(self) -> list[str]:
        return [SINGLE_FILE, OPTIMIZER, NON_EMA, RNG_STATE]

    def load_state(self, files: StoredFiles, folder: Path) -> None:
        trainer, expected = self._trainer, unique_tensors(self.model)
        check_tensors_match(expected, _meta(files[SINGLE_FILE]), folder / SINGLE_FILE)
        check_tensors_match(self._changing_tensors(), _meta(files[NON_EMA]), folder / NON_EMA)
        try:
            load_optimizer_state(self.model, self.optimizer, files[OPTIMIZER])
        except WeightsError as error:
            raise WeightsError(f"{folder / OPTIMIZER}: {error}") from None
        values = read_json(folder / TRAINER_FILE, MAX_JSON_BYTES)
        _check_complete(values, folder / TRAINER_FILE)
        for name in COUNTERS:
            setattr(trainer, name, -math.inf if values[name] is None else values[name])
        trainer.loss_sum.fill_(values["loss_sum"])
        trainer.history[:] = values["history"]
        _copy(self._changing_tensors(), files[NON_EMA])
        if values["has_best"]:
            trainer.best_state = {name: weights.clone() for name, weights in self.model.state_dict().items()}
            _copy(trainer.best_state, files[SINGLE_FILE])
        names = [name.removesuffix(".0") for name in self.rng_states()]
        set_rng_states({name: files[RNG_STATE][f"{name}.0"].full() for name in names}, self.device)

    @property
    def _trainer(self) -> TableTrainer:
        assert self.trainer is not None
        return self.trainer

    def _changing_tensors(self) -> dict[str, Tensor]:
        groups = self._trainer.tensors()
        named = {f"{group}.{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}
        return {name: tensor for name, tensor in named.items() if tensor.numel()}


def _check_complete(values: dict[str, Any], where: Path) -> None:
    """Another version of softlook may have written enough to predict, and too little to resume."""
    absent = [name for name in REQUIRED if name not in values]
    if absent:
        raise TrainingError(
            f"{where} lacks {', '.join(absent)}: another version of softlook wrote it. Resume with that version, "
            "or start a new run (--fresh); the saved model can still predict."
        )


def _meta(stored: dict[str, StoredTensor]) -> dict[str, Tensor]:
    return {name: tensor.meta() for name, tensor in stored.items()}


@torch.no_grad()
def _copy(tensors: dict[str, Tensor], stored: dict[str, StoredTensor]) -> None:
    for name in tensors.keys() & stored.keys():
        tensors[name].copy_(stored[name].full())
