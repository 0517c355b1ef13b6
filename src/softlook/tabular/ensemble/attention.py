"""Attention models of an ensemble."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from softlook.tabular.ensemble.base_model import State
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import Target
from softlook.tabular.presets import Hyperparameters
from softlook.tabular.training.autosize import build_model
from softlook.tabular.training.retrieval import RowRetrieval
from softlook.tabular.training.trainer import predict_rows

RETRIEVAL = "retrieval."


@dataclass(frozen=True, eq=False)
class AttentionModel:
    """A TableTransformer and its retrieval: a base model."""

    model: nn.Module
    hparams: Hyperparameters
    target: Target
    retrieval: RowRetrieval | None = None

    kind: ClassVar[str] = "attention"

    def predict(self, rows: TableTensors) -> Tensor:
        """In the precision of the model."""
        dtype = next(self.model.parameters()).dtype
        retrieval = None if self.retrieval is None else self.retrieval.to(rows.numbers.device)
        rows = replace(rows, numbers=rows.numbers.to(dtype))
        return predict_rows(self.model, rows, self.target, retrieval)

    def to(self, device: torch.device) -> "AttentionModel":
        return replace(self, model=self.model.to(device))

    def state(self) -> State:
        values, tensors = (None, {}) if self.retrieval is None else self.retrieval.state()
        weights = {f"weights.{name}": tensor.cpu() for name, tensor in self.model.state_dict().items()}
        own = {f"{RETRIEVAL}{name}": tensor for name, tensor in tensors.items()}
        return {"hyperparameters": asdict(self.hparams), "retrieval": values}, weights | own

    @staticmethod
    def from_state(
        values: dict[str, Any], tensors: dict[str, Tensor], preprocessor: TablePreprocessor, target: Target
    ) -> "AttentionModel":
        hparams = Hyperparameters(**values["hyperparameters"])
        weights = {name.removeprefix("weights."): one for name, one in tensors.items() if name.startswith("weights.")}
        stored = {name.removeprefix(RETRIEVAL): one for name, one in tensors.items() if name.startswith(RETRIEVAL)}
        retrieval = None if values["retrieval"] is None else RowRetrieval(**stored, **values["retrieval"])
        model = build_model(hparams, preprocessor, None, target.outputs)
        model.load_state_dict(weights)
        return AttentionModel(model.eval(), hparams, target, retrieval)
