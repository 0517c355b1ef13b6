"""OpenAI's response format: choices, chunks, logprobs, server-sent events."""

import asyncio
import json
import logging
import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from starlette.responses import Response

from softlook.decode import FinishReason, GeneratedToken, IncrementalDetokenizer
from softlook.decode.detokenizer import REPLACEMENT_CHARACTER
from softlook.serve.engine.engine import ClientDisconnectedError, EngineStoppedError, PendingRequests
from softlook.serve.engine.request import ScheduledRequest
from softlook.serve.engine.scheduler import REQUEST_ERRORS, ModelError
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.metrics import Metrics
from softlook.serve.protocol import responses
from softlook.serve.protocol.preprocess import offload
from softlook.serve.protocol.requests import ChatRequest, CompletionRequest, GenerationFields

log = logging.getLogger("softlook.serve")
FINISH_REASONS: dict[FinishReason, Any] = {"eos": "stop", "stop": "stop", "length": "length"}
MIN_LOGPROB = -9999.0
"""Replaces log-probabilities that JSON cannot represent."""
SSE_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))
DONE = b"data: [DONE]\n\n"
Body = TypeVar("Body", bound=GenerationFields)
Tokens = Sequence[GeneratedToken]


class ResponseFormatter(ABC, Generic[Body]):
    """Formats the outputs of a request, whole or as chunks of a stream."""

    id_prefix: str
    chunk_object: str
    response_class: type[responses.Completion | responses.ChatCompletion]

    def __init__(self, request: Body, loaded: LoadedModel) -> None:
        self.request, self.loaded = request, loaded
        id = f"{self.id_prefix}-{secrets.token_hex(12)}"
        self.header = {"id": id, "created": int(time.time()), "model": loaded.name}
        """Fields repeated in every chunk of a response."""

    def response(self, choices: list[Any], usage: responses.Usage) -> BaseModel:
        return self.response_class(**self.header, choices=choices, usage=usage)

    def chunk(self, choices: list[dict[str, Any]], usage: responses.Usage | None = None) -> dict[str, Any]:
        """A chunk. It has a usage field only if requested, which is null in all chunks but the last."""
        chunk = {"object": self.chunk_object, **self.header, "choices": choices}
        if not self.request.include_usage:
            return chunk
        return chunk | {"usage": None if usage is None else usage.model_dump()}

    @abstractmethod
    def choice(self, index: int, text: str, tokens: Tokens, finish_reason: Any) -> BaseModel: ...

    @abstractmethod
    def delta(self, index: int, text: str, tokens: Tokens, finish_reason: str | None) -> dict[str, Any]: ...

    def first_delta(self, index: int) -> dict[str, Any] | None:
        return None


class CompletionFormatter(ResponseFormatter[CompletionRequest]):
    """Formats /v1/completions."""

    id_prefix, chunk_object, response_class = "cmpl", "text_completion", responses.Completion

    def __init__(self, request: CompletionRequest, loaded: LoadedModel) -> None:
        super().__init__(request, loaded)
        self.offsets: dict[int, int] = {}

    def choice(self, index: int, text: str, tokens: Tokens, finish_reason: Any) -> responses.CompletionChoice:
        logprobs = None if self.request.logprobs is None else self._logprobs(index, tokens)
        return responses.CompletionChoice(index=index, text=text, logprobs=logprobs, finish_reason=finish_reason)

    def delta(self, index: int, text: str, tokens: Tokens, finish_reason: str | None) -> dict[str, Any]:
        return self.choice(index, text, tokens, finish_reason).model_dump()

    def _logprobs(self, index: int, tokens: Tokens) -> responses.CompletionLogprobs:
        texts, offsets = [token_text(self.loaded, token.id) for token in tokens], []
        for text in texts:
            offsets.append(self.offsets.get(index, 0))
            self.offsets[index] = offsets[-1] + len(text)
        return responses.CompletionLogprobs(
            tokens=texts,
            token_logprobs=[finite_logprob(token.logprob) for token in tokens],
            top_logprobs=[
                {token_text(self.loaded, id): finite_logprob(lp) for id, lp in token.top_logprobs} for token in tokens
            ],
            text_offset=offsets,
        )


class ChatFormatter(ResponseFormatter[ChatRequest]):
    """Formats /v1/chat/completions."""

    id_prefix, chunk_object, response_class = "chatcmpl", "chat.completion.chunk", responses.ChatCompletion

    def choice(self, index: int, text: str, tokens: Tokens, finish_reason: Any) -> responses.ChatChoice:
        message, logprobs = responses.ChatMessage(content=text), self._logprobs(tokens)
        return responses.ChatChoice(index=index, message=message, logprobs=logprobs, finish_reason=finish_reason)

    def first_delta(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(self, index: int, text: str, tokens: Tokens, finish_reason: str | None) -> dict[str, Any]:
        content = {"content": text} if text or finish_reason is None else {}
        logprobs = self._logprobs(tokens)
        dumped = None if logprobs is None else logprobs.model_dump()
        return {"index": index, "delta": content, "logprobs": dumped, "finish_reason": finish_reason}

    def _logprobs(self, tokens: Tokens) -> responses.ChatLogprobs | None:
        if not self.request.logprobs:
            return None
        content = []
        for token in tokens:
            top = [responses.TopLogprob(**self._entry(id, logprob)) for id, logprob in token.top_logprobs]
            content.append(responses.TokenLogprob(**self._entry(token.id, token.logprob), top_logprobs=top))
        return responses.ChatLogprobs(content=content)

    def _entry(self, id: int, logprob: float) -> dict[str, Any]:
        text = token_text(self.loaded, id)
        is_text = self.loaded.tokenizer.decode([id]) == text
        return {
            "token": text,
            "logprob": finite_logprob(logprob),
            "bytes": list(text.encode("utf-8", "replace")) if is_text else None,
        }


async def full_response(formatter: ResponseFormatter[Any], pending: PendingRequests, metrics: Metrics) -> BaseModel:
    """All choices, once the last one is finished."""
    requests, choices = await pending.wait(), list[BaseModel]()
    for index, scheduled in enumerate(requests):
        text, reason = await generated_text(scheduled, formatter.loaded), scheduled.row.finish_reason
        assert reason is not None
        choices.append(formatter.choice(index, text, scheduled.row.tokens, FINISH_REASONS[reason]))
    return formatter.response(choices, count_generated(requests, formatter.loaded, metrics))


async def stream_chunks(
    formatter: ResponseFormatter[Any], pending: PendingRequests, metrics: Metrics
) -> AsyncIterator[dict[str, Any]]:
    """Chunks as tokens arrive. Text that may still change, such as half a character, is held back."""
    for index in range(len(pending.requests)):
        first = formatter.first_delta(index)
        if first is not None:
            yield formatter.chunk([first])
    held: dict[int, list[GeneratedToken]] = {}
    async for index, output in pending.outputs():
        reason = None if output.finish_reason is None else FINISH_REASONS[output.finish_reason]
        held.setdefault(index, []).extend(output.tokens)
        if output.text or reason is not None:
            yield formatter.chunk([formatter.delta(index, output.text, held.pop(index), reason)])
    usage = count_generated(pending.requests, formatter.loaded, metrics)
    if formatter.request.include_usage:
        yield formatter.chunk([], usage)


def count_generated(requests: Sequence[ScheduledRequest], loaded: LoadedModel, metrics: Metrics) -> responses.Usage:
    """Usage of sampled sequences."""
    generated = sum(len(scheduled.row.generated) + (scheduled.row.eos_token is not None) for scheduled in requests)
    return count_usage(requests, generated, loaded, metrics)


def count_usage(
    requests: Sequence[ScheduledRequest], num_generated: int, loaded: LoadedModel, metrics: Metrics
) -> responses.Usage:
    """Prompt and completion tokens. A prompt counts once, however many samples it has."""
    prompts = [scheduled.request for scheduled in requests if scheduled.request.sample_index == 0]
    prompt_tokens = sum(len(one.prompt if one.source is None else one.source) for one in prompts)
    metrics.observe_tokens(loaded.name, prompt_tokens, num_generated)
    metrics.observe_latency(loaded.name, requests)
    total = prompt_tokens + num_generated
    return responses.Usage(prompt_tokens=prompt_tokens, completion_tokens=num_generated, total_tokens=total)


async def generated_text(scheduled: ScheduledRequest, loaded: LoadedModel) -> str:
    """The text of the generated tokens, equal to the concatenated chunks of a stream."""
    row = scheduled.row
    if row.stop_checker is not None:
        return row.stop_checker.text

    def decode() -> str:
        stream = IncrementalDetokenizer(loaded.tokenizer, scheduled.request.prompt[-16:])
        return "".join([*map(stream.push, row.generated), stream.finish()])

    return await offload(decode, 16 * len(row.generated))


def token_text(loaded: LoadedModel, id: int) -> str:
    """The text of one token; the tokenizer's spelling if it is not text on its own (half a character)."""
    text = loaded.tokenizer.decode([id])
    return text if text and REPLACEMENT_CHARACTER not in text else loaded.tokenizer.tokenizer.id_to_token(id) or ""


def finite_logprob(value: float) -> float:
    return value if math.isfinite(value) else MIN_LOGPROB


class EventStream(Response):
    """Server-sent events. A client that accepts nothing for `send_timeout` seconds is dropped."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[dict[str, Any]], send_timeout: float, close: Callable[[], None]) -> None:
        """`close` is always called at the end: a generator that never started does not clean up."""
        super().__init__()
        self.chunks, self.send_timeout, self.close = chunks, send_timeout, close

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            async with asyncio.timeout(self.send_timeout):
                await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS]})
            async for event in self._events():
                async with asyncio.timeout(self.send_timeout):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (ClientDisconnectedError, TimeoutError, OSError):
            log.info("a client disconnected before its response was complete")
        finally:
            self.close()
            with suppress(RuntimeError):
                await self.chunks.aclose()  # pyright: ignore[reportAttributeAccessIssue]  (it is a generator)

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.chunks:
                data = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
                yield b"data: " + data.encode() + b"\n\n"
        except (ClientDisconnectedError, TimeoutError, OSError, GeneratorExit):
            raise
        except Exception as error:  # the response has started: the error can only be sent as an event
            log.error("a stream failed with %s: %s", type(error).__name__, error)
            is_known = isinstance(error, ModelError | EngineStoppedError | REQUEST_ERRORS)
            message = str(error) if is_known else "the model failed while generating"
            detail = responses.ErrorDetail(message=message, type="server_error")
            yield b"data: " + json.dumps({"error": detail.model_dump()}).encode() + b"\n\n"
        yield DONE
