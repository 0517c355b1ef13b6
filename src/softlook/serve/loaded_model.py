"""Loaded models: weights, tokenizer, special tokens, generation config."""

import time
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from softlook.base.device import choose_device
from softlook.base.errors import ConfigError, DataError
from softlook.decode.chat_template import ChatTemplate, load_chat_template
from softlook.decode.generation_config import GenerationConfig, load_generation_config
from softlook.decode.sessions import max_target_length
from softlook.models import TextEncoder, ViT
from softlook.tokens import TextTokenizer
from softlook.tokens.template import SequenceTemplate, TemplatedInput, template_from_tokenizer
from softlook.tokens.tokenizer import MAX_TEXT_CHARS, is_softlook_tokenizer
from softlook.weights.assets import SpecialTokens, load_assets
from softlook.weights.checkpoint import load_auto
from softlook.weights.manifest import SETTINGS_FILE, read_checksummed
from softlook.weights.sentence_transformers import SentenceConfig

Capability = Literal["completions", "chat", "embeddings", "translate", "classify", "tables", "images"]
ROUTES: dict[Capability, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "translate": "/v1/translate",
    "classify": "/v1/classify",
    "tables": "/v1/tables/predict",
    "images": "/v1/images/classify",
}
"""The route of each capability."""
EMBEDDING_HEADS = ("pooled", "embedding", "hidden_states")
UNBOUNDED_CONTEXT = 4096
"""Context length used for models without a maximum of their own."""
MIN_TOKEN_CHARS = 32
"""Characters assumed per token at least: an unknown word is one token, however long."""
Cell = str | float | int | bool | None
"""A JSON cell. None: missing."""
Label = str | float | int | bool
Columns = Mapping[str, Sequence[Cell]]
"""Columns of equal length by name."""


@dataclass
class LoadedModel:
    """A text model under the name by which requests refer to it."""

    name: str
    model: Any
    tokenizer: TextTokenizer
    special_tokens: SpecialTokens = SpecialTokens()
    labels: list[str] = field(default_factory=list)
    """Class names of a classifier."""
    generation_config: GenerationConfig = GenerationConfig()
    """Defaults of translation requests."""
    sentence: SentenceConfig = SentenceConfig()
    """Pooling, prompts and normalization of a sentence encoder."""
    chat_template: ChatTemplate | None = None
    is_run: bool = False
    """Whether it was loaded from a run directory."""
    max_length: int | None = None
    """The maximum number of tokens in training, if known; longer inputs of an encoder are truncated."""
    created: int = field(default_factory=lambda: int(time.time()))
    max_token_chars: int = field(init=False)
    """Characters of the longest token."""

    def __post_init__(self) -> None:
        self.max_token_chars = max(max(map(len, self.tokenizer.tokenizer.get_vocab()), default=1), MIN_TOKEN_CHARS)
        if not self.capabilities:
            raise ConfigError(f"{self.name} is a {type(self.model).__name__}, which cannot be served")
        if self.mode == "encoder-decoder" and not (self.special_tokens.start and self.special_tokens.eos):
            raise ConfigError(f"the decoder start token or the end-of-sequence token of {self.name} is not known")

    @property
    def mode(self) -> str:
        return getattr(self.model, "mode", "")

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        head = getattr(self.model.config, "head", "causal_lm")
        if self.mode == "decoder-only" and head == "causal_lm":
            return ("completions", "chat") if self.chat_template is not None else ("completions",)
        if self.mode == "encoder-decoder":
            return ("translate",)
        if isinstance(self.model, TextEncoder):
            return ("classify",) if head == "classification" else ("embeddings",) if head in EMBEDDING_HEADS else ()
        return ()

    @property
    def context(self) -> int:
        """Maximum sequence length, including new tokens; of an encoder-decoder, of both source and target."""
        is_seq2seq = self.mode == "encoder-decoder"
        own = max_target_length(self.model) if is_seq2seq else getattr(self.model.config, "context", None)
        return min(own or UNBOUNDED_CONTEXT, self.sentence.max_seq_length or own or UNBOUNDED_CONTEXT)

    @cached_property
    def frame(self) -> SequenceTemplate:
        """The special tokens an encoder expects around texts."""
        return template_from_tokenizer(self.tokenizer)

    @property
    def eos_ids(self) -> frozenset[int]:
        return frozenset(self.special_tokens.eos)

    @property
    def vocab_size(self) -> int:
        config = self.model.config
        return getattr(config, "vocab_size", None) or getattr(config, "source_vocab_size", self.tokenizer.vocab_size)

    def encode(self, text: str, max_length: int, *, parse_special: bool = False) -> list[int]:
        """Token ids of a text of at most `max_length` tokens. Longer texts are rejected, if possible unread."""
        if len(text) > min(max_length * self.max_token_chars, MAX_TEXT_CHARS) or self._is_too_long(text, max_length):
            raise DataError(f"this text is longer than the maximum of {max_length:,} tokens: shorten it")
        ids = self.tokenizer.encode(text, parse_special=parse_special)
        if len(ids) > max_length:
            raise DataError(f"this text has {len(ids):,} tokens, the maximum is {max_length:,}: shorten it")
        return self._check_vocabulary(ids)

    def encode_truncated(self, text: str, pair: str = "") -> tuple[TemplatedInput, int]:
        """The input of an encoder, truncated as by `softlook classify`; and the number of tokens removed."""
        first, second = self.tokenizer.encode([text[:MAX_TEXT_CHARS], pair[:MAX_TEXT_CHARS]])
        self._check_vocabulary([*first, *second])
        max_length = min(self.context, self.max_length or self.context)
        is_own = self.is_run or is_softlook_tokenizer(self.tokenizer.tokenizer)
        return self.frame.truncate(first, second, max_length=max_length, as_in_training=is_own)

    def _check_vocabulary(self, ids: list[int]) -> list[int]:
        if any(id >= self.vocab_size for id in ids):
            raise DataError("this text has tokens outside of the model's vocabulary")
        return ids

    def _is_too_long(self, text: str, max_length: int) -> bool:
        """Whether the beginning alone is too long. What follows can only merge with its last token."""
        size = 16 * max_length + self.max_token_chars
        return len(text) > 2 * size and len(self.tokenizer.encode(text[:size])) > max_length + self.max_token_chars


@runtime_checkable
class TableModel(Protocol):
    """A fitted table estimator, as the server uses it."""

    @property
    def model_name(self) -> str: ...

    @property
    def target(self) -> tuple[str, ...]:
        """Names of the predicted columns."""
        ...

    @property
    def columns(self) -> Mapping[str, str]:
        """Feature columns, in order, with their types: number, boolean, category, ordinal, date or text."""
        ...

    @property
    def classes(self) -> Sequence[Label]:
        """Class labels; empty for regression."""
        ...

    @property
    def can_explain(self) -> bool:
        """Whether `explain` is available."""
        ...

    def encode(self, columns: Columns, chunk_rows: int) -> Sequence[Sized]:
        """Rows as model inputs, in chunks of at most `chunk_rows`. Raises DataError for an unreadable cell.

        Thread-safe. The encoding of a row does not depend on other rows.
        """
        ...

    def predict(self, chunks: Sequence[Any]) -> Tensor:
        """(N, C) outputs for the rows of the chunks. Called on the engine thread only."""
        ...

    def explain(self, chunks: Sequence[Any]) -> Tensor:
        """(N, columns) attention on each column, NaN for one the model never attends to. Engine thread only."""
        ...

    def decode(self, outputs: Tensor) -> list[Any]:
        """For each row the class, the number, or the list of numbers."""
        ...


@dataclass(frozen=True)
class LoadedTable:
    """A table model under the name by which requests refer to it."""

    name: str
    table: TableModel
    created: int = field(default_factory=lambda: int(time.time()))
    capabilities = ("tables",)


@runtime_checkable
class ImageModel(Protocol):
    """An image classifier, as the server uses it."""

    labels: list[str]

    def decode(self, data: bytes) -> Tensor:
        """The pixels of a file as the model reads them, (1, channels, size, size). Raises DataError. Thread-safe."""
        ...

    def predict(self, chunks: Sequence[Any]) -> Tensor:
        """(N, K) probabilities. Called on the engine thread only."""
        ...

    def explain(self, chunks: Sequence[Any]) -> Tensor:
        """(N, patches down, patches across) attention to each patch. Engine thread only."""
        ...


@dataclass(frozen=True)
class LoadedImageModel:
    """An image classifier under the name by which requests refer to it."""

    name: str
    images: ImageModel
    created: int = field(default_factory=lambda: int(time.time()))
    capabilities = ("images",)


AnyModel = LoadedModel | LoadedTable | LoadedImageModel


def load_model(folder: Path, name: str | None = None) -> LoadedModel:
    """Load a run, a checkpoint or a Hugging Face folder of a text model."""
    model, created = load_auto(folder), int(folder.stat().st_mtime)
    if isinstance(model, ViT):
        raise ConfigError(f"{folder} is an image model, expected one of text. Try: softlook serve {folder}")
    assets, is_run = load_assets(folder, model), (folder / SETTINGS_FILE).is_file()
    settings = read_checksummed(folder / SETTINGS_FILE)["values"] if is_run else {}
    return LoadedModel(
        name=folder.resolve().name if name is None else name,
        model=model.eval(),
        tokenizer=assets.tokenizer,
        special_tokens=assets.special_tokens,
        labels=assets.labels,
        generation_config=load_generation_config(folder, assets.hf_config),
        sentence=assets.sentence,
        chat_template=load_chat_template(folder) if getattr(model, "mode", None) == "decoder-only" else None,
        is_run=is_run,
        max_length=settings.get("batch.max_length"),
        created=created,
    )


def to_device(loaded: LoadedModel, device: str = "auto") -> LoadedModel:
    """Move a model to a device; to float32 on a CPU, where that is fastest."""
    target = choose_device(device)
    loaded.model = loaded.model.to(target)
    if target.type == "cpu":
        loaded.model = loaded.model.float()
    return loaded


def model_names(arguments: Sequence[str]) -> dict[str, Path]:
    """Folders by model name, from NAME=FOLDER or FOLDER arguments.

    >>> model_names(["runs/lm-poems", "small=models/gpt2"])
    {'lm-poems': PosixPath('runs/lm-poems'), 'small': PosixPath('models/gpt2')}
    """
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, equals, folder = argument.partition("=")
        path = Path(folder if equals else argument)
        name = name if equals else path.resolve().name
        if name in folders:
            raise ConfigError(f"two models are named {name!r}. Name them: one={folders[name]} other={path}")
        if not name or len(name) > 128 or any(ord(letter) < 33 or letter == "/" for letter in name):
            raise ConfigError(
                f"a model name must have 1 to 128 characters, without spaces and slashes; got {name!r:.80}"
            )
        folders[name] = path
    return folders
