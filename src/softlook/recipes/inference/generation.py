"""Text generation with a causal language model."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import randbelow
from typing import Any

from torch import Tensor, nn

from softlook import decode
from softlook.base.errors import ConfigError
from softlook.decode import (
    ContextShift,
    FinishReason,
    GeneratedToken,
    GenerationOutput,
    Greedy,
    LogitsProcessor,
    Multinomial,
    Sampler,
    SequenceView,
    StopStrings,
    TransformerXLSession,
    create_session,
    json_schema,
    repetition_penalty,
    stream_text,
)
from softlook.decode.alignment import token_texts
from softlook.decode.guidance import GuidedSession
from softlook.decode.sessions import DecodingSession
from softlook.models import TransformerXL
from softlook.recipes.inference.pipeline import Pipeline, TextInput, batch_by_length, to_inputs
from softlook.tokens.label_tokens import label_ids

log = logging.getLogger("softlook.recipes")
DEFAULT_MAX_NEW_TOKENS = 200
MAX_BATCH_SIZE, MAX_BATCH_TOKENS = 64, 1 << 15
"""Limits of a batch of prompts and their outputs."""


@dataclass(frozen=True, kw_only=True)
class GenerationParams:
    """Sampling and stopping parameters."""

    max_new_tokens: int | None = None
    """Default: 200; without `context_shift`, at most what fits into the context."""
    temperature: float = 0.8
    """0 decodes greedily."""
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    """Random seed; default: a new one for each call."""
    stop: tuple[str, ...] = ()
    repetition_penalty: float = 1.0
    """Above 1, tokens that occurred before become less likely."""
    json_schema: Mapping[str, Any] | None = None
    """A JSON schema that the output conforms to."""
    label: str | None = None
    """The class of the text, of a model trained with `--label`."""
    guidance: float = 1.0
    """Classifier-free guidance: above 1, the text follows its label more strongly. It stays within the context."""
    context_shift: bool = True
    """Whether to generate beyond the context of the model (`decode.ContextShift`), and to read the end of a prompt that
    does not fit into it; else both are errors."""


@dataclass(frozen=True)
class GeneratedText:
    """The continuation of a prompt."""

    prompt: str
    text: str
    finish_reason: FinishReason
    logprob: float
    tokens: list[GeneratedToken]
    token_texts: list[str]
    seed: int | None


def generate(
    pipeline: Pipeline,
    prompts: Iterable[str | TextInput],
    params: GenerationParams | None = None,
    *,
    num_samples: int = 1,
    indices: Sequence[int] | None = None,
) -> list[GeneratedText]:
    """Continue prompts, each `num_samples` times, in their order. All of them are kept in memory.

    With a seed, each output has its own random numbers, by the index of its prompt: its position, or that in `indices`.
    """
    generator = TextGenerator(pipeline, params or GenerationParams())
    if num_samples < 1:
        raise ConfigError(f"expected num_samples of at least 1, got {num_samples}")
    distinct = to_inputs(prompts)
    inputs = [item for item in distinct for _ in range(num_samples)]
    positions = range(len(distinct)) if indices is None else indices
    output_indices = [position * num_samples + sample for position in positions for sample in range(num_samples)]
    rows = [row for row in generator.encode(distinct) for _ in range(num_samples)]
    outputs: dict[int, GenerationOutput] = {}
    lengths = [len(row) for row in rows]
    limits, sizes = [generator.max_new_tokens(row) for row in rows], [generator.cache_size(row) for row in rows]
    for batch in batch_by_length(lengths, limits, sizes, max_tokens=MAX_BATCH_TOKENS, max_size=MAX_BATCH_SIZE):
        options = generator.options(rows[batch[0]], [output_indices[number] for number in batch])
        prompt_ids = [rows[number] for number in batch]
        generated = decode.generate(generator.decoder(), prompt_ids, stop_strings=generator.stop_strings, **options)
        outputs |= zip(batch, generated, strict=True)
    return [generator.result(item, rows[number], outputs[number]) for number, item in enumerate(inputs)]


def stream(
    pipeline: Pipeline, prompt: str | TextInput, params: GenerationParams | None = None, *, index: int = 0
) -> Iterator[str]:
    """Continue one prompt and yield text as it is generated: in total, what `generate` returns for this index."""
    generator = TextGenerator(pipeline, params or GenerationParams())
    (row,) = generator.encode(to_inputs([prompt]))
    tokens = decode.stream(generator.decoder(), row, **generator.options(row, [index]))
    return stream_text(tokens, generator.stop_strings, row)


def long_prompts_warning(lengths: Sequence[int], context: int) -> str:
    """Warning about prompts, given by their lengths in tokens, that fill the context.

    >>> long_prompts_warning([300], 128)
    'a prompt of 300 tokens does not fit into the context of 128: the model reads its last 64 tokens'
    """
    if len(lengths) == 1:
        return (
            f"a prompt of {lengths[0]:,} tokens does not fit into the context of {context:,}: "
            f"the model reads its last {context // 2:,} tokens"
        )
    return (
        f"{len(lengths):,} prompts of up to {max(lengths):,} tokens do not fit into the context of {context:,}: "
        f"the model reads the last {context // 2:,} tokens of each"
    )


class TextGenerator:
    """A pipeline and parameters in the form that `softlook.decode` expects."""

    def __init__(self, pipeline: Pipeline, params: GenerationParams) -> None:
        if params.seed is None and params.temperature != 0:
            # torch's global generator starts with the same state in every process
            params = replace(params, seed=randbelow(1 << 32))
        self.pipeline, self.params = pipeline.require("generate"), params
        self.context = create_session(pipeline.model).max_length
        num_keep = len(pipeline.special_tokens.prefix)
        if self.context is not None:
            num_keep = max(min(num_keep, self.context // 2 - 1), 0)
        self.label_ids = self._label_ids()
        num_keep += len(self.label_ids)
        self.shift = ContextShift(num_keep) if params.context_shift and params.guidance == 1 else None
        self.stop_strings = StopStrings(pipeline.tokenizer, params.stop)
        self.sampler: Sampler = Greedy()
        if params.temperature < 0:
            raise ConfigError(f"expected a temperature of at least 0, got {params.temperature}")
        if params.temperature > 0:
            self.sampler = Multinomial(params.temperature, params.top_k, params.top_p, params.min_p, params.seed)
        self.logits_processors: list[LogitsProcessor] = []
        if params.repetition_penalty != 1:
            self.logits_processors.append(repetition_penalty(params.repetition_penalty))
        if params.json_schema is not None:
            eos_id = next(iter(pipeline.special_tokens.eos), None)
            self.logits_processors.append(json_schema(pipeline.tokenizer, params.json_schema, eos_ids=eos_id))

    def options(self, row: Sequence[int], indices: Sequence[int]) -> dict[str, Any]:
        """Options of a batch by its first prompt, and the indices of its outputs among all."""

        def sample(logits: Tensor, sequences: Sequence[SequenceView]) -> Tensor:
            """The random numbers depend on an output's index among all, not on its row in a batch."""
            return self.sampler(logits, [replace(one, index=indices[one.index]) for one in sequences])

        return {
            "sampler": sample,
            "logits_processors": self.logits_processors,
            "eos_ids": self.pipeline.special_tokens.eos,
            "max_new_tokens": self.max_new_tokens(row),
            "context_shift": self.shift,
        }

    def encode(self, inputs: Sequence[TextInput]) -> list[list[int]]:
        """The ids of prompts; log a warning about those of which the model reads only the end."""
        rows = [self._encode(item) for item in inputs]
        if self.context is not None and self.shift is not None:
            lengths = [len(row) for row in rows if len(row) >= self.context]
            if lengths:
                log.warning(long_prompts_warning(lengths, self.context))
        return rows

    def _encode(self, item: TextInput) -> list[int]:
        special = self.pipeline.special_tokens
        row = [*special.prefix, *self.label_ids, *self.pipeline.tokenizer.encode(item.text)] or list(special.start)
        if not row:
            raise item.error(f"{self.pipeline.name} has no BOS token", "give a prompt")
        room, requested = None if self.context is None else self.context - len(row), self.params.max_new_tokens
        if self.shift is None and room is not None and room < (requested or 1):
            message = (
                f"{requested or 1:,} new tokens after a prompt of {len(row):,} exceed the context of {self.context:,}"
            )
            advice = f"--max-new-tokens {room}, a shorter prompt" if room > 0 else "a shorter prompt"
            raise item.error(message, f"{advice}, or remove --no-context-shift")
        return row

    def max_new_tokens(self, row: Sequence[int]) -> int:
        """The limit for a prompt. It depends on this prompt only, not on others in the batch."""
        if self.params.max_new_tokens is not None:
            return self.params.max_new_tokens
        if self.context is None or self.shift is not None:
            return DEFAULT_MAX_NEW_TOKENS
        return min(DEFAULT_MAX_NEW_TOKENS, self.context - len(row))

    def cache_size(self, row: Sequence[int]) -> int:
        """Tokens in the KV cache for a prompt and its output."""
        size = len(row) + self.max_new_tokens(row)
        return size if self.context is None else min(size, self.context)

    def _label_ids(self) -> list[int]:
        """The token of the label, if there is one."""
        known, label = label_ids(self.pipeline.tokenizer.tokenizer), self.params.label
        if label is None:
            if self.params.guidance != 1:
                raise ConfigError("guidance needs a label: add --label NAME")
            return []
        if label not in known:
            labels = f"its labels are {', '.join(known):.300}" if known else "train one with: softlook train lm --label"
            raise ConfigError(f"{self.pipeline.name} has no label {label!r:.80}; {labels}")
        return [known[label]]

    def decoder(self) -> nn.Module | DecodingSession:
        """The model; a Transformer-XL with a memory as long as in training, if that is known; or two of them."""
        if self.params.guidance == 1:
            return self._decoder()
        one, two = (
            create_session(decoder) if isinstance(decoder, nn.Module) else decoder
            for decoder in (self._decoder(), self._decoder())
        )
        position = len(self.pipeline.special_tokens.prefix)
        return GuidedSession(one, two, scale=self.params.guidance, position=position)

    def _decoder(self) -> nn.Module | TransformerXLSession:
        model, max_length = self.pipeline.model, self.pipeline.max_length
        if isinstance(model, TransformerXL) and max_length is not None:
            return TransformerXLSession(model, max_length)
        return model

    def result(self, item: TextInput, row: Sequence[int], output: GenerationOutput) -> GeneratedText:
        return GeneratedText(
            item.text,
            output.text or "",
            output.finish_reason,
            output.logprob,
            output.tokens,
            token_texts(self.pipeline.tokenizer, output.ids, row),
            None if self.params.temperature == 0 else self.params.seed,
        )
