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

from benchmarks.tables_data import Rows, Table
from benchmarks.tables_peers import Fitted, Terms

PATIENCE, MANY = 16, 50_000
NOISE = 1e-3


def rtdl(table: Table, terms: Terms) -> Fitted:
    """AdamW at 1e-4, 256 rows a step (1,024 of a large table), until 16 epochs bring nothing."""
    import rtdl_revisiting_models as library  # noqa: PLC0415  (not everyone has it)

    torch.manual_seed(terms.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reading = Reading.learned(table, terms.seed)
    model = library.FTTransformer(
        n_cont_features=reading.numbers,
        cat_cardinalities=reading.sizes,
        d_out=table.classes or 1,
        **library.FTTransformer.get_default_kwargs(),
    ).to(device)
    training = Training(model, model.make_default_optimizer(), reading, device)
    epochs = training.learn(table, terms.clock())
    return Fitted(training.answers, {"epochs": epochs, "version": library.__version__})


@dataclass(frozen=True)
class Reading:
    """From a frame to what the model takes, as the paper prepares it."""

    words: list[str]
    codes: OrdinalEncoder
    scale: QuantileTransformer
    filled: np.ndarray
    mean: float
    spread: float

    @staticmethod
    def learned(table: Table, seed: int) -> "Reading":
        """Quantiles to a normal distribution, learned with a little noise; what is wanted is standardised."""
        frame, words = table.train.frame, table.words
        numbers = frame.drop(columns=words).to_numpy(dtype=np.float64)
        filled = np.nanmedian(numbers, axis=0) if numbers.size else np.zeros(0)
        numbers = np.where(np.isnan(numbers), filled, numbers)
        noise = NOISE / np.maximum(numbers.std(0), NOISE) * np.random.default_rng(seed).normal(size=numbers.shape)
        count = max(min(len(frame) // 30, 1000), 10)
        scale = QuantileTransformer(n_quantiles=count, output_distribution="normal", subsample=10**9, random_state=seed)
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
        if words:
            codes.fit(frame[words].astype(object))
        wanted = table.train.wanted
        mean, spread = (0.0, 1.0) if table.classes else (float(wanted.mean()), float(wanted.std()))
        return Reading(words, codes, scale.fit(numbers + noise), filled, mean, spread)

    @property
    def numbers(self) -> int:
        return len(self.filled)

    @property
    def sizes(self) -> list[int]:
        """Codes of every category; 0 is for what is missing or was never seen."""
        return [len(values) + 1 for values in self.codes.categories_] if self.words else []

    def read(self, frame: pandas.DataFrame, device: torch.device) -> tuple[Tensor, Tensor | None]:
        numbers = frame.drop(columns=self.words).to_numpy(dtype=np.float64)
        numbers = self.scale.transform(np.where(np.isnan(numbers), self.filled, numbers))
        codes = self.codes.transform(frame[self.words].astype(object)) + 1 if self.words else None
        categories = None if codes is None else torch.tensor(codes, dtype=torch.long, device=device)
        return torch.tensor(numbers, dtype=torch.float32, device=device), categories


@dataclass(frozen=True)
class Training:
    """A model and how it learns."""

    model: Any
    optimizer: torch.optim.Optimizer
    reading: Reading
    device: torch.device

    def learn(self, table: Table, is_up: Callable[[], bool]) -> int:
        """Until patience or time is at its end; keeps the best weights, and gives how many epochs there were."""
        rows, size = self._rows(table.train), 256 if len(table.train) < MANY else 1024
        best, kept, waited, epochs = -math.inf, {}, 0, 0
        while waited < PATIENCE and not is_up():
            self._epoch(*rows, size, is_up)
            epochs, waited = epochs + 1, waited + 1
            worth = self._worth(table, table.validation)
            if worth > best:
                best, waited = worth, 0
                kept = {name: weights.clone() for name, weights in self.model.state_dict().items()}
        self.model.load_state_dict(kept)
        return epochs

    def _epoch(
        self, numbers: Tensor, categories: Tensor | None, wanted: Tensor, size: int, is_up: Callable[[], bool]
    ) -> None:
        self.model.train()
        for which in torch.randperm(len(wanted), device=self.device).split(size):
            said = self.model(numbers[which], None if categories is None else categories[which])
            self.optimizer.zero_grad()
            self._loss(said, wanted[which]).backward()
            self.optimizer.step()
            if is_up():
                break

    def answers(self, frame: pandas.DataFrame) -> np.ndarray:
        numbers, categories = self.reading.read(frame, self.device)
        self.model.eval()
        with torch.inference_mode():
            parts = [
                self.model(numbers[at : at + 4096], None if categories is None else categories[at : at + 4096])
                for at in range(0, len(numbers), 4096)
            ]
        said = torch.cat(parts).double()
        if said.shape[1] == 1:
            return (said[:, 0] * self.reading.spread + self.reading.mean).cpu().numpy()
        return said.softmax(1).cpu().numpy()

    def _rows(self, rows: Rows) -> tuple[Tensor, Tensor | None, Tensor]:
        wanted = torch.tensor(rows.wanted, device=self.device)
        if wanted.is_floating_point():
            wanted = ((wanted - self.reading.mean) / self.reading.spread).float()
        return *self.reading.read(rows.frame, self.device), wanted

    def _loss(self, said: Tensor, wanted: Tensor) -> Tensor:
        return F.mse_loss(said[:, 0], wanted) if wanted.is_floating_point() else F.cross_entropy(said, wanted)

    def _worth(self, table: Table, rows: Rows) -> float:
        """Accuracy, or the squared error turned round: the paper stops by these."""
        answers = self.answers(rows.frame)
        if table.classes:
            return float((answers.argmax(1) == rows.wanted).mean())
        return -float(np.mean((answers - rows.wanted) ** 2))
