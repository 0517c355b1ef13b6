"""Tokenization, limits and logits processors of a request."""

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

from softlook.base.errors import ConfigError, DataError
from softlook.decode import LogitsProcessor, StopStrings, json_schema, logit_bias
from softlook.decode.sampling import SamplingParams
from softlook.serve.engine.request import EngineRequest, ServerLimits
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.protocol.parsing import BadRequestError
from softlook.serve.protocol.requests import ChatRequest, CompletionRequest, GenerationFields, ResponseFormat
from softlook.tokens.template import TemplatedInput

Result = TypeVar("Result")
Inputs = str | list[str] | list[int] | list[list[int]]
SAMPLING_FIELDS = {field.name for field in fields(SamplingParams)} & set(GenerationFields.model_fields)
INLINE_SIZE = 2000
"""Characters up to which work is done in the event loop; more would block other requests."""
MAX_SCHEMA_CHARS = 1 << 16
MAX_SCHEMA_DEPTH = 64
GRAMMAR_LIMITS = {"max_lexer_states": 10_000, "max_grammar_size": 100_000, "max_items_in_row": 500}
"""Limits on following a schema: about 20 MB, and 20 ms per token. A schema that exceeds them is an error."""


async def offload(work: Callable[[], Result], size: int) -> Result:
    """Run small work in the event loop, and large work in another thread."""
    return work() if size <= INLINE_SIZE else await asyncio.to_thread(work)


def by_json_path(field: str, inputs: Inputs) -> dict[str, str | list[int]]:
    """The texts or id lists of a field by their JSON paths.

    >>> by_json_path("prompt", "a"), by_json_path("prompt", [3, 4]), by_json_path("prompt", ["a", "b"])
    ({'prompt': 'a'}, {'prompt': [3, 4]}, {'prompt[0]': 'a', 'prompt[1]': 'b'})
    """
    if isinstance(inputs, str) or isinstance(inputs[0], int):
        return {field: inputs}  # pyright: ignore[reportReturnType]  (a list of ids, as its first item shows)
    return {f"{field}[{index}]": one for index, one in enumerate(inputs)}  # pyright: ignore[reportReturnType]


async def tokenize_prompts(loaded: LoadedModel, prompts: Mapping[str, str | list[int]]) -> list[tuple[int, ...]]:
    """Token ids of prompts. An empty prompt becomes the beginning-of-sequence token."""
    special, results = loaded.special_tokens, []
    encoded = await tokenize_inputs(loaded, prompts, len(special.prefix) + 1, num_reserved_for_ids=1)
    for prompt, ids in zip(prompts.values(), encoded, strict=True):
        full = (*special.prefix, *ids) if isinstance(prompt, str) else tuple(ids)
        if not full and not special.start:
            raise DataError("the prompt is empty, and this model has no beginning-of-sequence token")
        results.append(full or special.start)
    return results


async def tokenize_inputs(
    loaded: LoadedModel,
    inputs: Mapping[str, str | list[int]],
    num_reserved: int,
    *,
    num_reserved_for_ids: int | None = None,
) -> list[list[int]]:
    """Token ids of texts or id lists, leaving `num_reserved` positions of the context for other tokens."""
    for_text = loaded.context - num_reserved
    for_ids = for_text if num_reserved_for_ids is None else loaded.context - num_reserved_for_ids

    def encode(path: str, one: str | list[int]) -> list[int]:
        if not isinstance(one, str):
            return check_token_ids(loaded, path, one, for_ids)
        try:
            return loaded.encode(one, for_text)
        except DataError as error:
            raise BadRequestError(str(error), path) from None

    return await offload(lambda: [encode(*item) for item in inputs.items()], sum(map(len, inputs.values())))


def check_token_ids(loaded: LoadedModel, path: str, ids: list[int], max_length: int) -> list[int]:
    """The ids, if they fit and are in the vocabulary."""
    if len(ids) > max_length:
        raise BadRequestError(f"expected at most {max_length:,} tokens, got {len(ids):,}", path)
    size = loaded.vocab_size
    if ids and not (min(ids) >= 0 and max(ids) < size):
        index, wrong = next((index, id) for index, id in enumerate(ids) if not 0 <= id < size)
        raise BadRequestError(f"expected a token id from 0 to {size - 1}, got {str(wrong):.40}", f"{path}[{index}]")
    return ids


def resolve_max_new_tokens(
    max_tokens: int | None, prompt_length: int, loaded: LoadedModel, limits: ServerLimits, default: int
) -> int:
    """The requested number of new tokens, if it fits into the context and the limits."""
    available = loaded.context - prompt_length
    if max_tokens is None:
        return max(min(default, available, limits.max_new_tokens), 1)
    if max_tokens > available:
        raise DataError(
            f"a prompt of {prompt_length:,} tokens and {max_tokens:,} new tokens exceed the context of "
            f"{loaded.context:,}; at most {available:,} new tokens fit"
        )
    if max_tokens > limits.max_new_tokens:
        raise DataError(f"expected at most {limits.max_new_tokens:,} new tokens, got {max_tokens:,}")
    return max_tokens


def check_total_tokens(num_sequences: int, max_new_tokens: int, num_logprobs: int, limits: ServerLimits) -> None:
    """Check the product of numbers that are each within their bounds."""
    total = num_sequences * max_new_tokens * (1 + num_logprobs)
    if total > limits.max_request_tokens or num_sequences > limits.max_queue:
        raise DataError(
            f"{num_sequences} sequences of {max_new_tokens:,} tokens with {num_logprobs} alternatives each are "
            f"{total:,} in total; the maximum is {limits.max_request_tokens:,}. Split the request"
        )


def generation_requests(
    request: GenerationFields,
    loaded: LoadedModel,
    prompts: Sequence[tuple[tuple[int, ...], int]],
    num_logprobs: int,
    extra_processors: tuple[LogitsProcessor, ...],
) -> list[EngineRequest]:
    """`n` engine requests for each prompt, given with its maximum number of new tokens."""
    params = request.model_dump(include=SAMPLING_FIELDS)
    sampling = SamplingParams(**params, num_logprobs=num_logprobs, extra_processors=extra_processors)
    seed = secrets.randbits(62) if request.seed is None else request.seed
    stop = StopStrings(loaded.tokenizer, request.stop_strings) if request.stream or request.stop_strings else None
    return [
        EngineRequest(
            ids,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            cache_salt=request.cache_salt,
            seed=seed,
            sample_index=index,
            eos_ids=loaded.eos_ids,
            stop=stop,
            stream=request.stream,
        )
        for ids, max_new_tokens in prompts
        for index in range(request.n)
    ]


class EncoderInput(NamedTuple):
    """An input of an encoder."""

    request: EngineRequest
    num_tokens: int
    """Including special tokens and the tokens removed by truncation."""
    truncated: bool


async def encoder_inputs(
    loaded: LoadedModel, texts: Mapping[str, str | list[int]], pairs: Sequence[str] = ()
) -> list[EncoderInput]:
    """Inputs of an encoder. Long texts are truncated as by the command line; lists of ids are not, but rejected."""
    max_ids = loaded.context - loaded.frame.num_special_single

    def encode(path: str, one: str | list[int], pair: str) -> EncoderInput:
        if isinstance(one, str):
            row, num_removed = loaded.encode_truncated(one, pair)
        else:
            row, num_removed = loaded.frame.apply(check_token_ids(loaded, path, one, max_ids)), 0
        return EncoderInput(encode_request(row), len(row.ids) + num_removed, num_removed > 0)

    rows = list(zip(texts.items(), pairs or [""] * len(texts), strict=True))
    size = sum(map(len, texts.values())) + sum(map(len, pairs))
    return await offload(lambda: [encode(*item, pair) for item, pair in rows], size)


def encode_request(row: TemplatedInput) -> EngineRequest:
    """A text, or a pair of texts, with the special tokens an encoder expects."""
    return EngineRequest(tuple(row.ids), second_start=row.token_types.index(1) if 1 in row.token_types else None)


def logits_processors(request: CompletionRequest | ChatRequest, loaded: LoadedModel) -> tuple[LogitsProcessor, ...]:
    """Logit bias and response format of a request. Compiling a schema is slow: not for the event loop."""
    bias = () if not request.logit_bias else (logit_bias(_check_bias(request.logit_bias, loaded)),)
    response_format = request.response_format if isinstance(request, ChatRequest) else None
    schema = None if response_format is None else _check_schema(response_format)
    if schema is None:
        return bias
    if not loaded.eos_ids:
        raise BadRequestError("this model has no end-of-sequence token, so JSON would never end", "response_format")
    try:
        return (*bias, json_schema(loaded.tokenizer, schema, eos_ids=loaded.eos_ids, limits=GRAMMAR_LIMITS))
    except ConfigError as error:
        raise BadRequestError(str(error), "response_format") from None


def _check_bias(bias: dict[int, float], loaded: LoadedModel) -> dict[int, float]:
    wrong = next((id for id in bias if id >= loaded.vocab_size), None)
    if wrong is not None:
        expected = f"expected a token id from 0 to {loaded.vocab_size - 1}"
        raise BadRequestError(f"{expected}, got {wrong}", f"logit_bias.{wrong}")
    return bias


def _check_schema(response_format: ResponseFormat) -> dict[str, Any] | None:
    """The JSON schema of a response format, if it is of reasonable size."""
    if (response_format.type == "json_schema") != (response_format.json_schema is not None):
        expected = "a schema" if response_format.type == "json_schema" else "no schema"
        raise BadRequestError(f"expected {expected} with type {response_format.type}", "response_format.json_schema")
    schema = response_format.definition
    if schema is not None and (len(json.dumps(schema)) > MAX_SCHEMA_CHARS or _depth(schema) > MAX_SCHEMA_DEPTH):
        raise BadRequestError(
            f"expected a schema of at most {MAX_SCHEMA_CHARS:,} characters and {MAX_SCHEMA_DEPTH} nested levels",
            "response_format.json_schema.schema",
        )
    return schema


def _depth(value: Any) -> int:
    """Nesting depth of lists and objects; the JSON parser bounds it to 200."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0
