"""Linear probing: the last layer is fitted before fine-tuning."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from softlook.blocks.scaled_linear import ScaledLinear
from softlook.models import Bert, BertConfig
from softlook.recipes.text.classification_scores import predict_batch
from softlook.recipes.text.linear_probe import encode, fit_head
from softlook.recipes.text.problems import MultiLabel, Regression, SingleLabel
from softlook.train.batching.collate import ClassificationBatch
from softlook.weights.meta import unique_tensors


def encoder(classes: int = 2) -> Bert:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 20, "context": 8, "dim": 32, "depth": 1, "heads": 2}
    return Bert(BertConfig(**sizes, head="classification", classes=classes, pooling="mean", dropout=0.0))


def batches(model: Bert, labels: torch.Tensor, ids: torch.Tensor) -> Iterator[ClassificationBatch]:
    for part, label in zip(ids.split(16), labels.split(16), strict=True):
        yield ClassificationBatch(part, torch.ones_like(part, dtype=torch.bool), torch.zeros_like(part), label)


def random_ids(count: int = 64) -> torch.Tensor:
    return torch.randint(0, 20, (count, 8), generator=torch.Generator().manual_seed(1))


def test_the_last_layer_separates_the_classes_and_the_encoder_stays_the_same() -> None:
    model, ids = encoder(), random_ids()
    labels = (ids == 3).any(1).long()
    before = {name: tensor.clone() for name, tensor in unique_tensors(model).items()}
    assert fit_head(model, batches(model, labels, ids), predict_batch, SingleLabel(["no", "yes"]), seconds=60.0) == 64
    changed = {name for name, tensor in unique_tensors(model).items() if not torch.equal(tensor, before[name])}
    assert changed == {"head.to_classes.weight", "head.to_classes.bias"}
    assert (model.eval()(ids).argmax(-1) == labels).float().mean() > 0.9
    assert model.training is False


def test_several_labels_and_numbers_are_fitted_too() -> None:
    ids = random_ids()
    labels = torch.stack([(ids == 3).any(1), (ids == 5).any(1)], 1).float()
    model = encoder()
    fit_head(model, batches(model, labels, ids), predict_batch, MultiLabel(["three", "five"]), seconds=60.0)
    assert ((model.eval()(ids) > 0).float() == labels).float().mean() > 0.9
    problem, model = Regression(["value"]), encoder(classes=1)
    problem.scale, problem.shift = 50.0, 1000.0
    model.head.to_classes = ScaledLinear(model.head.to_classes, scale=50.0, shift=1000.0)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    values = 1000 + 50 * (ids == 3).sum(1, keepdim=True).float()
    fit_head(model, batches(model, values, ids), predict_batch, problem, seconds=60.0)
    assert (model.eval()(ids) - values).abs().mean() < 20


def test_the_time_limit_bounds_the_texts_that_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr("softlook.recipes.text.linear_probe.time.monotonic", lambda: float(next(now)))
    model, ids = encoder(), random_ids()
    features, targets = encode(model, batches(model, torch.zeros(64).long(), ids), predict_batch, seconds=1.5)
    assert features.shape == (32, 32) and targets.shape == (32,)


def test_one_text_is_enough() -> None:
    model, ids = encoder(), random_ids(1)
    fit_head(model, batches(model, torch.ones(1).long(), ids), predict_batch, SingleLabel(["a", "b"]), seconds=1.0)
    assert model(ids).isfinite().all()
