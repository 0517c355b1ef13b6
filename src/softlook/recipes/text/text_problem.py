"""`TextProblem`: what the labels of texts and the logits of a model stand for."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import DataError
from softlook.data import LabeledText
from softlook.heads.classification import Problem
from softlook.recipes.config.schema import ClassificationRegConfig
from softlook.recipes.text.corpus import Corpus
from softlook.train.batching.collate import Ids
from softlook.train.train_step import Objective

MAX_CLASSES = 100_000
"""Number of distinct labels above which a column is rejected."""


class TextProblem(ABC):
    """What the labels of texts and the logits of a model stand for.

    A target is the label of one text as a number, or numbers; `collate` makes a tensor of them. An output is a row of
    logits, or for regression the predicted number.
    """

    problem: ClassVar[Problem]
    linear_model: ClassVar[str]
    """The name of the model on n-grams, as a baseline."""
    regularization: ClassVar[tuple[float, ...]] = (10.0, 30.0, 100.0)
    scale: float = 1.0
    shift: float = 0.0

    def __init__(self, names: Sequence[str], counts: Counter[str] | None = None) -> None:
        self.names, self.counts = list(names), counts or Counter[str]()
        """The names of the outputs, and the training examples of each label."""

    @classmethod
    @abstractmethod
    def fit(cls, corpus: Corpus[LabeledText], valid: Sequence[LabeledText]) -> Self:
        """The problem of a corpus, from one pass over its labels."""

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each output."""
        return {name: number for number, name in enumerate(self.names)}

    @property
    @abstractmethod
    def messages(self) -> list[str]:
        """What there is to say about the labels."""

    @property
    def num_ids(self) -> int:
        """The number of different ids that `to_ids` returns."""
        return len(self.names)

    @abstractmethod
    def target(self, example: LabeledText) -> Any: ...

    @abstractmethod
    def to_ids(self, target: Any) -> Ids:
        """A target as a row of a token store."""

    @abstractmethod
    def from_ids(self, ids: Ids) -> Any:
        """The inverse of `to_ids`."""

    @abstractmethod
    def collate(self, targets: Sequence[Any]) -> Tensor: ...

    def check(self, examples: Sequence[LabeledText]) -> None:
        """Raise an error at the first example whose label is not in the training data."""
        for example in examples:
            for label in (example.label,) if example.labels is None else example.labels:
                if label not in self.index:
                    message = f"the class {label!r:.40} is not in the training data: {', '.join(self.names):.80}"
                    raise example.origin.error(message) if example.origin else DataError(message)

    @abstractmethod
    def objective(self, reg: ClassificationRegConfig) -> Objective: ...

    @abstractmethod
    def loss(self, outputs: Float[Tensor, "N K"], targets: Tensor) -> float:
        """The mean loss, as the objective reports it."""

    @abstractmethod
    def scores(self, outputs: Float[Tensor, "N K"], targets: Tensor) -> dict[str, float]: ...

    @abstractmethod
    def report(self, outputs: Float[Tensor, "N K"], targets: Tensor, texts: Sequence[str]) -> dict[str, Any]:
        """All scores as JSON types."""

    @abstractmethod
    def baseline(self, targets: Tensor) -> tuple[str, Float[Tensor, "N K"]]:
        """The best outputs that ignore the text, with their name."""

    @abstractmethod
    def mix_weights(
        self, outputs: Float[Tensor, "N K"], own: Float[Tensor, "N K"], targets: Tensor
    ) -> tuple[float, float]:
        """The weights of the attention's and of the n-grams' outputs with the lowest loss."""

    @abstractmethod
    def describe(self, output: Float[Tensor, " K"]) -> str:
        """A prediction, for people."""

    # The family of a generalized linear model.

    @abstractmethod
    def responses(self, targets: Tensor) -> Float[Tensor, "N K"]: ...

    @abstractmethod
    def means(self, logits: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]: ...

    @abstractmethod
    def negative_log_likelihood(self, logits: Float[Tensor, "N K"], targets: Tensor) -> Tensor: ...

    def selection_error(self, logits: Float[Tensor, "N K"], targets: Tensor) -> float:
        return self.negative_log_likelihood(logits, targets).item()


def count_labels(rows: Iterable[Sequence[str]]) -> Counter[str]:
    """The number of examples with each label, from the labels of each example."""
    counts: Counter[str] = Counter()
    for labels in rows:
        counts.update(labels)
        if len(counts) > MAX_CLASSES:
            message = f"there are more than {MAX_CLASSES:,} classes, the last of them {labels[-1]!r:.40}"
            raise DataError(message, help="is this the label column? Name it: --label")
    return counts


def label_names(counts: Counter[str], held_out: Iterable[Sequence[str]], *, is_split: bool) -> list[str]:
    """The labels in order. A split may hold out the only example of one; given validation data may have no new ones."""
    more = {label for labels in held_out for label in labels} if is_split else set[str]()
    return sorted(counts.keys() | more, key=label_order)


def label_order(label: str) -> tuple[int, float, str]:
    """Numbers by value, then strings alphabetically."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label
