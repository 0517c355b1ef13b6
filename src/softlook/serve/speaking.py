"""The pages on which models go on: completions and chats, at once or word by word."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from softlook.decode import Reason, Token
from softlook.serve import replies
from softlook.serve.asking import Ticket
from softlook.serve.hall import Seat
from softlook.serve.metrics import Metrics
from softlook.serve.schemas import ChatRequest, CompletionRequest, Sampled
from softlook.serve.served import Served
from softlook.serve.waiting import Waiting
from softlook.serve.wording import finite, log_probability, text_of, word

REASONS: dict[Reason, Any] = {"end": "stop", "stop": "stop", "length": "length"}


class Shape(Protocol):
    """How answers are written: as completions, or as messages of a chat."""

    def whole(self, choices: list[Any], usage: replies.Usage) -> BaseModel: ...

    def choice(self, index: int, text: str, tokens: Sequence[Token], reason: str) -> Any: ...

    def opening(self, index: int) -> dict[str, Any] | None: ...

    def part(self, index: int, text: str, tokens: Sequence[Token], reason: str | None) -> dict[str, Any]: ...

    def chunk(self, choices: list[dict[str, Any]], usage: replies.Usage | None) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Head:
    """What stands at the top of every part of an answer."""

    id: str
    created: int
    model: str

    @staticmethod
    def new(kind: str, model: str) -> "Head":
        return Head(f"{kind}-{secrets.token_hex(12)}", int(time.time()), model)


class Completions:
    """A text for each choice."""

    def __init__(self, request: CompletionRequest, served: Served) -> None:
        self.request, self.served, self.head = request, served, Head.new("cmpl", served.name)
        self.offsets: dict[int, int] = {}

    def whole(self, choices: list[Any], usage: replies.Usage) -> replies.Completion:
        return replies.Completion(**vars(self.head), choices=choices, usage=usage)

    def choice(self, index: int, text: str, tokens: Sequence[Token], reason: str | None) -> Any:
        told = None if self.request.logprobs is None else self._told(index, tokens)
        return replies.CompletionChoice(index=index, text=text, logprobs=told, finish_reason=reason)  # pyright: ignore[reportArgumentType]

    def opening(self, index: int) -> None:
        return None

    def part(self, index: int, text: str, tokens: Sequence[Token], reason: str | None) -> dict[str, Any]:
        return self.choice(index, text, tokens, reason).model_dump()

    def chunk(self, choices: list[dict[str, Any]], usage: replies.Usage | None) -> dict[str, Any]:
        return {"object": "text_completion", **vars(self.head), "choices": choices} | _usage(self.request, usage)

    def _told(self, index: int, tokens: Sequence[Token]) -> replies.CompletionLogprobs:
        words, offsets = [word(self.served, token.id) for token in tokens], []
        for text in words:
            offsets.append(self.offsets.get(index, 0))
            self.offsets[index] = offsets[-1] + len(text)
        return replies.CompletionLogprobs(
            tokens=words,
            token_logprobs=[log_probability(token) for token in tokens],
            top_logprobs=[{word(self.served, id): finite(value) for id, value in token.top} for token in tokens],
            text_offset=offsets,
        )


class Chats:
    """A message for each choice."""

    def __init__(self, request: ChatRequest, served: Served) -> None:
        self.request, self.served, self.head = request, served, Head.new("chatcmpl", served.name)

    def whole(self, choices: list[Any], usage: replies.Usage) -> replies.Chat:
        return replies.Chat(**vars(self.head), choices=choices, usage=usage)

    def choice(self, index: int, text: str, tokens: Sequence[Token], reason: str) -> Any:
        message = replies.ChatMessage(content=text)
        return replies.ChatChoice(index=index, message=message, logprobs=self._told(tokens), finish_reason=reason)  # pyright: ignore[reportArgumentType]

    def opening(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def part(self, index: int, text: str, tokens: Sequence[Token], reason: str | None) -> dict[str, Any]:
        told = self._told(tokens)
        delta = {"content": text} if text or reason is None else {}
        logprobs = None if told is None else told.model_dump()
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def chunk(self, choices: list[dict[str, Any]], usage: replies.Usage | None) -> dict[str, Any]:
        return {"object": "chat.completion.chunk", **vars(self.head), "choices": choices} | _usage(self.request, usage)

    def _told(self, tokens: Sequence[Token]) -> replies.ChatLogprobs | None:
        if not self.request.logprobs:
            return None
        told = []
        for token in tokens:
            tops = [replies.TopToken(**self._word(id, value)) for id, value in token.top]
            told.append(replies.ChatToken(**self._word(token.id, token.log_probability), top_logprobs=tops))
        return replies.ChatLogprobs(content=told)

    def _word(self, id: int, value: float) -> dict[str, Any]:
        text = word(self.served, id)
        whole = self.served.tokenizer.decode([id]) == text
        written = list(text.encode("utf-8", "replace")) if whole else None
        return {"token": text, "logprob": finite(value), "bytes": written}


async def at_once(shape: Shape, seat: Seat, waiting: Waiting, metrics: Metrics) -> BaseModel:
    """All choices, when the last of them is over."""
    tickets = await waiting.all()
    choices = [
        shape.choice(index, await text_of(ticket, seat.served), ticket.row.tokens, reason_of(ticket))
        for index, ticket in enumerate(tickets)
    ]
    return shape.whole(choices, counted(tickets, seat.served, metrics))


async def in_turn(shape: Shape, seat: Seat, waiting: Waiting, metrics: Metrics) -> AsyncIterator[dict[str, Any]]:
    """Chunks as words come. Text that may still change is kept back, and so is half a character."""
    for index in range(len(waiting.tickets)):
        opening = shape.opening(index)
        if opening is not None:
            yield shape.chunk([opening], None)
    silent: dict[int, list[Token]] = {}
    async for index, piece in waiting.pieces():
        reason = None if piece.reason is None else REASONS[piece.reason]
        silent.setdefault(index, []).extend(piece.tokens)
        if piece.text or reason is not None:
            yield shape.chunk([shape.part(index, piece.text, silent.pop(index), reason)], None)
    usage = shape.chunk([], counted(waiting.tickets, seat.served, metrics))
    if "usage" in usage:
        yield usage


def counted(tickets: Sequence[Ticket], served: Served, metrics: Metrics) -> replies.Usage:
    """Tokens that were read and said. A prompt counts once, however many answers it got."""
    read = sum(len(ticket.ask.source or ticket.ask.prompt) for ticket in tickets if ticket.ask.number == 0)
    spoken = sum(len(ticket.row.new) + (ticket.row.end is not None) for ticket in tickets)
    metrics.tokens.labels(served.name, "read").inc(read)
    metrics.tokens.labels(served.name, "said").inc(spoken)
    return replies.Usage(prompt_tokens=read, completion_tokens=spoken, total_tokens=read + spoken)


def reason_of(ticket: Ticket) -> str:
    assert ticket.row.reason is not None
    return REASONS[ticket.row.reason]


def _usage(request: Sampled, usage: replies.Usage | None) -> dict[str, Any]:
    """Only who asks for it is told, and then under every chunk, if only as null."""
    if not request.tells_usage:
        return {}
    return {"usage": None if usage is None else usage.model_dump()}
