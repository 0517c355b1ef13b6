"""Generation config: defaults of a model, and Hugging Face's generation_config.json."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, StrictBool, TypeAdapter, ValidationError

from softlook.base.errors import ConfigError
from softlook.decode.beam.hypotheses import EarlyStopping, Hypothesis
from softlook.decode.logits_processors import (
    LogitsProcessor,
    SourceLookup,
    bad_words,
    encoder_no_repeat_ngram,
    encoder_repetition_penalty,
    exponential_decay_length_penalty,
    forced_eos,
    forced_prefix,
    min_new_tokens,
    no_repeat_ngram,
    renormalize_logits,
    repetition_penalty,
    suppress_tokens,
)
from softlook.decode.outputs import GeneratedToken
from softlook.weights.assets import GENERATION_FILE
from softlook.weights.manifest import BEST_FILE, SETTINGS_FILE, read_checksummed
from softlook.weights.schema import read_json

DEFAULT_BEAMS, MAX_BEAMS = 5, 256
MAX_TOKEN_IDS = 10_000
"""Maximum number of token ids or bad words in a field of a generation config."""


class UnsupportedSetting(NamedTuple):
    """A field of a generation config that softlook does not apply."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


@dataclass(frozen=True)
class GenerationConfig:
    """Generation defaults of a model, with the field names of Hugging Face's `GenerationConfig`."""

    num_beams: int = DEFAULT_BEAMS
    length_penalty: float = 1.0
    """Exponent of the length by which the log-probability of a hypothesis is divided."""
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    """0 for no limit."""
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    min_new_tokens: int = 0
    max_new_tokens: int | None = None
    """The end-of-sequence token included."""
    forced_bos_token_id: int | None = None
    """First token of every output."""
    forced_eos_token_ids: tuple[int, ...] = ()
    """Last token of outputs that reach the length limit."""
    renormalize_logits: bool = False
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    """Tokens that are masked at the first step."""
    encoder_no_repeat_ngram_size: int = 0
    """Size of source n-grams that are not generated; 0 for no limit."""
    encoder_repetition_penalty: float = 1.0
    """Above 1, source tokens become more likely."""
    exponential_decay_length_penalty: tuple[int, float] | None = None
    """(start, factor): after `start` tokens an end-of-sequence token becomes more likely."""
    early_stopping: EarlyStopping = "never"
    unsupported: tuple[UnsupportedSetting, ...] = ()
    """Fields of the file that softlook does not apply."""

    def check_supported(self, *, beam_search: bool = False) -> None:
        """Raise an error if the file sets a field that softlook does not apply.

        `beam_search`: the user requested beam search, which overrides `do_sample` of the file.
        """
        unsupported = [field for field in self.unsupported if not (beam_search and field.name == "do_sample")]
        if unsupported:
            raise ConfigError(
                f"the model's generation config sets unsupported fields: {'; '.join(map(str, unsupported))}. "
                "Remove them from generation_config.json, or from config.json if there is none"
                + (", or set num_beams" if unsupported[0].name == "do_sample" else "")
            )

    @property
    def has_logits_processors(self) -> bool:
        return bool(self.logits_processors(1))

    @property
    def uses_source(self) -> bool:
        """Whether a logits processor depends on the source."""
        return self.encoder_no_repeat_ngram_size > 0 or self.encoder_repetition_penalty != 1

    def logits_processors(
        self, max_tokens: int, eos_ids: Sequence[int] = (), source_of: SourceLookup = lambda sequence: ()
    ) -> tuple[LogitsProcessor, ...]:
        """The logits processors of outputs with at most `max_tokens` tokens, in Hugging Face's order.

        >>> config = GenerationConfig(bad_words_ids=((3,),), forced_eos_token_ids=(2,))
        >>> len(GenerationConfig().logits_processors(9)), len(config.logits_processors(9))
        (0, 2)
        """
        words = [word for word in self.bad_words_ids if word not in {(id,) for id in eos_ids}]
        first_step = 0 if self.forced_bos_token_id is None else 1
        decay = self.exponential_decay_length_penalty
        builders = (
            (
                self.encoder_repetition_penalty != 1,
                lambda: encoder_repetition_penalty(self.encoder_repetition_penalty, source_of),
            ),
            (self.repetition_penalty != 1, lambda: repetition_penalty(self.repetition_penalty)),
            (self.no_repeat_ngram_size > 0, lambda: no_repeat_ngram(self.no_repeat_ngram_size)),
            (
                self.encoder_no_repeat_ngram_size > 0,
                lambda: encoder_no_repeat_ngram(self.encoder_no_repeat_ngram_size, source_of),
            ),
            (bool(words), lambda: bad_words(words)),
            (self.min_new_tokens > 0, lambda: min_new_tokens(self.min_new_tokens, eos_ids)),
            (self.forced_bos_token_id is not None, lambda: forced_prefix([self.forced_bos_token_id or 0])),
            (bool(self.forced_eos_token_ids), lambda: forced_eos(max_tokens, self.forced_eos_token_ids)),
            (decay is not None, lambda: exponential_decay_length_penalty(*(decay or (0, 1.0)), eos_ids)),
            (bool(self.suppress_tokens), lambda: suppress_tokens(self.suppress_tokens)),
            (bool(self.begin_suppress_tokens), lambda: suppress_tokens(self.begin_suppress_tokens, first_step)),
            (self.renormalize_logits, lambda: renormalize_logits),
        )
        return tuple(build() for is_used, build in builders if is_used)

    def max_tokens_for(self, source_length: int) -> int:
        """Maximum number of new tokens for a source of this length, independent of the rest of the batch."""
        return default_max_new_tokens(source_length) if self.max_new_tokens is None else self.max_new_tokens

    def is_truncated(self, hypothesis: Hypothesis, max_tokens: int) -> bool:
        """Whether the length limit ended a hypothesis; an end-of-sequence token forced there does not count."""
        is_forced = bool(self.forced_eos_token_ids) and len(hypothesis.ids) == max_tokens - 1
        return hypothesis.eos_id is None or is_forced


def default_max_new_tokens(source_length: int) -> int:
    """Maximum length of a translation by the length of its source, as in training.

    >>> default_max_new_tokens(8), default_max_new_tokens(9)
    (24, 36)
    """
    return 12 + 12 * -(-source_length // 8)


def hypothesis_from_tokens(
    tokens: Sequence[GeneratedToken], eos_token: GeneratedToken | None, length_penalty: float
) -> Hypothesis:
    """The output of greedy decoding as a beam search hypothesis."""
    logprobs = [token.logprob for token in (*tokens, *([] if eos_token is None else [eos_token]))]
    ids, eos_id = [token.id for token in tokens], None if eos_token is None else eos_token.id
    return Hypothesis(sum(logprobs) / len(logprobs) ** length_penalty, ids, sum(logprobs), logprobs, eos_id)


TokenId = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
AS_LIST = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
COUNT = TypeAdapter(Annotated[int, Field(strict=True, ge=0, le=1 << 40)])
NUM_BEAMS = TypeAdapter(Annotated[int, Field(strict=True, ge=0, le=MAX_BEAMS)])
NUMBER, POSITIVE = TypeAdapter(Annotated[float, Field(strict=True, allow_inf_nan=False)]), TypeAdapter(Positive)
IDS = TypeAdapter(Annotated[tuple[TokenId, ...], Field(max_length=MAX_TOKEN_IDS), AS_LIST])
ONE_ID = TypeAdapter(Annotated[tuple[TokenId, ...], Field(max_length=1), AS_LIST])
WORDS = TypeAdapter(
    Annotated[tuple[Annotated[tuple[TokenId, ...], Field(min_length=1)], ...], Field(max_length=MAX_TOKEN_IDS)]
)
DECAY, EARLY_STOPPING = TypeAdapter(tuple[TokenId, Positive]), TypeAdapter(StrictBool | Literal["never"])

UNSUPPORTED_FIELDS: dict[str, Callable[[Any], bool]] = {
    "constraints": bool,
    "diversity_penalty": bool,
    "do_sample": bool,
    "dola_layers": lambda value: value is not None,
    "force_words_ids": bool,
    "guidance_scale": lambda value: value not in (None, 1),
    "max_time": lambda value: value is not None,
    "num_beam_groups": lambda value: value not in (None, 0, 1),
    "penalty_alpha": bool,
    "sequence_bias": bool,
    "stop_strings": bool,
    "token_healing": bool,
    "watermarking_config": bool,
}
"""Fields that are not applied, and a test of whether a value would change the output. Others would not."""


def load_generation_config(folder: Path, hf_config: Mapping[str, Any]) -> GenerationConfig:
    """The generation config of a run directory, or of a Hugging Face folder with this config.json.

    As in transformers, config.json counts only if there is no generation_config.json.
    """
    if hf_config:
        path = folder / GENERATION_FILE
        return parse_generation_config(read_json(path) if path.is_file() else hf_config)
    is_run = (folder / BEST_FILE).is_file() and (folder / SETTINGS_FILE).is_file()
    values = read_checksummed(folder / SETTINGS_FILE).get("values") if is_run else None
    fields = _Fields(values if isinstance(values, dict) else {})
    num_beams = fields.get("decode.num_beams", NUM_BEAMS, 0) or DEFAULT_BEAMS
    return GenerationConfig(num_beams, length_penalty=fields.get("decode.length_penalty", NUMBER, 1.0))


def parse_generation_config(values: Mapping[str, Any]) -> GenerationConfig:
    """The generation config that a JSON file describes, as transformers' `generate` applies it.

    Fields that cannot be applied are listed in `unsupported`; `GenerationConfig.check_supported` raises the error.

    >>> values = {"num_beams": 4, "bad_words_ids": [[9]], "forced_eos_token_id": 0, "max_length": 512}
    >>> parse_generation_config(values).max_new_tokens
    511
    >>> [str(field) for field in parse_generation_config({"num_beams": 2, "guidance_scale": 1.5}).unsupported]
    ['guidance_scale: 1.5']
    """
    fields = _Fields(values)
    # max_length and min_length include the decoder start token
    max_new_tokens = fields.get("max_new_tokens", COUNT, 0) or max(fields.get("max_length", COUNT, 0) - 1, 0)
    min_new_tokens = fields.get("min_new_tokens", COUNT, 0) or max(fields.get("min_length", COUNT, 0) - 1, 0)
    return GenerationConfig(
        num_beams=fields.get("num_beams", NUM_BEAMS, 0) or 1,
        length_penalty=fields.get("length_penalty", NUMBER, 1.0),
        repetition_penalty=fields.get("repetition_penalty", POSITIVE, 1.0),
        no_repeat_ngram_size=fields.get("no_repeat_ngram_size", COUNT, 0),
        bad_words_ids=fields.get("bad_words_ids", WORDS, ()),
        min_new_tokens=min_new_tokens,
        max_new_tokens=max_new_tokens or None,
        forced_bos_token_id=next(iter(fields.get("forced_bos_token_id", ONE_ID, ())), None),
        forced_eos_token_ids=fields.get("forced_eos_token_id", IDS, ()),
        renormalize_logits=values.get("renormalize_logits") is True,
        suppress_tokens=fields.get("suppress_tokens", IDS, ()),
        begin_suppress_tokens=fields.get("begin_suppress_tokens", IDS, ()),
        encoder_no_repeat_ngram_size=fields.get("encoder_no_repeat_ngram_size", COUNT, 0),
        encoder_repetition_penalty=fields.get("encoder_repetition_penalty", POSITIVE, 1.0),
        exponential_decay_length_penalty=fields.get("exponential_decay_length_penalty", DECAY, None),
        early_stopping=fields.get("early_stopping", EARLY_STOPPING, False),
        unsupported=tuple(fields.unsupported),
    )


class _Fields:
    """Fields of a generation config, checked as they are read; invalid ones are added to `unsupported`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        names = [name for name, is_set in UNSUPPORTED_FIELDS.items() if is_set(values.get(name))]
        self.unsupported = [UnsupportedSetting(name, f"{values[name]!r:.60}") for name in names]

    def get(self, name: str, type: TypeAdapter[Any], default: Any) -> Any:
        """The value of a field, or the default if it is not set or invalid."""
        value = self.values.get(name)
        if value is None:
            return default
        try:
            return type.validate_python(value)
        except ValidationError:
            self.unsupported.append(UnsupportedSetting(name, f"{value!r:.60}"))
            return default
