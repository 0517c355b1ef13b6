"""A model with all it takes to answer texts: its words, where they begin and end, its classes, its template."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from softlook.base.errors import ConfigError, DataError
from softlook.decode.generation_config import habits_in
from softlook.decode.habits import Habits
from softlook.decode.speaking import context_of
from softlook.models import TextEncoder
from softlook.serve.template import ChatTemplate, template_in
from softlook.tokens import TextTokenizer
from softlook.tokens.framing import Frame, frame_of
from softlook.tokens.text import LONGEST
from softlook.train.device import choose_device
from softlook.weights.anything import load_any
from softlook.weights.beside import Signs, beside
from softlook.weights.sentence_settings import SentenceSettings

Ability = Literal["completions", "chat", "embeddings", "translate", "classify", "tables"]
PAGES: dict[Ability, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "translate": "/v1/translate",
    "classify": "/v1/classify",
    "tables": "/v1/tables/predict",
}
"""Where a model is asked."""
EMBEDS = ("pooled", "embedding", "states")
ENDLESS = 4096
"""Tokens that a model is asked for which could go on without end."""
LONG_WORD = 32
"""Characters that any token may stand for, at least: an unknown word is one token, however long."""


@dataclass
class Served:
    """A model under the name it is asked for by."""

    name: str
    model: Any
    tokenizer: TextTokenizer
    signs: Signs = Signs()
    """What stands around texts, and what answers begin and end with."""
    labels: list[str] = field(default_factory=list)
    habits: Habits = Habits()
    """How translations are found where a request does not say how."""
    sentence: SentenceSettings = SentenceSettings()
    """How texts become vectors, where a sentence encoder says so."""
    template: ChatTemplate | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    widest: int = field(init=False)
    """Characters of the longest token."""

    def __post_init__(self) -> None:
        self.widest = max(max(map(len, self.tokenizer.tokenizer.get_vocab()), default=1), LONG_WORD)
        if not self.abilities:
            raise ConfigError(f"{self.name} is a {type(self.model).__name__}, which there is no way to serve")
        if self.mode == "encoder-decoder" and not (self.signs.begin and self.signs.end):
            raise ConfigError(f"what says the beginning or the end of an answer is not known of {self.name}")

    @property
    def mode(self) -> str:
        return getattr(self.model, "mode", "")

    @property
    def abilities(self) -> tuple[Ability, ...]:
        """What it can be asked for."""
        head = getattr(self.model.config, "head", "words")
        if self.mode == "decoder-only" and head == "words":
            return ("completions", "chat") if self.template is not None else ("completions",)
        if self.mode == "encoder-decoder":
            return ("translate",)
        if isinstance(self.model, TextEncoder):
            return ("classify",) if head == "classes" else ("embeddings",) if head in EMBEDS else ()
        return ()

    @property
    def context(self) -> int:
        """Tokens of a sequence, what is said included; of a translator's source, and of its answer."""
        own = context_of(self.model) if self.mode == "encoder-decoder" else getattr(self.model.config, "context", None)
        return min(own or ENDLESS, self.sentence.max_length or own or ENDLESS)

    @cached_property
    def frame(self) -> Frame:
        """The special tokens around the texts that an encoder reads."""
        return frame_of(self.tokenizer)

    @property
    def ends(self) -> frozenset[int]:
        """What says that there is no more to say."""
        return frozenset(self.signs.end)

    @property
    def vocab(self) -> int:
        """Ids that a prompt may hold."""
        config = self.model.config
        return getattr(config, "vocab", None) or getattr(config, "source_vocab", self.tokenizer.vocab)

    def ids(self, text: str, room: int, *, signs: bool = False) -> list[int]:
        """Ids of a text that has to fit into so many places. One that cannot fit is refused before it is cut up."""
        if len(text) > min(room * self.widest, LONGEST) or self._is_long(text, room):
            raise DataError(f"this text is longer than the {room:,} tokens that there is room for")
        found = self.tokenizer.encode([text], signs=signs)[0]
        if len(found) > room:
            raise DataError(f"this text has {len(found):,} tokens, and there is room for {room:,}")
        if any(id >= self.vocab for id in found):
            raise DataError("this text has words that the model does not know")
        return found

    def _is_long(self, text: str, room: int) -> bool:
        """Is its beginning too long already? What follows can join with the last word only."""
        glance = 16 * room + self.widest
        return len(text) > 2 * glance and len(self.tokenizer.encode([text[:glance]])[0]) > room + self.widest


def load_served(folder: Path, name: str | None = None) -> Served:
    """What lies in the folder of a run, of a checkpoint, or of a model of Hugging Face's."""
    model, created = load_any(folder), int(folder.stat().st_mtime)
    found = beside(folder, model)
    return Served(
        name=folder.resolve().name if name is None else name,
        model=model.eval(),
        tokenizer=found.tokenizer,
        signs=found.signs,
        labels=found.labels,
        habits=habits_in(folder, found.theirs),
        sentence=found.sentence,
        template=template_in(folder) if getattr(model, "mode", None) == "decoder-only" else None,
        created=created,
    )


def placed(served: Served, device: str = "auto") -> Served:
    """Put a model where it shall compute; on a CPU in single precision, which is what a CPU is fast in."""
    here = choose_device(device)
    served.model = served.model.to(here)
    if here.type == "cpu":
        served.model = served.model.float()
    return served


def names_of(folders: Sequence[str]) -> dict[str, Path]:
    """Folders by the names their models are asked for by: NAME=FOLDER, or the folder's own name.

    >>> names_of(["runs/lm-poems", "small=models/gpt2"])
    {'lm-poems': PosixPath('runs/lm-poems'), 'small': PosixPath('models/gpt2')}
    """
    found: dict[str, Path] = {}
    for told in folders:
        name, equals, folder = told.partition("=")
        path = Path(folder if equals else told)
        name = name if equals else path.resolve().name
        if name in found:
            raise ConfigError(f"two models would be called {name!r}. Name them: one={found[name]} other={path}")
        if not name or len(name) > 128 or any(ord(letter) < 33 or letter == "/" for letter in name):
            raise ConfigError(f"a model's name has 1 to 128 letters, and neither space nor slash; {name!r:.80} came")
        found[name] = path
    return found
