"""A model with all it takes to answer texts: its words, where they begin and end, its classes, its template."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer
from torch import nn

from softlook.base.errors import ConfigError, DataError, WeightsError
from softlook.models import Bert
from softlook.serve.template import ChatTemplate, template_in
from softlook.tokens import TextTokenizer
from softlook.tokens.special import BEGIN, SPECIAL
from softlook.tokens.text import LONGEST
from softlook.train.device import choose_device
from softlook.weights import read_tokenizer
from softlook.weights.anything import load_any
from softlook.weights.runs import BEST, best_of
from softlook.weights.schema import LARGEST_CONFIG, read_json
from softlook.weights.tokenizer import NAME as TOKENIZER

Ability = Literal["completions", "chat", "embeddings", "translate", "classify"]
LABELS, CONFIG, GENERATION = "labels.json", "config.json", "generation_config.json"
EMBEDS = ("pooled", "embedding", "states")
LONG_WORD = 32
"""Characters that any token may stand for, at least: an unknown word is one token, however long."""


@dataclass
class Served:
    """A model under the name it is asked for by."""

    name: str
    model: Any
    tokenizer: TextTokenizer
    before: tuple[int, ...] = ()
    """Stands before every prompt."""
    begin: tuple[int, ...] = ()
    """What an answer begins with: of a translation, or where a prompt is empty."""
    end: frozenset[int] = frozenset()
    closing: tuple[int, ...] = ()
    """Stands behind every source that is to be translated."""
    labels: list[str] = field(default_factory=list)
    template: ChatTemplate | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    widest: int = field(init=False)
    """Characters of the longest token."""

    def __post_init__(self) -> None:
        self.widest = max(max(map(len, self.tokenizer.tokenizer.get_vocab()), default=1), LONG_WORD)
        if not self.abilities:
            raise ConfigError(f"{self.name} is a {type(self.model).__name__}, which there is no way to serve")

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
        if isinstance(self.model, Bert):
            return ("classify",) if head == "classes" else ("embeddings",) if head in EMBEDS else ()
        return ()

    @property
    def context(self) -> int:
        """Tokens of a sequence, what is said included."""
        return getattr(self.model.config, "context", None) or 4096

    @property
    def vocab(self) -> int:
        """Ids that a prompt may hold."""
        config = self.model.config
        return getattr(config, "vocab", None) or getattr(config, "source_vocab", self.tokenizer.vocab)

    def ids(self, text: str, room: int) -> list[int]:
        """Ids of a text that has to fit into so many places. One that cannot fit is refused before it is cut up."""
        if len(text) > min(room * self.widest, LONGEST) or self._is_long(text, room):
            raise DataError(f"this text is longer than the {room:,} tokens that there is room for")
        found = self.tokenizer.encode([text])[0]
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
    words = _tokenizer(folder)
    theirs = {} if (folder / BEST).is_file() else _theirs(folder)
    made = Served(
        name=folder.resolve().name if name is None else name,
        model=model.eval(),
        tokenizer=words,
        end=_ends(words, theirs),
        begin=_begin(words, theirs, model),
        labels=_labels(folder, theirs, model),
        template=template_in(folder) if getattr(model, "mode", None) == "decoder-only" else None,
        created=created,
    )
    made.before, made.closing = _before(words.tokenizer, made.end), tuple(sorted(made.end)[:1])
    return made


def placed(served: Served, device: str = "auto") -> Served:
    """Put a model where it shall compute; on a CPU in single precision, which is what a CPU is fast in."""
    here = choose_device(device)
    served.model = served.model.to(here)
    if here.type == "cpu":
        served.model = served.model.float()
    return served


def _tokenizer(folder: Path) -> TextTokenizer:
    homes = [folder, best_of(folder)]
    home = next((home for home in homes if (home / TOKENIZER).is_file()), None)
    if home is None:
        raise WeightsError(f"{folder} holds no {TOKENIZER}, and a server speaks in texts. Put the model's own into it.")
    return TextTokenizer(read_tokenizer(home))


def _theirs(folder: Path) -> dict[str, Any]:
    """What Hugging Face's files say of where answers begin and end; each value is checked where it is used."""
    found: dict[str, Any] = {}
    for name in (CONFIG, GENERATION):
        if (folder / name).is_file():
            found |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return found


def _ends(words: TextTokenizer, theirs: dict[str, Any]) -> frozenset[int]:
    told = theirs.get("eos_token_id")
    ends = [id for id in (told if isinstance(told, list) else [told]) if type(id) is int]
    return frozenset(ends or _perhaps(words, "end"))


def _begin(words: TextTokenizer, theirs: dict[str, Any], model: nn.Module) -> tuple[int, ...]:
    named = "decoder_start_token_id" if getattr(model, "mode", "") == "encoder-decoder" else "bos_token_id"
    told = theirs.get(named)
    if type(told) is int:
        return (told,)
    return tuple(_perhaps(words, "begin") or _perhaps(words, "pad"))


def _before(tokenizer: Tokenizer, ends: frozenset[int]) -> tuple[int, ...]:
    """A sign for the beginning, where the tokenizer puts one there or where softlook trained it with one."""
    told = [id for id in tokenizer.encode("", add_special_tokens=True).ids if id not in ends]
    ours = all(tokenizer.token_to_id(token) == id for id, token in enumerate(SPECIAL))
    return (SPECIAL.index(BEGIN),) if ours else tuple(told[:1])


def _perhaps(words: TextTokenizer, name: str) -> list[int]:
    try:
        return [getattr(words, name)]
    except DataError:
        return []


def _labels(folder: Path, theirs: dict[str, Any], model: nn.Module) -> list[str]:
    """Names of the classes: those of a run, Hugging Face's, or numbers."""
    config = getattr(model, "config", None)
    if getattr(config, "head", None) != "classes" or config is None:
        return []
    if (folder / LABELS).is_file():
        names: Any = read_json(folder / LABELS, 64 * LARGEST_CONFIG).get("labels")
    else:
        told = theirs.get("id2label")
        names = [told.get(str(number)) for number in range(config.classes)] if isinstance(told, dict) else None
    if names is None:
        return [str(number) for number in range(config.classes)]
    if not isinstance(names, list) or len(names) != config.classes or not all(isinstance(one, str) for one in names):
        raise WeightsError(f"{folder} names other classes than its model has: {json.dumps(names):.80}")
    return names


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
