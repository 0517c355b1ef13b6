"""What is different from one task to another, and what every one of them makes and leaves."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

import torch
from torch import nn

from softlook.data.examples import Example
from softlook.recipes.corpus import Corpus
from softlook.recipes.sizing import Chosen, Room
from softlook.recipes.told import Schema, Settled, Told
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train.batches import Batches
from softlook.train.events import Finished
from softlook.train.progress import Progress
from softlook.train.run import Evaluate
from softlook.train.step import Objective
from softlook.weights.beside import words_in

log = logging.getLogger("softlook.recipes")
MOST_TEXTS = 500_000
"""Texts that a tokenizer is trained on."""
Sample = dict[str, str]


@dataclass
class Plan:
    """All that learning takes, made from settings and data."""

    model: nn.Module
    batches: Batches
    objective: Objective
    evaluate: Evaluate
    sample: Callable[[nn.Module], list[Sample]]
    tokens: float
    """To learn from, each time through."""
    batch: int
    """Tokens of a batch."""
    reads: float | None = None
    """Tokens that are worth reading in all; by a rule of thumb where not told."""
    test: Callable[[nn.Module], dict[str, Any]] = lambda model: {}
    """What the finished model is worth on data that it was not chosen by."""
    after: Callable[[Path, nn.Module], None] = lambda folder, model: None
    """What else is left in the folder at the end."""
    said: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """What a run leaves."""

    folder: Path
    model: nn.Module
    tokenizer: TextTokenizer
    progress: Progress
    finished: Finished
    scores: dict[str, Any]
    """Of the best checkpoint: on held-out data and, where there are some, on test data."""
    settled: Settled[Any]


class Job(ABC, Generic[Schema, Example]):
    """What is different from one task to another."""

    name: str

    @abstractmethod
    def read(self, asked: Told[Schema]) -> Corpus[Example]:
        """The data, and what is held out of them."""

    @abstractmethod
    def choose(self, corpus: Corpus[Example], asked: Told[Schema], room: Room) -> Chosen:
        """Sizes for these data and this device."""

    @abstractmethod
    def plan(self, corpus: Corpus[Example], settings: Schema, tokenizer: TextTokenizer, device: torch.device) -> Plan:
        """A model, batches and questions."""

    def texts(self, corpus: Corpus[Example]) -> Iterable[str]:
        """What the tokenizer is made from."""
        for number, example in enumerate(corpus.train):
            if number >= MOST_TEXTS:
                break
            yield from example.texts.values()

    def tokenizer(self, corpus: Corpus[Example], settings: Schema) -> TextTokenizer:
        """One that was given, one that belongs to the weights one starts from, or a new one."""
        tokens = settings.tokens
        given = tokens.file or settings.from_
        if given:
            return words_in(given)
        assert tokens.kind is not None and tokens.vocab is not None
        return TextTokenizer(train_tokenizer(self.texts(corpus), kind=tokens.kind, vocab=tokens.vocab))
