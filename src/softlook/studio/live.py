"""The interface between the studio and a loaded model."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.lens.trace import Trace, trace


@dataclass(frozen=True)
class ModelInput:
    """A text as the input of a model."""

    title: str
    args: tuple[Tensor, ...]
    kwargs: Mapping[str, Any]
    tokens: list[str]
    """The text of each token that the rows of a map stand for."""
    source_tokens: list[str] | None = None
    predicted: list[str] | None = None
    """The tokens that an encoder-decoder predicts for each row."""


Encode = Callable[[str, str | None, str | None], ModelInput]
"""The input for a text, a second text of a pair, and a target of an encoder-decoder."""


@dataclass(eq=False)
class LiveModel:
    """A model with a way to encode a text and to name tokens."""

    name: str
    model: nn.Module
    task: Any
    encoder: Encode
    token_texts: Callable[[Sequence[int]], list[str]]
    capabilities: tuple[str, ...] = ()
    special: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The ids of special tokens: "start", "eos"."""
    labels: Sequence[str] = ()
    """Class names of a classifier."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held during a forward pass: traces and interventions are hooks of the model."""

    def encode(self, text: str, pair: str | None = None, target: str | None = None) -> ModelInput:
        """The input for a text. An encoder-decoder translates it to have a target, so the lock is held."""
        with self.lock:
            return self.encoder(text, pair, target)

    def record(self, given: ModelInput) -> Trace:
        """Trace a forward pass, with values."""
        with self.running() as model, trace(model, values=True) as recorded:
            model(*given.args, **given.kwargs)
        recorded.tokens, recorded.source_tokens = given.tokens, given.source_tokens
        return recorded

    @contextmanager
    def running(self) -> Any:
        """The model, for one request at a time, without gradients."""
        with self.lock, torch.no_grad():
            yield self.model

    def require(self, capability: str) -> None:
        """Raise an error if the model cannot do this."""
        if capability not in self.capabilities:
            raise ConfigError(f"{self.name} does not support {capability}, only {', '.join(self.capabilities)}")

    def output_names(self, ids: Sequence[int]) -> list[str]:
        """The names of the classes, or the texts of the tokens."""
        return [self.labels[id] for id in ids] if self.labels else self.token_texts(ids)
