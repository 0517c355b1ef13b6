"""A table's learner as it stands, in the checkpoints that every run has, and back to the bit.

Each checkpoint is what an estimator's `save` writes, with the best weights so far, and beside that what it takes to go
on: so `softlook.tabular.load` reads any of them.
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
from softlook.tabular.learning.fitting import Learner as TableLearner
from softlook.tabular.saving import LARGEST, write_about
from softlook.train.distributed import World
from softlook.train.learner import DICE, OPTIMIZER, RAW, Files, Learner
from softlook.train.optimizer import remembered, remind
from softlook.train.progress import set_dice
from softlook.weights.files import SINGLE
from softlook.weights.hollow import compare, own_tensors
from softlook.weights.parts import Stored
from softlook.weights.schema import read_json

LEARNING = "learning.json"
COUNTED = ("steps", "looked", "best", "mark", "waited", "seen", "judges", "remembers", "enough")
"""The plain values of a learner that change."""
KEPT = (*COUNTED, "total", "has_best", "history")
"""All that a checkpoint says of how far it is."""


def values_of(learner: TableLearner) -> dict[str, Any]:
    """How far it is, for JSON."""
    counted = {name: _finite(getattr(learner, name)) for name in COUNTED}
    return {**counted, "total": learner.total.item(), "has_best": bool(learner.kept), "history": learner.history}


def put_back(learner: TableLearner, values: dict[str, Any]) -> None:
    """The same, and back."""
    for name in COUNTED:
        setattr(learner, name, -math.inf if values[name] is None else values[name])
    learner.total.fill_(values["total"])
    learner.history[:] = values["history"]


@dataclass(frozen=True)
class Checkpointed(Learner):
    """A table's learner, as checkpoints know one."""

    table: TableLearner | None = None
    estimator: TableEstimator | None = None

    @staticmethod
    def of(table: TableLearner, estimator: TableEstimator) -> "Checkpointed":
        device = table.total.device
        scaler = torch.amp.GradScaler(enabled=False)
        return Checkpointed(table.model, table.optimizer, scaler, None, device, World(), table, estimator)

    def files(self) -> dict[str, dict[str, Tensor]]:
        best = self._table.answer()
        return {
            SINGLE: {name: best[name] for name in own_tensors(self.model)},
            OPTIMIZER: remembered(self.model, self.optimizer),
            RAW: {name: tensor.detach() for name, tensor in self._changing().items()},
        }

    def leave(self, folder: Path) -> None:
        assert self.estimator is not None
        write_about(self.estimator, folder, self._table.recipe, self._table.history, self._table.memory)
        (folder / LEARNING).write_text(json.dumps(values_of(self._table)) + "\n", encoding="utf-8")

    def needed(self) -> list[str]:
        return [SINGLE, OPTIMIZER, RAW, DICE]

    def put_back(self, files: Files, where: Path) -> None:
        table, own = self._table, own_tensors(self.model)
        compare(own, {name: stored.hollow() for name, stored in files[SINGLE].items()}, where / SINGLE)
        compare(self._changing(), {name: stored.hollow() for name, stored in files[RAW].items()}, where / RAW)
        try:
            remind(self.model, self.optimizer, files[OPTIMIZER])
        except WeightsError as fault:
            raise WeightsError(f"{where / OPTIMIZER}: {fault}") from None
        values = read_json(where / LEARNING, LARGEST)
        _refuse_others(values, where / LEARNING)
        put_back(table, values)
        _copy(self._changing(), files[RAW])
        if values["has_best"]:
            table.kept = {name: weights.clone() for name, weights in self.model.state_dict().items()}
            _copy(table.kept, files[SINGLE])
        set_dice({name: files[DICE][f"{name}.0"].whole() for name in self._dice()}, self.device)

    @property
    def _table(self) -> TableLearner:
        assert self.table is not None
        return self.table

    def _changing(self) -> dict[str, Tensor]:
        groups = self._table.tensors()
        named = {f"{group}.{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}
        return {name: tensor for name, tensor in named.items() if tensor.numel()}

    def _dice(self) -> list[str]:
        return [name.removesuffix(".0") for name in self.dice()]


def _refuse_others(values: dict[str, Any], where: Path) -> None:
    """What another version of softlook wrote may be enough to answer with, and too little to go on from."""
    absent = [name for name in KEPT if name not in values]
    if absent:
        raise TrainingError(
            f"{where} does not say {', '.join(absent)}: another version of softlook wrote it. Go on with that version, "
            "or begin anew under another name (--fresh); the model as it stands still answers."
        )


@torch.no_grad()
def _copy(places: dict[str, Tensor], stored: dict[str, Stored]) -> None:
    for name in places.keys() & stored.keys():
        places[name].copy_(stored[name].whole())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
