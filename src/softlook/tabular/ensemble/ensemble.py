"""Weighted ensemble of cross-fitted models."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from softlook.tabular.ensemble.attention import AttentionModel
from softlook.tabular.ensemble.base_model import BaseModel
from softlook.tabular.ensemble.calibration import apply_temperature
from softlook.tabular.ensemble.linear import LinearModel
from softlook.tabular.ensemble.trees import TreesModel
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.table_encoder import select_prefix
from softlook.tabular.preprocessing.target import Target


@dataclass(frozen=True, eq=False)
class CrossFittedModel:
    """The models of the folds, whose predictions are averaged."""

    name: str
    folds: tuple[BaseModel, ...]
    weight: float = 0.0
    """In the ensemble."""

    def predict(self, rows: TableTensors) -> Tensor:
        """(N, C): the mean of the folds."""
        return torch.stack([model.predict(rows) for model in self.folds]).mean(0)


@dataclass(frozen=True, eq=False)
class TableEnsemble:
    """Predicts the weighted mean of cross-fitted models, with calibrated probabilities."""

    models: tuple[CrossFittedModel, ...]
    """Those with a positive weight."""
    temperature: float
    leaderboard: list[dict[str, Any]]
    """Name, kind, weight, out-of-fold loss, folds and seconds of every model that was tried, and of the ensemble."""
    predictions: Tensor | None = None
    """(N, C) calibrated out-of-fold predictions of `rows`: after `fit`, of those that a single model would be validated
    on. Not saved."""
    targets: Tensor | None = None
    rows: Tensor | None = None
    """(N,) indices into the rows of the fit; those of an `eval_set` are the last ones."""

    def predict(self, rows: TableTensors) -> Tensor:
        """(N, C) in double precision."""
        total = sum(model.weight * model.predict(rows) for model in self.models)
        assert isinstance(total, Tensor)
        return apply_temperature(total, self.temperature)

    def map_models(self, change: Any) -> "TableEnsemble":
        """The ensemble with every model of every fold changed."""
        models = [replace(model, folds=tuple(map(change, model.folds))) for model in self.models]
        return replace(self, models=tuple(models))

    def select_rows(self, mask: Tensor) -> "TableEnsemble":
        """The ensemble with the out-of-fold predictions of some rows of the fit, by a mask (N,)."""
        assert self.predictions is not None and self.targets is not None and self.rows is not None
        kept = mask[self.rows]
        predictions, targets, rows = self.predictions[kept], self.targets[kept], self.rows[kept]
        return replace(self, predictions=predictions, targets=targets, rows=rows)

    def to(self, device: torch.device) -> "TableEnsemble":
        return self.map_models(lambda model: model.to(device))

    def double(self) -> "TableEnsemble":
        """The ensemble with attention models in double precision: copies, unless they are already."""
        return self.map_models(_double)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """JSON values and tensors from which `from_state` restores the ensemble."""
        values, tensors = [], dict[str, Tensor]()
        for number, model in enumerate(self.models):
            states = [fold.state() for fold in model.folds]
            kinds = [fold.kind for fold in model.folds]
            folds = [{"kind": kind} | state[0] for kind, state in zip(kinds, states, strict=True)]
            values.append({"name": model.name, "weight": model.weight, "folds": folds})
            for fold, (_, own) in enumerate(states):
                tensors |= {f"{number}.{fold}.{name}": tensor for name, tensor in own.items()}
        return {"models": values, "temperature": self.temperature, "leaderboard": self.leaderboard}, tensors

    @staticmethod
    def from_state(
        values: dict[str, Any], tensors: dict[str, Tensor], preprocessor: TablePreprocessor, target: Target
    ) -> "TableEnsemble":
        def restore(number: int, fold: int, state: dict[str, Any]) -> BaseModel:
            own = select_prefix(f"{number}.{fold}.", tensors)
            state = dict(state)
            kind = state.pop("kind")
            if kind == AttentionModel.kind:
                return AttentionModel.from_state(state, own, preprocessor, target)
            return {TreesModel.kind: TreesModel, LinearModel.kind: LinearModel}[kind].from_state(state, own)

        models = [
            CrossFittedModel(
                one["name"],
                tuple(restore(number, fold, state) for fold, state in enumerate(one["folds"])),
                one["weight"],
            )
            for number, one in enumerate(values["models"])
        ]
        return TableEnsemble(tuple(models), values["temperature"], values["leaderboard"])


def _double(model: BaseModel) -> BaseModel:
    if not isinstance(model, AttentionModel) or next(model.model.parameters()).dtype == torch.double:
        return model
    return replace(model, model=copy.deepcopy(model.model).double())
