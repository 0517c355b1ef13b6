"""A trained model that can be asked: a run, a checkpoint, a folder of Hugging Face's, or the reader of dates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from softlook.base.errors import ConfigError, DataError
from softlook.data import Labelled, Origin
from softlook.decode import int8 as in_bytes
from softlook.decode.alignment import pieces
from softlook.decode.generation_config import habits_in
from softlook.decode.habits import Habits
from softlook.models import FTTransformer, SkipGram, TableTransformer, TabTransformer, TextEncoder
from softlook.recipes.evaluation import text_settings_of
from softlook.recipes.remembering import SETTINGS
from softlook.recipes.settings import Task
from softlook.recipes.starting import load_any
from softlook.tokens import TextTokenizer
from softlook.train.device import choose_device
from softlook.weights.beside import CONFIG as THEIRS
from softlook.weights.beside import Signs as Signs
from softlook.weights.beside import beside
from softlook.weights.checkpoint import CONFIG as CHECKPOINT
from softlook.weights.runs import BEST
from softlook.weights.sentence_settings import SentenceSettings
from softlook.weights.wrapping import is_own

Ability = Literal["generate", "translate", "classify", "embed"]
TABLES = (FTTransformer, TableTransformer, TabTransformer)
DATES = "dates"
"""The name of the reader of dates that comes with softlook."""
DOES: dict[Ability, str] = {
    "generate": "goes on with texts",
    "translate": "translates",
    "classify": "says which class a text belongs to",
    "embed": "gives texts or words vectors",
}


class Question(NamedTuple):
    """A text that is asked about, perhaps with a second one, and where it came from."""

    text: str
    pair: str | None = None
    origin: Origin | None = None

    def fault(self, what: str, help: str = "") -> DataError:
        """The error that points at it."""
        if self.origin is not None:
            return self.origin.fault(what, help=help)
        return DataError(what, excerpt=self.text[:200], help=help)

    def labelled(self) -> Labelled:
        """As an example whose label nobody knows."""
        return Labelled(self.text, self.pair, "", self.origin)


def questions(texts: Iterable[str | tuple[str, str] | Question]) -> list[Question]:
    """Texts, or pairs of them, as questions.

    >>> questions(["one", ("two", "three")])[1].pair
    'three'
    """
    return [
        text if isinstance(text, Question) else Question(text) if isinstance(text, str) else Question(*text)
        for text in texts
    ]


@dataclass(frozen=True)
class Opened:
    """A model with all it takes to answer texts."""

    name: str
    """As it was asked for."""
    model: Any
    tokenizer: TextTokenizer
    signs: Signs
    labels: list[str]
    """Names of the classes, where it knows some."""
    settings: Task | None
    """What it was made with, where it is a run."""
    device: torch.device
    habits: Habits = Habits()
    """How its answers are found where nobody says how."""
    sentence: SentenceSettings = SentenceSettings()
    """How texts become vectors, where a sentence encoder says so."""

    @property
    def ability(self) -> Ability:
        """What it is for."""
        return ability_of(self.model, self.name)

    def asked_to(self, wanted: Ability) -> "Opened":
        """Itself, if it is for this. An encoder gives vectors too, whatever it was made for."""
        own = self.ability
        if wanted != own and not (wanted == "embed" and isinstance(self.model, TextEncoder)):
            raise ConfigError(f"{self.name} {DOES[own]}, and does not {wanted}. Try: softlook {own} {self.name}")
        return self

    def pieces(self, ids: Sequence[int], after: Sequence[int] = ()) -> list[str]:
        """The text that each token adds to those before it; one that ends a character adds all of it."""
        return pieces(self.tokenizer, ids, after)

    @property
    def is_ours(self) -> bool:
        """Did softlook make its tokens?"""
        return is_own(self.tokenizer.tokenizer)


def opened(run: str | Path, *, device: str = "auto", int8: bool = False) -> Opened:
    """A model ready to answer: the folder of a run, a checkpoint or a model of Hugging Face's; or "dates".

    With `int8`, on a CPU, its weights have one byte each: answers come sooner, and may now and then be others.

    >>> opened("dates", device="cpu").ability
    'translate'
    """
    folder, name, here = _folder(run), str(run), choose_device(device)
    if int8 and here.type != "cpu":
        raise ConfigError(
            f"weights of one byte (int8) are for the CPU, and this would run on {here}. "
            "Add --device cpu, or leave out --int8"
        )
    model = load_any(folder)
    ability_of(model, name)
    model = model.float() if here.type == "cpu" else model  # half the bits take a CPU longer
    found = beside(folder, model)
    settings = text_settings_of(folder) if (folder / SETTINGS).is_file() else None
    habits = habits_in(folder, found.theirs)
    model = in_bytes(model) if int8 else model.to(here).eval()
    return Opened(name, model, found.tokenizer, found.signs, found.labels, settings, here, habits, found.sentence)


def ability_of(model: nn.Module, name: str) -> Ability:
    """What a model is for."""
    mode, head = getattr(model, "mode", ""), getattr(getattr(model, "config", None), "head", "words")
    if mode == "encoder-decoder":
        return "translate"
    if mode == "decoder-only" and head == "words":
        return "generate"
    if isinstance(model, TextEncoder):
        return "classify" if head == "classes" else "embed"
    if isinstance(model, SkipGram):
        return "embed"
    if isinstance(model, TABLES):
        raise ConfigError(f"{name} answers about rows of tables, not texts. Try: softlook predict {name} --data FILE")
    raise ConfigError(f"{name} holds a {type(model).__name__}, which cannot be asked about texts")


def _folder(run: str | Path) -> Path:
    folder = Path(run)
    if str(run) == DATES and not folder.exists():
        return Path(str(files("softlook.recipes") / "date_reader"))
    if not folder.exists():
        raise ConfigError(
            f"there is no folder {str(run)!r:.200}. `softlook runs` lists the runs there are; "
            f"{DATES!r} is a reader of dates that comes with softlook."
        )
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file. A model is a folder; `softlook import {folder}` may make one of it.")
    if (folder / SETTINGS).is_file() and not (folder / BEST).is_file():
        raise ConfigError(f"{folder} has no checkpoint yet. Train on: the command that began it goes on with it.")
    if not any((folder / name).is_file() for name in (BEST, CHECKPOINT, THEIRS)):
        raise ConfigError(f"{folder} holds neither a run nor a model. `softlook runs {folder}` looks further down.")
    return folder
