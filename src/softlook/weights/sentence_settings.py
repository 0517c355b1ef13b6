"""What a folder of sentence-transformers wants done to texts before they are read, and to vectors afterwards."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
from tokenizers import Tokenizer, normalizers

from softlook.base.errors import ConfigError, WeightsError
from softlook.weights.schema import Closed, first_fault, read_json, validated
from softlook.weights.sentence import LIMITS, MODULES, includes_prompt

OWN, THEIRS, WORDS = "sentence.json", "config_sentence_transformers.json", "tokenizer_config.json"
ENCODERS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
"""sentence_*_config.json has had these names; the first that is there counts."""
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
ASIDE = "transformer_task modality_config module_output_name unpad_inputs backend __version__ model_type"


@dataclass(frozen=True)
class SentenceSettings:
    """How texts become vectors, beside the encoder and its pooling. The defaults change nothing."""

    max_length: int | None = None
    """Tokens of a text, special ones included; what is beyond is cut off."""
    lowercase: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    """Texts to put before others, by name."""
    default_prompt: str | None = None
    """The name of the prompt that is used unless another one is asked for."""
    dimensions: int | None = None
    """Numbers of a vector that are kept."""
    similarity: Similarity = "cosine"
    """How vectors are meant to be compared."""
    is_prompt_pooled: bool = True
    """Do the tokens of a prompt count in the pooling?"""

    def prompt(self, name: str | None = None) -> str:
        """The prompt of this name, or the default one.

        >>> SentenceSettings(prompts={"query": "query: "}, default_prompt="query").prompt()
        'query: '
        """
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise ConfigError(f"there is no prompt {name!r:.80}; this model has {known}")
        if self.prompts[name] and not self.is_prompt_pooled:
            raise ConfigError(
                f"this model leaves its prompts out of the pooling (include_prompt: false), which softlook does not; "
                f"the prompt {name!r:.80} cannot be used"
            )
        return self.prompts[name]

    def files(self, context: int) -> dict[str, Any]:
        """The same as sentence-transformers has it, for an encoder with so many positions: file name -> content."""
        limits = {"max_seq_length": self.max_length or context, "do_lower_case": self.lowercase}
        shorter = {} if self.dimensions is None else {"truncate_dim": self.dimensions}
        config = {
            "prompts": self.prompts,
            "default_prompt_name": self.default_prompt,
            "similarity_fn_name": self.similarity,
            **shorter,
        }
        return {LIMITS: limits, THEIRS: config}


class Limits(Closed):
    """sentence_bert_config.json."""

    max_seq_length: PositiveInt | None = None
    do_lower_case: bool = False
    processing_kwargs: dict[str, Any] | None = None
    query_length: NonNegativeInt | None = None
    document_length: NonNegativeInt | None = None
    query_expansion: Any = None


class Config(Closed):
    """config_sentence_transformers.json."""

    prompts: dict[str, str | None] = {}
    default_prompt_name: str | None = None
    truncate_dim: PositiveInt | None = None
    similarity_fn_name: Similarity | None = None


def sentence_settings(folder: Path) -> SentenceSettings:
    """The settings of a folder: of a checkpoint of softlook's, or of sentence-transformers; else the defaults."""
    if (folder / OWN).is_file():
        try:
            return TypeAdapter(SentenceSettings).validate_python(read_json(folder / OWN))
        except ValidationError as fault:
            raise WeightsError(f"{folder / OWN}: {first_fault(fault)}") from None
    return _theirs(folder) if (folder / MODULES).is_file() else SentenceSettings()


def lowercased(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer that lowercases texts before anything else is done to them."""
    before = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def _theirs(folder: Path) -> SentenceSettings:
    limits, config = _limits(folder), _config(folder)
    prompts = {name: prompt or "" for name, prompt in config.prompts.items()}
    if config.default_prompt_name is not None and config.default_prompt_name not in prompts:
        raise WeightsError(
            f"{folder / THEIRS} has the default prompt {config.default_prompt_name!r:.80}, which is not among its "
            f"prompts: {', '.join(prompts) or 'none'}"
        )
    return SentenceSettings(
        max_length=limits.max_seq_length or _tokenizer_limit(folder),
        lowercase=limits.do_lower_case,
        prompts=prompts,
        default_prompt=config.default_prompt_name,
        dimensions=config.truncate_dim,
        similarity=config.similarity_fn_name or "cosine",
        is_prompt_pooled=includes_prompt(folder),
    )


def _limits(folder: Path) -> Limits:
    paths = [folder / f"sentence_{name}_config.json" for name in ENCODERS]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return Limits()
    limits = validated(Limits, read_json(path), frozenset(ASIDE.split()), path)
    for name in ("processing_kwargs", "query_length", "document_length", "query_expansion"):
        if getattr(limits, name):
            raise WeightsError(f"{path}: {name} is set, which softlook does not know how to follow")
    return limits


def _config(folder: Path) -> Config:
    path = folder / THEIRS
    return validated(Config, read_json(path), frozenset(ASIDE.split()), path) if path.is_file() else Config()


def _tokenizer_limit(folder: Path) -> int | None:
    """What tokenizer_config.json says; a number too large to be meant stands for no limit."""
    found = read_json(folder / WORDS).get("model_max_length") if (folder / WORDS).is_file() else None
    return found if type(found) is int and 0 < found < 1 << 31 else None
