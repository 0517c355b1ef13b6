"""Folders of sentence-transformers: beside an encoder, modules.json says how its tokens become one vector."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from softlook.base.errors import WeightsError
from softlook.weights.schema import LARGEST_CONFIG, Closed, read_json, validated

MODULES, POOLING, LIMITS = "modules.json", "1_Pooling", "sentence_bert_config.json"
KINDS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
POOLS: dict[str, Literal["first", "mean"]] = {"cls": "first", "mean": "mean"}


class Module(Closed):
    """One line of modules.json. Only the last word of its type is looked at, and compared; nothing is imported."""

    type: str
    path: str = ""


class Pooling(Closed):
    """How the vectors of the tokens become one, as it is written today and as it once was."""

    pooling_mode: str | list[str] | None = None
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False
    include_prompt: bool = True

    def modes(self) -> list[str]:
        if self.pooling_mode is not None:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else self.pooling_mode
        flags = self.model_dump(exclude={"pooling_mode", "include_prompt"})
        return [name.removeprefix("pooling_mode_").removesuffix("_token") for name, on in flags.items() if on]


@dataclass(frozen=True)
class Sentence:
    """How one vector is made of a sentence."""

    pooling: Literal["first", "mean"]
    length_one: bool


SENTENCES: dict[str, Sentence] = {
    "first token": Sentence("first", length_one=False),
    "first token, with length one": Sentence("first", length_one=True),
    "mean of the tokens": Sentence("mean", length_one=False),
    "mean of the tokens, with length one": Sentence("mean", length_one=True),
}
"""The four kinds, by the names that a family knows them by as heads."""


def sentence_head(folder: Path) -> str | None:
    """Which of `SENTENCES` a folder describes; None where it is not one of sentence-transformers'."""
    if not (folder / MODULES).is_file():
        return None
    modules = _modules(folder / MODULES)
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in KINDS or modules[0].path:
        raise WeightsError(
            f"{folder / MODULES} lists {', '.join(kinds)!r:.200}; of sentence-transformers, softlook reads a "
            "Transformer in the folder itself, a Pooling, and a Normalize or none"
        )
    made = Sentence(_pooled(folder, modules[1].path), length_one="Normalize" in kinds)
    return next(name for name, sentence in SENTENCES.items() if sentence == made)


def sentence_files(made: Sentence, dim: int, context: int) -> dict[str, Any]:
    """What sentence-transformers wants to find beside the encoder: path -> content."""
    kinds = ("Transformer", "", "Pooling", POOLING, *(("Normalize", "2_Normalize") if made.length_one else ()))
    lines = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds[::2], kinds[1::2], strict=True))
    ]
    pooling = {
        "word_embedding_dimension": dim,
        "pooling_mode_cls_token": made.pooling == "first",
        "pooling_mode_mean_tokens": made.pooling == "mean",
    }
    return {MODULES: lines, f"{POOLING}/config.json": pooling, LIMITS: {"max_seq_length": context}}


def _modules(path: Path) -> list[Module]:
    if path.stat().st_size > LARGEST_CONFIG:
        raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; a config has at most {LARGEST_CONFIG:,}")
    try:
        return TypeAdapter(list[Module]).validate_json(path.read_bytes())
    except ValidationError as fault:
        raise WeightsError(f"{path} is no list of modules: {fault.errors()[0]['msg']:.200}") from None


def _pooling(folder: Path, name: str) -> Pooling:
    if Path(name).name != name:  # it may not lead out of its folder
        raise WeightsError(f"{folder / MODULES} names {name!r:.80}, which is not a folder beside it")
    path = folder / name / "config.json"
    aside = frozenset({"word_embedding_dimension", "embedding_dimension"})
    return validated(Pooling, read_json(path), aside, path)


def includes_prompt(folder: Path) -> bool:
    """Do the tokens of a prompt count in the pooling of such a folder?"""
    pooling = next((module for module in _modules(folder / MODULES) if module.type.endswith("Pooling")), None)
    return pooling is None or _pooling(folder, pooling.path).include_prompt


def _pooled(folder: Path, name: str) -> Literal["first", "mean"]:
    modes = [mode.removesuffix("_tokens") for mode in _pooling(folder, name).modes()]
    path = folder / name / "config.json"
    if len(modes) != 1 or modes[0] not in POOLS:
        raise WeightsError(f"{path} pools by {', '.join(modes)!r:.80}; softlook knows one of {', '.join(POOLS)}")
    return POOLS[modes[0]]
