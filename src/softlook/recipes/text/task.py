"""`TextTask`: the interface of a text task, with its training plan and result."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol

import torch
from torch import nn

from softlook.base.activity import report_activity
from softlook.data import Examples
from softlook.data.examples import Example
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget
from softlook.recipes.config.resolve import ConfigOverrides, ResolvedConfig, TextConfigT
from softlook.recipes.config.schema import Files
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.run_dir.run_result import RunResult
from softlook.recipes.text.corpus import Corpus, read_corpus
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train.batching.batches import Batches
from softlook.train.checkpoint.train_state import Progress
from softlook.train.events import Finished
from softlook.train.train_step import Objective
from softlook.weights.assets import load_text_tokenizer

MAX_TOKENIZER_TEXTS = 500_000
"""Texts a tokenizer is trained on."""
Sample = dict[str, str]


class Evaluate(Protocol):
    """Scores of a model on a share of the validation data; the first of them is minimized."""

    def __call__(self, model: nn.Module, share: float = 1.0) -> dict[str, float]: ...


@dataclass
class TrainingPlan:
    """Everything the trainer needs: model, batches, objective and evaluation."""

    model: nn.Module
    batches: Batches
    objective: Objective
    evaluate: Evaluate
    sample: Callable[[nn.Module], list[Sample]]
    """Outputs of the model on a few validation examples."""
    epoch_tokens: float
    batch_tokens: int
    total_tokens: float | None = None
    """Training tokens over all epochs; default: `max_training_tokens`."""
    values: dict[str, Any] = field(default_factory=dict)
    """Values that were selected for the tokenized data, by the dotted name of their field."""
    attention: Callable[[nn.Module], list[dict[str, Any]]] = lambda model: []
    """Attention of the model on a few fixed texts."""
    validate: Callable[[nn.Module], dict[str, Any]] | None = None
    """Final scores of the trained model on all validation data, with details; default: those of `evaluate`."""
    test_cost: float = 0.0
    """The work of scoring the test data, in multiples of `evaluate` on all validation data."""
    eval_share: float = 1.0
    """Share of the validation data to evaluate on during training, in a run without a time limit."""
    initialize: Callable[[nn.Module, float], None] = lambda model, seconds: None
    """Prepares a new model before its first step, within so many seconds."""
    baselines: Callable[[float], list[dict[str, Any]]] = lambda seconds: []
    """Scores of simple models on the validation data, one row each, within so many seconds."""
    uninformed_loss: float | None = None
    """The validation loss of a prediction that ignores the input."""
    finalize: Callable[[Path, nn.Module], None] = lambda folder, model: None
    """Writes additional files to the run directory at the end."""
    messages: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    label_counts: dict[str, int] = field(default_factory=dict)
    """Training examples of each label."""


@dataclass(frozen=True, repr=False)
class TrainResult(RunResult):
    """The result of a training run."""

    run_dir: Path
    model: nn.Module
    tokenizer: TextTokenizer
    progress: Progress
    finished: Finished
    scores: dict[str, Any]
    """Of the best checkpoint: on validation data and, if given, on test data."""
    resolved: ResolvedConfig[Any]


class TextTask(ABC, Generic[TextConfigT, Example]):
    """What differs from one text task to another. Its name, help and commands stand on the config."""

    config: type[TextConfigT]
    reader: ClassVar[Callable[..., Examples[Any]]]
    """A function of `softlook.data` that reads the files."""
    columns: ClassVar[dict[str, str]] = {"text": "text"}
    """The arguments of the reader about columns, and the config's field for each."""
    max_valid: ClassVar[int | None] = None
    """Validation examples that are used, if all of them are kept in memory."""

    def read(self, overrides: ConfigOverrides[TextConfigT], files: Files, **options: Any) -> Examples[Example]:
        """Examples from files."""
        columns = {name: overrides.get(field) for name, field in self.columns.items()}
        limits = {name: overrides.get(name) for name in ("max_bad_rows", "max_line_chars")}
        return type(self).reader(files, **{**columns, **limits, **options})

    def load_corpus(self, overrides: ConfigOverrides[TextConfigT]) -> Corpus[Example]:
        """Read the training and validation data."""
        report_activity("reading the data")
        columns = tuple(overrides.get(field) for field in self.columns.values())
        read, data, valid = partial(self.read, overrides), overrides.get("data"), overrides.get("valid")
        return read_corpus(read, data, valid, max_valid=self.max_valid, columns=columns)

    @abstractmethod
    def autosize(self, characters: int, overrides: ConfigOverrides[Any], budget: ComputeBudget) -> AutoSettings:
        """Automatic values for so many characters of training text and this budget."""

    @abstractmethod
    def build_plan(
        self, corpus: Corpus[Example], config: TextConfigT, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        """Build the model, the batches, the objective and the evaluation."""

    @abstractmethod
    def evaluate(self, config: TextConfigT, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        """Scores of a trained model on files."""

    def build_tokenizer(self, corpus: Corpus[Example], config: TextConfigT) -> TextTokenizer:
        """Load the given or the pretrained tokenizer, or train one."""
        options = config.tokenizer
        path = options.file or config.init_from
        if path:
            return load_text_tokenizer(path)
        assert options.type is not None and options.vocab_size is not None
        report_activity("training the tokenizer")
        texts = (text for example in islice(corpus.train, MAX_TOKENIZER_TEXTS) for text in example.texts.values())
        sizes = {"vocab_size": options.vocab_size, "lowercase": options.lowercase}
        return TextTokenizer(train_tokenizer(texts, model_type=options.type, **sizes))
