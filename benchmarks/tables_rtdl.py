"""FT-Transformer by its authors' package, at its defaults, trained as the paper has it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
import torch
from sklearn.preprocessing import OrdinalEncoder, QuantileTransformer
from torch import Tensor
from torch.nn import functional as F

from benchmarks.tables_data import Table, TableTensors
from benchmarks.tables_peers import Fitted, Terms

PATIENCE, MANY = 16, 50_000
NOISE = 1e-3


def rtdl(table: Table, terms: Terms) -> Fitted:
    """AdamW at 1e-4, 256 rows a step (1,024 of a large table), until 16 epochs bring nothing."""
    import rtdl_revisiting_models as library  # noqa: PLC0415  (not everyone has it)

    torch.manual_seed(terms.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reading = TablePreprocessor.columns(table, terms.seed)
    model = library.FTTransformer(
        n_cont_features=reading.numbers,
        cat_cardinalities=reading.cardinalities,
        d_out=table.classes or 1,
        **library.FTTransformer.get_default_kwargs(),
    ).to(device)
    training = Training(model, model.make_default_optimizer(), reading, device)
    epochs = training.train(table, terms.clock())
    return Fitted(training.predict_rows, {"epochs": epochs, "version": library.__version__})


@dataclass(frozen=True)
class TablePreprocessor:
    """From a frame to what the model takes, as the paper prepares it."""

    words: list[str]
    codes: OrdinalEncoder
    scale: QuantileTransformer
    filled: np.ndarray
    mean: float
    spread: float

    @staticmethod
    def columns(table: Table, seed: int) -> "Reading":
        """Quantiles to a normal distribution, learned with a little noise; what is wanted is standardised."""
        frame, words = table.train.frame, table.strings
        numbers = frame.drop(columns=words).to_numpy(dtype=np.float64)
        filled = np.nanmedian(numbers, axis=0) if numbers.size else np.zeros(0)
        numbers = np.where(np.isnan(numbers), filled, numbers)
        noise = NOISE / np.maximum(numbers.std(0), NOISE) * np.random.default_rng(seed).normal(size=numbers.shape)
        count = max(min(len(frame) // 30, 1000), 10)
        scale = QuantileTransformer(n_quantiles=count, output_distribution="normal", subsample=10**9, random_state=seed)
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
        if words:
            codes.fit(frame[words].astype(object))
        targets = table.train.target
        mean, spread = (0.0, 1.0) if table.classes else (float(targets.mean()), float(targets.std()))
        return TablePreprocessor(words, codes, scale.fit(numbers + noise), filled, mean, spread)

    @property
    def numbers(self) -> int:
        return len(self.filled)

    @property
    def cardinalities(self) -> list[int]:
        """Codes of every category; 0 is for what is missing or was never seen."""
        return [len(values) + 1 for values in self.codes.categories_] if self.strings else []

    def read(self, frame: pandas.DataFrame, device: torch.device) -> tuple[Tensor, Tensor | None]:
        numbers = frame.drop(columns=self.strings).to_numpy(dtype=np.float64)
        numbers = self.scale.transform(np.where(np.isnan(numbers), self.filled, numbers))
        codes = self.codes.transform(frame[self.strings].astype(object)) + 1 if self.strings else None
        categories = None if codes is None else torch.tensor(codes, dtype=torch.long, device=device)
        return torch.tensor(numbers, dtype=torch.float32, device=device), categories


@dataclass(frozen=True)
class Training:
    """A model and how it learns."""

    model: Any
    optimizer: torch.optim.Optimizer
    reading: TablePreprocessor
    device: torch.device

    def train(self, table: Table, is_up: Callable[[], bool]) -> int:
        """Until patience or time is at its end; keeps the best weights, and gives how many epochs there were."""
        rows, size = self._to_rows(table.train), 256 if len(table.train) < MANY else 1024
        best, kept, waited, epochs = -math.inf, {}, 0, 0
        while waited < PATIENCE and not is_up():
            self._epoch(*rows, size, is_up)
            epochs, waited = epochs + 1, waited + 1
            value = self._worth(table, table.eval_set)
            if value > best:
                best, waited = value, 0
                kept = {name: weights.clone() for name, weights in self.model.state_dict().items()}
        self.model.load_state_dict(kept)
        return epochs

    def _epoch(
        self, numbers: Tensor, categories: Tensor | None, targets: Tensor, size: int, is_up: Callable[[], bool]
    ) -> None:
        self.model.train()
        for which in torch.randperm(len(targets), device=self.device).split(size):
            said = self.model(numbers[which], None if categories is None else categories[which])
            self.optimizer.zero_grad()
            self._loss(said, targets[which]).backward()
            self.optimizer.step()
            if is_up():
                break

    def predict_rows(self, frame: pandas.DataFrame) -> np.ndarray:
        numbers, categories = self.reading.read(frame, self.device)
        self.model.eval()
        with torch.inference_mode():
            parts = [
                self.model(numbers[at : at + 4096], None if categories is None else categories[at : at + 4096])
                for at in range(0, len(numbers), 4096)
            ]
        said = torch.cat(parts).double()
        if said.shape[1] == 1:
            return (said[:, 0] * self.reading.std + self.reading.mean).cpu().numpy()
        return said.softmax(1).cpu().numpy()

    def _to_rows(self, rows: TableTensors) -> tuple[Tensor, Tensor | None, Tensor]:
        targets = torch.tensor(rows.target, device=self.device)
        if targets.is_floating_point():
            targets = ((targets - self.reading.mean) / self.reading.std).float()
        return *self.reading.read(rows.frame, self.device), targets

    def _loss(self, said: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(said[:, 0], targets) if targets.is_floating_point() else F.cross_entropy(said, targets)

    def _worth(self, table: Table, rows: TableTensors) -> float:
        """Accuracy, or the squared error turned round: the paper stops by these."""
        predict_rows = self.predict_rows(rows.frame)
        if table.classes:
            return float((predict_rows.argmax(1) == rows.target).mean())
        return -float(np.mean((predict_rows - rows.target) ** 2))
