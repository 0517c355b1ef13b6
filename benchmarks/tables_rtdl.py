"""FT-Transformer of its authors' package with its defaults, trained as in the paper."""

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

from benchmarks.tables_baselines import FitParams, FittedModel
from benchmarks.tables_data import Dataset, Split

PATIENCE = 16
LARGE_ROWS, BATCH_SIZE, LARGE_BATCH_SIZE, EVAL_BATCH_SIZE = 50_000, 256, 1024, 4096
QUANTILE_NOISE = 1e-3


def rtdl(dataset: Dataset, params: FitParams) -> FittedModel:
    """AdamW with learning rate 1e-4, batches of 256 rows (1,024 of a large dataset), a patience of 16 epochs."""
    import rtdl_revisiting_models as library  # noqa: PLC0415  (optional)

    torch.manual_seed(params.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    preprocessor = Preprocessor.fit(dataset, params.seed)
    model = library.FTTransformer(
        n_cont_features=preprocessor.n_numeric,
        cat_cardinalities=preprocessor.cardinalities,
        d_out=dataset.classes or 1,
        **library.FTTransformer.get_default_kwargs(),
    ).to(device)
    trainer = Trainer(model, model.make_default_optimizer(), preprocessor, device)
    epochs = trainer.train(dataset, params.start_timer())
    return FittedModel(trainer.predict, {"epochs": epochs, "version": library.__version__})


@dataclass(frozen=True)
class Preprocessor:
    """The paper's preprocessing: quantile-transformed numbers, category codes and standardized targets."""

    categorical: list[str]
    encoder: OrdinalEncoder
    scaler: QuantileTransformer
    medians: np.ndarray
    target_mean: float
    target_std: float

    @staticmethod
    def fit(dataset: Dataset, seed: int) -> "Preprocessor":
        """Fit on the training rows; the quantiles with a little noise, as in the paper."""
        frame, categorical = dataset.train.frame, dataset.categorical_columns
        numbers = frame.drop(columns=categorical).to_numpy(dtype=np.float64)
        medians = np.nanmedian(numbers, axis=0) if numbers.size else np.zeros(0)
        numbers = np.where(np.isnan(numbers), medians, numbers)
        noise_std = QUANTILE_NOISE / np.maximum(numbers.std(0), QUANTILE_NOISE)
        noise = noise_std * np.random.default_rng(seed).normal(size=numbers.shape)
        n_quantiles = max(min(len(frame) // 30, 1000), 10)
        scaler = QuantileTransformer(
            n_quantiles=n_quantiles, output_distribution="normal", subsample=10**9, random_state=seed
        )
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
        if categorical:
            encoder.fit(frame[categorical].astype(object))
        targets = dataset.train.targets
        mean, std = (0.0, 1.0) if dataset.classes else (float(targets.mean()), float(targets.std()))
        return Preprocessor(categorical, encoder, scaler.fit(numbers + noise), medians, mean, std)

    @property
    def n_numeric(self) -> int:
        return len(self.medians)

    @property
    def cardinalities(self) -> list[int]:
        """Number of codes of every category; 0 is for missing and unseen values."""
        return [len(values) + 1 for values in self.encoder.categories_] if self.categorical else []

    def transform(self, frame: pandas.DataFrame, device: torch.device) -> tuple[Tensor, Tensor | None]:
        numbers = frame.drop(columns=self.categorical).to_numpy(dtype=np.float64)
        numbers = self.scaler.transform(np.where(np.isnan(numbers), self.medians, numbers))
        codes = self.encoder.transform(frame[self.categorical].astype(object)) + 1 if self.categorical else None
        categories = None if codes is None else torch.tensor(codes, dtype=torch.long, device=device)
        return torch.tensor(numbers, dtype=torch.float32, device=device), categories


@dataclass(frozen=True)
class Trainer:
    """Training with early stopping, and prediction."""

    model: Any
    optimizer: torch.optim.Optimizer
    preprocessor: Preprocessor
    device: torch.device

    def train(self, dataset: Dataset, time_is_up: Callable[[], bool]) -> int:
        """Train until patience or time ends and restore the best weights; returns the number of epochs."""
        tensors = self._to_tensors(dataset.train)
        batch_size = BATCH_SIZE if len(dataset.train) < LARGE_ROWS else LARGE_BATCH_SIZE
        best_score, best_weights, waited, epochs = -math.inf, {}, 0, 0
        while waited < PATIENCE and not time_is_up():
            self._epoch(*tensors, batch_size, time_is_up)
            epochs, waited = epochs + 1, waited + 1
            score = self._score(dataset, dataset.validation)
            if score > best_score:
                best_score, waited = score, 0
                best_weights = {name: weights.clone() for name, weights in self.model.state_dict().items()}
        self.model.load_state_dict(best_weights)
        return epochs

    def _epoch(
        self,
        numbers: Tensor,
        categories: Tensor | None,
        targets: Tensor,
        batch_size: int,
        time_is_up: Callable[[], bool],
    ) -> None:
        self.model.train()
        for rows in torch.randperm(len(targets), device=self.device).split(batch_size):
            outputs = self.model(numbers[rows], None if categories is None else categories[rows])
            self.optimizer.zero_grad()
            self._loss(outputs, targets[rows]).backward()
            self.optimizer.step()
            if time_is_up():
                break

    def predict(self, frame: pandas.DataFrame) -> np.ndarray:
        numbers, categories = self.preprocessor.transform(frame, self.device)
        self.model.eval()
        batches = [slice(start, start + EVAL_BATCH_SIZE) for start in range(0, len(numbers), EVAL_BATCH_SIZE)]
        with torch.inference_mode():
            outputs = [self.model(numbers[rows], None if categories is None else categories[rows]) for rows in batches]
        logits = torch.cat(outputs).double()
        if logits.shape[1] == 1:
            numbers = logits[:, 0] * self.preprocessor.target_std + self.preprocessor.target_mean
            return numbers.cpu().numpy()
        return logits.softmax(1).cpu().numpy()

    def _to_tensors(self, split: Split) -> tuple[Tensor, Tensor | None, Tensor]:
        targets = torch.tensor(split.targets, device=self.device)
        if targets.is_floating_point():
            targets = ((targets - self.preprocessor.target_mean) / self.preprocessor.target_std).float()
        return *self.preprocessor.transform(split.frame, self.device), targets

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs[:, 0], targets) if targets.is_floating_point() else F.cross_entropy(outputs, targets)

    def _score(self, dataset: Dataset, split: Split) -> float:
        """Accuracy, or the negative squared error: the early stopping metrics of the paper."""
        predictions = self.predict(split.frame)
        if dataset.classes:
            return float((predictions.argmax(1) == split.targets).mean())
        return -float(np.mean((predictions - split.targets) ** 2))
