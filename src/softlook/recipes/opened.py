"""A trained model that can be asked: a run, a checkpoint, a folder of Hugging Face's, or the reader of dates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from softlook.base.errors import ConfigError, DataError, WeightsError
from softlook.data import Labelled, Origin
from softlook.decode import TextStream
from softlook.models import Bert, SkipGram
from softlook.recipes.evaluation import settings_of
from softlook.recipes.remembering import LABELS, SETTINGS
from softlook.recipes.settings import Task
from softlook.recipes.starting import load_any
from softlook.tokens import TextTokenizer
from softlook.tokens.special import SPECIAL
from softlook.train.device import choose_device
from softlook.weights import read_tokenizer
from softlook.weights.checkpoint import CONFIG as CHECKPOINT
from softlook.weights.runs import BEST, best_of
from softlook.weights.schema import LARGEST_CONFIG, read_json
from softlook.weights.tokenizer import NAME as TOKENIZER

Ability = Literal["generate", "translate", "classify", "embed"]
DATES = "dates"
"""The name of the reader of dates that comes with softlook."""
THEIRS = "config.json", "generation_config.json"
"""What says where answers begin and end, in folders of Hugging Face's."""
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
class Signs:
    """The ids that stand around a text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    begin: tuple[int, ...] = ()
    """What an answer begins with where nothing else does."""
    end: tuple[int, ...] = ()
    """What says that there is no more to say."""


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

    @property
    def ability(self) -> Ability:
        """What it is for."""
        return ability_of(self.model, self.name)

    def asked_to(self, wanted: Ability) -> "Opened":
        """Itself, if it is for this. An encoder gives vectors too, whatever it was made for."""
        own = self.ability
        if wanted != own and not (wanted == "embed" and isinstance(self.model, Bert)):
            raise ConfigError(f"{self.name} {DOES[own]}, and does not {wanted}. Try: softlook {own} {self.name}")
        return self

    def pieces(self, ids: Sequence[int], after: Sequence[int] = ()) -> list[str]:
        """The text that each token adds to those before it; one that ends a character adds all of it."""
        stream = TextStream(self.tokenizer, after)
        found = [stream.push(id) for id in ids]
        return [*found[:-1], found[-1] + stream.finish()] if found else []

    @property
    def is_ours(self) -> bool:
        """Did softlook make its tokens?"""
        return ours(self.tokenizer)


def opened(run: str | Path, *, device: str = "auto") -> Opened:
    """A model ready to answer: the folder of a run, a checkpoint or a model of Hugging Face's; or "dates".

    >>> opened("dates", device="cpu").ability
    'translate'
    """
    folder, name = _folder(run), str(run)
    model = load_any(folder)
    ability_of(model, name)
    here = choose_device(device)
    model = model.float() if here.type == "cpu" else model  # half the bits take a CPU longer
    is_run = (folder / BEST).is_file()
    theirs = {} if is_run else _theirs(folder)
    tokenizer = _tokenizer(folder)
    settings = settings_of(folder) if (folder / SETTINGS).is_file() else None
    labels = _labels(folder, theirs, model)
    return Opened(name, model.to(here).eval(), tokenizer, signs_of(tokenizer, theirs, model), labels, settings, here)


def ability_of(model: nn.Module, name: str) -> Ability:
    """What a model is for."""
    mode, head = getattr(model, "mode", ""), getattr(getattr(model, "config", None), "head", "words")
    if mode == "encoder-decoder":
        return "translate"
    if mode == "decoder-only" and head == "words":
        return "generate"
    if isinstance(model, Bert):
        return "classify" if head == "classes" else "embed"
    if isinstance(model, SkipGram):
        return "embed"
    raise ConfigError(f"{name} holds a {type(model).__name__}, which cannot be asked about texts")


def signs_of(tokenizer: TextTokenizer, theirs: dict[str, Any], model: nn.Module) -> Signs:
    """The signs around texts: those of softlook's training, else what other people's files say."""
    translates = getattr(model, "mode", "") == "encoder-decoder"
    if ours(tokenizer) and not theirs:
        begin, end = (tokenizer.begin,), (tokenizer.end,)
        return Signs(() if translates else begin, end, begin, end)
    told = theirs.get("eos_token_id")
    ends = tuple(id for id in (told if isinstance(told, list) else [told]) if type(id) is int)
    ends = ends or tuple(_perhaps(tokenizer, "end"))
    start = theirs.get("decoder_start_token_id" if translates else "bos_token_id")
    begin = (start,) if type(start) is int else tuple(_perhaps(tokenizer, "begin") or _perhaps(tokenizer, "pad"))
    around = tokenizer.tokenizer.encode("", add_special_tokens=True).ids
    before = tuple(id for id in around if id not in ends)
    return Signs(before, tuple(id for id in around if id in ends), begin, ends)


def ours(tokenizer: TextTokenizer) -> bool:
    """Did softlook make this tokenizer? Then its signs have known numbers."""
    return all(tokenizer.tokenizer.token_to_id(token) == id for id, token in enumerate(SPECIAL))


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
    if not any((folder / name).is_file() for name in (BEST, CHECKPOINT, THEIRS[0])):
        raise ConfigError(f"{folder} holds neither a run nor a model. `softlook runs {folder}` looks further down.")
    return folder


def _tokenizer(folder: Path) -> TextTokenizer:
    home = next((home for home in (folder, best_of(folder)) if (home / TOKENIZER).is_file()), None)
    if home is None:
        raise WeightsError(f"{folder} holds no {TOKENIZER}, and texts are asked. Put the model's own into it.")
    return TextTokenizer(read_tokenizer(home))


def _theirs(folder: Path) -> dict[str, Any]:
    """What Hugging Face's files say of beginnings, ends and classes; each value is checked where it is used."""
    found: dict[str, Any] = {}
    for name in THEIRS:
        if (folder / name).is_file():
            found |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return found


def _perhaps(tokenizer: TextTokenizer, name: str) -> list[int]:
    try:
        return [getattr(tokenizer, name)]
    except DataError:
        return []


def _labels(folder: Path, theirs: dict[str, Any], model: Any) -> list[str]:
    """Names of the classes: those of a run, Hugging Face's, or numbers."""
    if getattr(model.config, "head", None) != "classes":
        return []
    count, told = model.config.classes, theirs.get("id2label")
    names: Any = [str(number) for number in range(count)]
    if (folder / LABELS).is_file():
        names = read_json(folder / LABELS, 64 * LARGEST_CONFIG).get("labels")
    elif isinstance(told, dict):
        names = [told.get(str(number)) for number in range(count)]
    if not isinstance(names, list) or len(names) != count or not all(isinstance(one, str) for one in names):
        raise WeightsError(f"{folder} names other classes than its model has: {names!r:.80}")
    return names
