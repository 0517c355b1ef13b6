"""Problems of text classification: one class per text, several labels per text, or a number.

Each has its own targets, objective, scores and names of outputs. All of them are families of generalized linear
models, which `ngram_classifier` fits.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import DataError
from softlook.data import LabeledText
from softlook.data.labels import suggest_regression
from softlook.heads.classification import MULTI_LABEL_THRESHOLD, Problem
from softlook.recipes.config.schema import ClassificationRegConfig
from softlook.recipes.text.corpus import Corpus
from softlook.recipes.text.label_metrics import (
    multi_label_report,
    multi_label_scores,
    regression_report,
    regression_scores,
)
from softlook.recipes.text.metrics import classification_report, classification_scores
from softlook.recipes.text.ngram_classifier import fit_mix
from softlook.recipes.text.text_problem import TextProblem, count_labels, label_names
from softlook.train import objectives
from softlook.train.batching.collate import Ids
from softlook.train.train_step import Objective

IMBALANCE_RATIO = 4
"""Ratio of the largest to the smallest class from which a warning is logged."""


class SingleLabel(TextProblem):
    """One class per text: softmax and cross entropy."""

    problem: ClassVar[Problem] = "single_label"
    linear_model = "TF-IDF + logistic regression"

    @classmethod
    def fit(cls, corpus: Corpus[LabeledText], valid: Sequence[LabeledText]) -> Self:
        counts = count_labels((example.label,) for example in corpus.train)
        held_out = ((example.label,) for example in valid)
        names = label_names(counts, held_out, is_split=corpus.train.split is not None)
        if len(names) < 2:
            raise DataError(f"all examples have the label {names[0]!r:.40}", help="name the label column: --label")
        return cls(names, counts)

    @property
    def messages(self) -> list[str]:
        hint = suggest_regression(self.names)
        return [*describe_balance(self.counts), *([f"{hint[0].upper()}{hint[1:]}."] if hint else [])]

    def target(self, example: LabeledText) -> int:
        return self.index.get(example.label, 0)

    def to_ids(self, target: int) -> Ids:
        return [target]

    def from_ids(self, ids: Ids) -> int:
        return ids[0]

    def collate(self, targets: Sequence[int]) -> Tensor:
        return torch.tensor(targets)

    def objective(self, reg: ClassificationRegConfig) -> Objective:
        return objectives.classification(reg.label_smoothing, reg.rdrop_alpha)

    def loss(self, outputs: Tensor, targets: Tensor) -> float:
        return F.cross_entropy(outputs, targets).item()

    def scores(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return classification_scores(outputs.argmax(-1).tolist(), targets.tolist(), len(self.names))

    def report(self, outputs: Tensor, targets: Tensor, texts: Sequence[str]) -> dict[str, Any]:
        return classification_report(outputs.softmax(-1), targets.tolist(), self.names, texts)

    def baseline(self, targets: Tensor) -> tuple[str, Tensor]:
        frequencies = torch.bincount(targets, minlength=len(self.names)) / max(len(targets), 1)
        return "most common class", frequencies.clamp(min=1e-9).log().expand(len(targets), -1)

    def mix_weights(self, outputs: Tensor, own: Tensor, targets: Tensor) -> tuple[float, float]:
        return fit_mix(outputs, own, targets)

    def describe(self, output: Tensor) -> str:
        probability, number = output.softmax(-1).max(-1)
        return f"{self.names[int(number)]} ({probability:.0%})"

    def responses(self, targets: Tensor) -> Tensor:
        return F.one_hot(targets, len(self.names)).float()

    def means(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    def negative_log_likelihood(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets)

    def selection_error(self, logits: Tensor, targets: Tensor) -> float:
        """The share of texts in the wrong class, and a little of the loss, which breaks ties."""
        wrong = (logits.argmax(-1) != targets).float().mean().item()
        return wrong + 0.1 * F.cross_entropy(logits, targets).item()


class MultiLabel(TextProblem):
    """Any number of labels per text: a sigmoid and binary cross entropy for each label."""

    problem: ClassVar[Problem] = "multi_label"
    linear_model = "TF-IDF + one-vs-rest logistic regression"

    @classmethod
    def fit(cls, corpus: Corpus[LabeledText], valid: Sequence[LabeledText]) -> Self:
        counts = count_labels(example.labels or () for example in corpus.train)
        held_out = (example.labels or () for example in valid)
        names = label_names(counts, held_out, is_split=corpus.train.split is not None)
        if not names:
            raise DataError("no example has a label", help="name the label column: --label")
        return cls(names, counts)

    @property
    def messages(self) -> list[str]:
        if not self.counts:
            return []
        (common, most), (rare, least) = self.counts.most_common()[0], self.counts.most_common()[-1]
        range_ = f"the most frequent {common!r:.40} ({most:,} examples), the rarest {rare!r:.40} ({least:,})"
        return [f"{len(self.names)} labels, {range_}."]

    def target(self, example: LabeledText) -> list[int]:
        return [self.index[label] for label in example.labels or () if label in self.index]

    def to_ids(self, target: list[int]) -> Ids:
        return target

    def from_ids(self, ids: Ids) -> Ids:
        return ids

    def collate(self, targets: Sequence[Ids]) -> Tensor:
        rows = torch.zeros(len(targets), len(self.names))
        for row, target in zip(rows, targets, strict=True):
            row[torch.tensor(target, dtype=torch.long)] = 1.0
        return rows

    def objective(self, reg: ClassificationRegConfig) -> Objective:
        return objectives.multi_label_classification(reg.rdrop_alpha)

    def loss(self, outputs: Tensor, targets: Tensor) -> float:
        return F.binary_cross_entropy_with_logits(outputs, targets).item()

    def scores(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return multi_label_scores(outputs.sigmoid() > MULTI_LABEL_THRESHOLD, targets)

    def report(self, outputs: Tensor, targets: Tensor, texts: Sequence[str]) -> dict[str, Any]:
        return multi_label_report(outputs.sigmoid(), targets, self.names, MULTI_LABEL_THRESHOLD)

    def baseline(self, targets: Tensor) -> tuple[str, Tensor]:
        return "label frequencies", targets.mean(0).clamp(1e-6, 1 - 1e-6).logit().expand(len(targets), -1)

    def mix_weights(self, outputs: Tensor, own: Tensor, targets: Tensor) -> tuple[float, float]:
        return fit_mix(outputs, own, targets, F.binary_cross_entropy_with_logits)

    def describe(self, output: Tensor) -> str:
        found = [(p, name) for p, name in zip(output.sigmoid().tolist(), self.names, strict=True)]
        shown = sorted((one for one in found if one[0] > MULTI_LABEL_THRESHOLD), reverse=True)
        return ", ".join(f"{name} ({probability:.0%})" for probability, name in shown) or "no label"

    def responses(self, targets: Tensor) -> Tensor:
        return targets

    def means(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def negative_log_likelihood(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(targets)


class Regression(TextProblem):
    """A number per text: squared error in units of the training data's standard deviation.

    Its linear model is ridge regression on standardized numbers.
    """

    problem: ClassVar[Problem] = "regression"
    linear_model = "TF-IDF + ridge regression"
    regularization = (0.3, 1.0, 3.0, 10.0, 30.0)

    @classmethod
    def fit(cls, corpus: Corpus[LabeledText], valid: Sequence[LabeledText]) -> Self:
        values = torch.tensor([example.value for example in corpus.train], dtype=torch.float64)
        fitted = cls(["value"])
        fitted.shift, fitted.scale = values.mean().item(), values.std(correction=0).item()
        if not fitted.scale:
            raise DataError(f"all examples have the number {fitted.shift:g}", help="name the label column: --label")
        return fitted

    @property
    def messages(self) -> list[str]:
        return [f"Numbers with mean {self.shift:.4g} and standard deviation {self.scale:.4g}."]

    @property
    def num_ids(self) -> int:
        return 256

    def target(self, example: LabeledText) -> float:
        return example.value or 0.0

    def to_ids(self, target: float) -> Ids:
        """The bytes of a 32-bit float."""
        return list(struct.pack("<f", target))

    def from_ids(self, ids: Ids) -> float:
        return struct.unpack("<f", bytes(list(ids)))[0]

    def collate(self, targets: Sequence[float]) -> Tensor:
        return torch.tensor(targets)[:, None]

    def check(self, examples: Sequence[LabeledText]) -> None:
        """Any number may be predicted."""

    def objective(self, reg: ClassificationRegConfig) -> Objective:
        return objectives.regression(self.scale, reg.rdrop_alpha)

    def loss(self, outputs: Tensor, targets: Tensor) -> float:
        return ((outputs - targets) / self.scale).square().mean().item()

    def scores(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return regression_scores(outputs[:, 0], targets[:, 0])

    def report(self, outputs: Tensor, targets: Tensor, texts: Sequence[str]) -> dict[str, Any]:
        return regression_report(outputs[:, 0], targets[:, 0], texts)

    def baseline(self, targets: Tensor) -> tuple[str, Tensor]:
        return "mean", targets.mean(0).expand(len(targets), -1)

    def mix_weights(self, outputs: Tensor, own: Tensor, targets: Tensor) -> tuple[float, float]:
        """Two weights whose sum is 1, in closed form: the sum then has the mean of the numbers too."""
        difference = (outputs - own).double()
        weight = (difference * (targets - own)).sum() / difference.square().sum().clamp(min=1e-12)
        share = weight.clamp(0, 1).item()
        return share, 1 - share

    def describe(self, output: Tensor) -> str:
        return f"{output[0]:.4g}"

    def responses(self, targets: Tensor) -> Tensor:
        return (targets - self.shift) / self.scale

    def means(self, logits: Tensor) -> Tensor:
        return logits

    def negative_log_likelihood(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Up to a constant, that of a normal distribution with a standard deviation of 1."""
        return (logits - self.responses(targets)).square().mean() / 2


PROBLEMS: dict[Problem | None, type[TextProblem]] = {
    None: SingleLabel,
    **{cls.problem: cls for cls in (SingleLabel, MultiLabel, Regression)},
}


def describe_balance(counts: Counter[str]) -> list[str]:
    """The number of classes and, if they differ much in size, a hint."""
    (largest, most), (smallest, least) = counts.most_common()[0], counts.most_common()[-1]
    message = f"{len(counts)} classes, the largest {largest!r:.40} ({most / counts.total():.0%})."
    if most <= IMBALANCE_RATIO * least:
        return [message]
    return [message, f"Imbalanced: {smallest!r:.40} has only {least:,} examples; prefer f1 and mcc to accuracy."]
