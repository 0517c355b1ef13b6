"""Scores of text classifiers: predictions, validation, and the mix with an n-gram classifier."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from softlook.base.tensors import supported_token_types
from softlook.data import LabeledText
from softlook.heads.classification import normalize_logits
from softlook.recipes.text.labeled_texts import ClassificationCollator, Item
from softlook.recipes.text.ngram_classifier import fit_ngrams
from softlook.recipes.text.ngram_mix import without_ngrams
from softlook.recipes.text.task import Sample
from softlook.train.batching.batches import LengthBucketedBatches
from softlook.train.batching.collate import to_device

EVAL_BATCH_SIZE = 64


@torch.no_grad()
def predict_logits(model: nn.Module, collator: ClassificationCollator, items: Sequence[Item]) -> torch.Tensor:
    """The output of the model for each item, in their order: logits, or numbers."""
    device = next(model.parameters()).device
    order = sorted(range(len(items)), key=lambda number: collator.length(items[number]))
    outputs: list[torch.Tensor] = []
    for start in range(0, len(order), EVAL_BATCH_SIZE):
        batch = to_device(collator([items[number] for number in order[start : start + EVAL_BATCH_SIZE]]), device)
        types = supported_token_types(model, batch.token_types)
        outputs.append(model(batch.ids, padding_mask=batch.padding_mask, token_types=types).float().cpu())
    return torch.cat(outputs)[torch.tensor(order).argsort()]


def joined_texts(examples: Sequence[LabeledText]) -> list[str]:
    """The text of each example; of a pair, both."""
    return [" | ".join(example.texts.values()) for example in examples]


class ClassificationEvaluator:
    """Validation scores; fits an n-gram classifier, if the model has one, and its mix with the attention.

    The mix is fitted in every evaluation, on the examples of that evaluation: two weights, which also calibrate
    probabilities. The n-gram classifier's part are the predictions that it made before it saw the validation data.
    """

    def __init__(self, collator: ClassificationCollator, items: Sequence[Item], monitor: str) -> None:
        self.order = torch.randperm(len(items), generator=torch.Generator().manual_seed(0)).tolist()
        self.collator, self.items, self.monitor = collator, [items[i] for i in self.order], monitor
        self.problem = collator.problem
        self.targets = self.problem.collate([target for *_, target in self.items])
        self.ngram_outputs: torch.Tensor | None = None
        self.attention_loss = math.inf

    def __call__(self, model: nn.Module, share: float = 1.0) -> dict[str, float]:
        """Scores on a share of the examples. The first one, lower is better, selects the best checkpoint."""
        count = max(math.ceil(share * len(self.items)), 1)
        return self._all_scores(self.predict(model, count), count)

    def _all_scores(self, outputs: torch.Tensor, count: int) -> dict[str, float]:
        scores = self._scores(outputs, count)
        scores |= {"attention_loss": self.attention_loss} if self.ngram_outputs is not None else {}
        return {"error": 1 - scores["accuracy"], **scores} if self.monitor == "accuracy" else scores

    def _scores(self, outputs: torch.Tensor, count: int) -> dict[str, float]:
        targets = self.targets[:count]
        return {"loss": self.problem.loss(outputs, targets), **self.problem.scores(outputs, targets)}

    def predict(self, model: nn.Module, count: int) -> torch.Tensor:
        """Outputs for the first `count` examples."""
        ngrams = getattr(model, "ngrams", None)
        if ngrams is None or self.ngram_outputs is None:
            return predict_logits(model, self.collator, self.items[:count])
        with without_ngrams(model):
            attention = normalize_logits(predict_logits(model, self.collator, self.items[:count]), self.problem.problem)
        own, targets = self.ngram_outputs[:count], self.targets[:count]
        self.attention_loss = self.problem.loss(attention, targets)
        weights = self.problem.mix_weights(attention, own, targets)
        ngrams.weights.copy_(torch.tensor(weights))
        return weights[0] * attention + weights[1] * own

    def validate(self, examples: Sequence[LabeledText], model: nn.Module) -> dict[str, Any]:
        """Scores on all examples, overall and of each class."""
        outputs, texts = self.predict(model, len(self.items)), joined_texts([examples[i] for i in self.order])
        scores = self._all_scores(outputs, len(self.items))
        return {**scores, "validation": self.problem.report(outputs, self.targets, texts)}

    def fit_ngrams(self, batches: LengthBucketedBatches[Any, Any], model: nn.Module, seconds: float) -> None:
        """Fit the model's n-gram classifier, if it has one, on the training data, within so many seconds."""
        ngrams = getattr(model, "ngrams", None)
        if ngrams is None:
            return
        device, size = ngrams.weight.device, EVAL_BATCH_SIZE
        train = (batches.collate([batches.items[i] for i in numbers]) for numbers in batches.epoch(0))
        valid = [self.collator(self.items[start : start + size]) for start in range(0, len(self.items), size)]
        fitted = fit_ngrams(ngrams.cpu(), train, valid, self.problem, seconds=seconds)
        self.ngram_outputs = normalize_logits(fitted, self.problem.problem)
        ngrams.to(device)

    def baselines(self, seconds: float) -> list[dict[str, Any]]:
        """Scores of the best constant prediction, and of a linear model on n-grams."""
        rows = [self.problem.baseline(self.targets)]
        if self.ngram_outputs is not None:
            rows.append((self.problem.linear_model, self.ngram_outputs))
        return [{"model": name, **self._scores(outputs, len(self.targets))} for name, outputs in rows]


def sample_predictions(
    collator: ClassificationCollator, valid: Sequence[LabeledText], model: nn.Module
) -> list[Sample]:
    """Predictions for a few validation texts."""
    shown = valid[:3]
    outputs = predict_logits(model, collator, collator.encode(shown))
    return [
        {
            "text": " | ".join(example.texts.values()),
            "prediction": collator.problem.describe(row),
            "label": example.label,
        }
        for example, row in zip(shown, outputs, strict=True)
    ]
