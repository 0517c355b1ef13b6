"""sentence-transformers folders: modules, pooling and prompts."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
from tokenizers import Tokenizer, normalizers

from softlook.base.errors import ConfigError, WeightsError
from softlook.weights.schema import HFConfigBase, format_validation_error, read_bounded, read_json, validate_config
from softlook.weights.tokenizer_files import TOKENIZER_CONFIG_FILE

MODULES_FILE, POOLING_FOLDER, LIMITS_FILE = "modules.json", "1_Pooling", "sentence_bert_config.json"
MODULE_TYPES = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
Pooling = Literal["cls", "mean"]
SENTENCE_FILE, ST_CONFIG_FILE = "sentence.json", "config_sentence_transformers.json"
ENCODER_NAMES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
"""Possible NAME of sentence_NAME_config.json; the first that exists counts."""
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
IGNORED = "transformer_task modality_config module_output_name unpad_inputs backend __version__ model_type"


class ModuleEntry(HFConfigBase):
    """An entry of modules.json. Only the last part of its type is compared; nothing is imported."""

    type: str
    path: str = ""


class PoolingConfig(HFConfigBase):
    """1_Pooling/config.json, in the current and the older form."""

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
class SentencePooling:
    """Pooling mode, and whether embeddings are L2-normalized."""

    pooling: Pooling
    normalize: bool


SENTENCE_HEADS: dict[str, SentencePooling] = {
    "cls_pooling": SentencePooling("cls", normalize=False),
    "cls_pooling_normalized": SentencePooling("cls", normalize=True),
    "mean_pooling": SentencePooling("mean", normalize=False),
    "mean_pooling_normalized": SentencePooling("mean", normalize=True),
}
"""Name of the head -> pooling."""


def sentence_head(folder: Path) -> str | None:
    """The one of `SENTENCE_HEADS` that a folder describes; None if it has no modules.json."""
    if not (folder / MODULES_FILE).is_file():
        return None
    modules = _modules(folder / MODULES_FILE)
    types = [module.type.rpartition(".")[2] for module in modules]
    if types not in MODULE_TYPES or modules[0].path:
        raise WeightsError(
            f"{folder / MODULES_FILE} lists {', '.join(types)!r:.200}; supported: a Transformer in the same folder, "
            "a Pooling, and optionally a Normalize"
        )
    pooling = SentencePooling(_pooling_mode(folder, modules[1].path), normalize="Normalize" in types)
    return next(name for name, sentence in SENTENCE_HEADS.items() if sentence == pooling)


def sentence_files(pooling: SentencePooling, dim: int, context: int) -> dict[str, Any]:
    """Files of a sentence-transformers folder besides the encoder: path -> content."""
    modules = [("Transformer", ""), ("Pooling", POOLING_FOLDER)]
    modules += [("Normalize", "2_Normalize")] if pooling.normalize else []
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(modules)
    ]
    pooling_config = {
        "word_embedding_dimension": dim,
        "pooling_mode_cls_token": pooling.pooling == "cls",
        "pooling_mode_mean_tokens": pooling.pooling == "mean",
    }
    return {
        MODULES_FILE: entries,
        f"{POOLING_FOLDER}/config.json": pooling_config,
        LIMITS_FILE: {"max_seq_length": context},
    }


def _modules(path: Path) -> list[ModuleEntry]:
    try:
        return TypeAdapter(list[ModuleEntry]).validate_json(read_bounded(path))
    except ValidationError as error:
        raise WeightsError(f"{path} is not a list of modules: {error.errors()[0]['msg']:.200}") from None


def _pooling_config(folder: Path, name: str) -> PoolingConfig:
    if Path(name).name != name:  # it may not point outside the folder
        raise WeightsError(f"{folder / MODULES_FILE} lists {name!r:.80}, which is not a folder next to it")
    path = folder / name / "config.json"
    ignored = frozenset({"word_embedding_dimension", "embedding_dimension"})
    return validate_config(PoolingConfig, read_json(path), ignored, path)


def includes_prompt(folder: Path) -> bool:
    """Whether prompt tokens are included in the pooling."""
    pooling = next((module for module in _modules(folder / MODULES_FILE) if module.type.endswith("Pooling")), None)
    return pooling is None or _pooling_config(folder, pooling.path).include_prompt


def _pooling_mode(folder: Path, name: str) -> Pooling:
    modes = [mode.removesuffix("_tokens") for mode in _pooling_config(folder, name).modes()]
    if len(modes) != 1 or modes[0] not in get_args(Pooling):
        found, supported = f"{', '.join(modes)!r:.80}", ", ".join(get_args(Pooling))
        raise WeightsError(f"{folder / name / 'config.json'} has pooling {found}; supported: one of {supported}")
    return cast(Pooling, modes[0])


@dataclass(frozen=True)
class SentenceConfig:
    """Settings of sentence embeddings besides the encoder and its pooling. The defaults change nothing."""

    max_seq_length: int | None = None
    """Maximum number of tokens, including special tokens; longer texts are truncated."""
    lowercase: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    """Prompt name -> text to prepend."""
    default_prompt: str | None = None
    """The name of the default prompt."""
    truncate_dim: int | None = None
    """Number of dimensions to keep."""
    similarity: Similarity = "cosine"
    """Similarity function for these embeddings."""
    include_prompt: bool = True
    """Whether prompt tokens are included in the pooling."""

    def prompt(self, name: str | None = None) -> str:
        """The text of a prompt; default: the default prompt, if any.

        >>> SentenceConfig(prompts={"query": "query: "}, default_prompt="query").prompt()
        'query: '
        """
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "no prompts"
            raise ConfigError(f"unknown prompt {name!r:.80}; this model has {known}")
        if self.prompts[name] and not self.include_prompt:
            raise ConfigError(
                f"prompt {name!r:.80} cannot be used: excluding prompts from pooling (include_prompt: false) is not "
                "supported"
            )
        return self.prompts[name]

    def to_files(self, context: int) -> dict[str, Any]:
        """sentence-transformers files for an encoder with `context` positions: name -> content."""
        limits = {"max_seq_length": self.max_seq_length or context, "do_lower_case": self.lowercase}
        config = {
            "prompts": self.prompts,
            "default_prompt_name": self.default_prompt,
            "similarity_fn_name": self.similarity,
        }
        config |= {} if self.truncate_dim is None else {"truncate_dim": self.truncate_dim}
        return {LIMITS_FILE: limits, ST_CONFIG_FILE: config}


class LimitsFile(HFConfigBase):
    """sentence_bert_config.json."""

    max_seq_length: PositiveInt | None = None
    do_lower_case: bool = False
    processing_kwargs: dict[str, Any] | None = None
    query_length: NonNegativeInt | None = None
    document_length: NonNegativeInt | None = None
    query_expansion: Any = None


class SentenceTransformersFile(HFConfigBase):
    """config_sentence_transformers.json."""

    prompts: dict[str, str | None] = {}
    default_prompt_name: str | None = None
    truncate_dim: PositiveInt | None = None
    similarity_fn_name: Similarity | None = None


def read_sentence_config(folder: Path) -> SentenceConfig:
    """The sentence config of a softlook checkpoint or a sentence-transformers folder; else the defaults."""
    if (folder / SENTENCE_FILE).is_file():
        try:
            return TypeAdapter(SentenceConfig).validate_python(read_json(folder / SENTENCE_FILE))
        except ValidationError as error:
            raise WeightsError(f"{folder / SENTENCE_FILE}: {format_validation_error(error)}") from None
    return _from_sentence_transformers(folder) if (folder / MODULES_FILE).is_file() else SentenceConfig()


def add_lowercase(tokenizer: Tokenizer) -> Tokenizer:
    """Prepend lowercasing to a tokenizer's normalizers."""
    existing = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *existing])  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def _from_sentence_transformers(folder: Path) -> SentenceConfig:
    limits, config = _limits(folder), _config(folder)
    prompts = {name: prompt or "" for name, prompt in config.prompts.items()}
    if config.default_prompt_name is not None and config.default_prompt_name not in prompts:
        raise WeightsError(
            f"{folder / ST_CONFIG_FILE} has default prompt {config.default_prompt_name!r:.80}, which is not in "
            f"its prompts: {', '.join(prompts) or 'none'}"
        )
    return SentenceConfig(
        max_seq_length=limits.max_seq_length or _tokenizer_limit(folder),
        lowercase=limits.do_lower_case,
        prompts=prompts,
        default_prompt=config.default_prompt_name,
        truncate_dim=config.truncate_dim,
        similarity=config.similarity_fn_name or "cosine",
        include_prompt=includes_prompt(folder),
    )


def _limits(folder: Path) -> LimitsFile:
    paths = [folder / f"sentence_{name}_config.json" for name in ENCODER_NAMES]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return LimitsFile()
    limits = validate_config(LimitsFile, read_json(path), frozenset(IGNORED.split()), path)
    for name in ("processing_kwargs", "query_length", "document_length", "query_expansion"):
        if getattr(limits, name):
            raise WeightsError(f"{path}: {name} is not supported")
    return limits


def _config(folder: Path) -> SentenceTransformersFile:
    path = folder / ST_CONFIG_FILE
    content = read_json(path) if path.is_file() else {}
    return validate_config(SentenceTransformersFile, content, frozenset(IGNORED.split()), path)


def _tokenizer_limit(folder: Path) -> int | None:
    """model_max_length of tokenizer_config.json; huge values mean no limit."""
    path = folder / TOKENIZER_CONFIG_FILE
    found = read_json(path).get("model_max_length") if path.is_file() else None
    return found if type(found) is int and 0 < found < 1 << 31 else None
