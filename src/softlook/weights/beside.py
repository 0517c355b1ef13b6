"""What lies beside a model's weights, so that it can be asked in texts: its words, the signs around them, its classes.

Runs and checkpoints of softlook's have the signs of their training. Folders of Hugging Face's say theirs in
config.json, in generation_config.json, and in what the tokenizer puts around a text.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from softlook.base.errors import DataError, WeightsError
from softlook.tokens import TextTokenizer
from softlook.weights.runs import BEST, best_of
from softlook.weights.schema import LARGEST_CONFIG, read_json
from softlook.weights.sentence_settings import OWN as SENTENCE
from softlook.weights.sentence_settings import SentenceSettings, lowercased, sentence_settings
from softlook.weights.tokenizer import NAME as TOKENIZER
from softlook.weights.tokenizer import read_tokenizer
from softlook.weights.wrapping import is_own

CONFIG, GENERATION, LABELS = "config.json", "generation_config.json", "labels.json"


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
class Beside:
    """All of it."""

    tokenizer: TextTokenizer
    signs: Signs
    labels: list[str] = field(default_factory=list)
    """Names of the classes, where the model knows some."""
    theirs: dict[str, Any] = field(default_factory=dict)
    """What Hugging Face's files say, as it stands there; each value is checked where it is used."""
    sentence: SentenceSettings = SentenceSettings()


def beside(folder: Path, model: nn.Module) -> Beside:
    """What lies in a model's folder: that of a run, of a checkpoint, or of a model of Hugging Face's."""
    theirs = {} if (folder / BEST).is_file() else theirs_in(folder)
    tokenizer = tokenizer_in(folder)
    signs, labels = signs_of(tokenizer, theirs, model), labels_in(folder, theirs, model)
    return Beside(tokenizer, signs, labels, theirs, sentence_settings(folder))


def tokenizer_in(folder: Path) -> TextTokenizer:
    """The tokenizer of a folder, or of its best checkpoint."""
    home = next((home for home in (folder, best_of(folder)) if (home / TOKENIZER).is_file()), None)
    if home is None:
        raise WeightsError(f"{folder} holds no {TOKENIZER}, and texts are asked. Put the model's own into it.")
    return words_in(home)


def words_in(path: Path) -> TextTokenizer:
    """The tokenizer of a file, or of a folder whose settings may want texts lowercased."""
    words = read_tokenizer(path)
    return TextTokenizer(lowercased(words) if sentence_settings(path).lowercase else words)


def theirs_in(folder: Path) -> dict[str, Any]:
    """What Hugging Face's files say of answers and classes; the second of them has the last word."""
    found: dict[str, Any] = {}
    for name in (CONFIG, GENERATION):
        if (folder / name).is_file():
            found |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return found


def signs_of(tokenizer: TextTokenizer, theirs: dict[str, Any], model: nn.Module) -> Signs:
    """The signs around texts: those of softlook's training, else what other people's files say."""
    translates, own = getattr(model, "mode", "") == "encoder-decoder", is_own(tokenizer.tokenizer)
    ends = _ids(theirs.get("eos_token_id")) or _perhaps(tokenizer, "end")
    start = _ids(theirs.get("decoder_start_token_id" if translates else "bos_token_id"))
    begin = start or _perhaps(tokenizer, "begin") or _perhaps(tokenizer, "pad")
    before, after = ((), ()) if own else around_text(tokenizer, ends)
    if own and not translates:
        before = (tokenizer.begin,)
    if not before and not after and translates:
        after = ends[:1]  # a tokenizer that says nothing: translators of every kind learned to read up to an end
    return Signs(before, after, begin[:1], ends)


def around_text(tokenizer: TextTokenizer, ends: Collection[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that the tokenizer itself puts before a text and behind it; in mBART and M2M-100 a language is
    among them, which may stand behind the end. Where it makes nothing of a text, ends stand behind."""
    coded = tokenizer.tokenizer.encode("a", add_special_tokens=True)
    added = [
        (id, bool(special))
        for id, special, there in zip(coded.ids, coded.special_tokens_mask, coded.attention_mask, strict=True)
        if there  # and is not padding
    ]
    inside = [place for place, (_, special) in enumerate(added) if not special]
    if not inside:
        return tuple(id for id, _ in added if id not in ends), tuple(id for id, _ in added if id in ends)
    return tuple(id for id, _ in added[: inside[0]]), tuple(id for id, _ in added[inside[-1] + 1 :])


def labels_in(folder: Path, theirs: dict[str, Any], model: nn.Module) -> list[str]:
    """Names of the classes: those of a run, Hugging Face's, or numbers."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "head", None) != "classes":
        return []
    count, told = config.classes, theirs.get("id2label")
    names: Any = [f"LABEL_{number}" if theirs else str(number) for number in range(count)]  # their default, or ours
    if (folder / LABELS).is_file():
        names = read_json(folder / LABELS, 64 * LARGEST_CONFIG).get("labels")
    elif isinstance(told, dict):
        names = [told.get(str(number)) for number in range(count)]
    if not isinstance(names, list) or len(names) != count or not all(isinstance(one, str) for one in names):
        raise WeightsError(f"{folder} names other classes than its model has: {names!r:.80}")
    return names


def kept_beside(folder: Path, model: nn.Module) -> dict[str, Any]:
    """What a checkpoint is to keep of a folder of Hugging Face's beside weights and tokenizer: file name -> content."""
    labels, sentence = labels_in(folder, theirs_in(folder), model), sentence_settings(folder)
    found: dict[str, Any] = {LABELS: {"labels": labels}} if labels else {}
    return found if sentence == SentenceSettings() else found | {SENTENCE: asdict(sentence)}


def _ids(told: Any) -> tuple[int, ...]:
    """One id or several; what is neither is passed over."""
    return tuple(id for id in (told if isinstance(told, list) else [told]) if type(id) is int and id >= 0)


def _perhaps(tokenizer: TextTokenizer, name: str) -> tuple[int, ...]:
    try:
        return (getattr(tokenizer, name),)
    except DataError:
        return ()
