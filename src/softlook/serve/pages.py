"""The pages of a server: what is asked there, and who answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel

from softlook.base.errors import DataError
from softlook.serve import replies
from softlook.serve.asking import Ask
from softlook.serve.events import Events
from softlook.serve.forms import rules_for
from softlook.serve.hall import Hall, Seat, TableSeat, UnknownModelError
from softlook.serve.metrics import Metrics
from softlook.serve.parsing import ParsingRoute
from softlook.serve.replies import statuses
from softlook.serve.schemas import ChatRequest, CompletionRequest, Sampled
from softlook.serve.speaking import Chats, Completions, Shape, at_once, in_turn
from softlook.serve.waiting import Post, Waiting
from softlook.serve.wording import SHORT, aside, asks_for, check_product, limit_for, manner_of, numbered, prompt_ids

try:
    from fastapi import APIRouter, Path, Request, Response
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault

router = APIRouter(route_class=ParsingRoute)
ALWAYS = statuses(400, 401, 403, 405, 408, 413)
"""What guards may answer with on any page."""
ASKED = ALWAYS | statuses(404, 429, 500, 503)
EVENT: dict[str, Any] = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
STREAM: dict[str, Any] = {
    "description": "All at once, or word by word where `stream` is true.",
    "content": {"text/event-stream": {"schema": EVENT}},
}
USUAL = 16
"""Words of a completion where the request does not say how many, as in OpenAI's."""
Named = Annotated[str, Path(min_length=1, max_length=128)]


class Counter:
    """What pages have at hand: the models, the numbers about them, and the way back from the workers."""

    def __init__(self, hall: Hall, metrics: Metrics) -> None:
        self.hall, self.metrics = hall, metrics
        self._post: Post | None = None

    def wait(self, seat: Seat | TableSeat, asks: Sequence[Ask], request: Request) -> Waiting:
        """Hand asks to the worker, and wait for what comes."""
        loop = asyncio.get_running_loop()
        if self._post is None or self._post.loop is not loop:
            self._post = Post(loop)
        return Waiting(seat.engine, asks, self._post, request.receive)


def counter_of(request: Request) -> Counter:
    return request.app.state.counter


def written(reply: BaseModel) -> Response:
    """A reply as JSON."""
    return Response(reply.model_dump_json(), media_type="application/json")


@router.get("/healthz", response_model=replies.Health, responses=ALWAYS | {503: {"model": replies.Health}})
async def healthz(request: Request) -> Response:
    """Can all models answer?"""
    seats = counter_of(request).hall.seats
    told = {name: seat.engine.fault or ("ok" if seat.engine.alive else "ended") for name, seat in seats.items()}
    well = all(seat.engine.alive and seat.engine.fault is None for seat in seats.values())
    reply = replies.Health(status="ok" if well else "broken", models=told)
    return Response(reply.model_dump_json(), 200 if well else 503, media_type="application/json")


@router.get("/metrics", responses=ALWAYS | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    return Response(counter_of(request).metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/v1/models", response_model=replies.ModelList, responses=ALWAYS)
async def models(request: Request) -> Response:
    """The models there are."""
    return written(replies.ModelList(data=[_card(seat) for seat in counter_of(request).hall.seats.values()]))


@router.get("/v1/models/{model}", response_model=replies.ModelCard, responses=ALWAYS | statuses(404))
async def model(model: Named, request: Request) -> Response:
    """One of them."""
    seat = counter_of(request).hall.seats.get(model)
    if seat is None:
        raise UnknownModelError(f"there is no model {model!r:.80} here")
    return written(_card(seat))


@router.post("/v1/completions", response_model=replies.Completion, responses=ASKED | {200: STREAM})
async def completions(asked: CompletionRequest, request: Request) -> Response:
    """What comes after a prompt."""
    counter = counter_of(request)
    seat = counter.hall.seat(asked.model, "completions")
    prompts, limits, most = numbered("prompt", asked.prompt), counter.hall.limits, asked.max_tokens
    check_product(len(prompts) * asked.n, most or USUAL, asked.logprobs or 0, limits)
    read = await prompt_ids(seat.served, prompts)
    found = [(ids, limit_for(most, len(ids), seat.served, limits, USUAL)) for ids in read]
    asks = asks_for(asked, seat.served, found, manner_of(asked, asked.logprobs or 0, rules_for(asked, seat.served)))
    return await _answered(asked, Completions(asked, seat.served), seat, asks, request)


@router.post("/v1/chat/completions", response_model=replies.Chat, responses=ASKED | {200: STREAM})
async def chat_completions(asked: ChatRequest, request: Request) -> Response:
    """What comes after a conversation, as the model's own template writes it down."""
    counter = counter_of(request)
    seat = counter.hall.seat(asked.model, "chat")
    limits, served = counter.hall.limits, seat.served
    template = served.template
    assert template is not None
    messages = [message.plain() for message in asked.messages]
    if sum(len(message["content"]) for message in messages) > served.context * served.widest:
        raise DataError(f"this conversation is longer than the {served.context:,} tokens that there is room for")
    text = await template.written_aside(messages)
    ids = tuple(await aside(lambda: served.ids(text, served.context - 1, signs=True), len(text)))
    if not ids:
        raise DataError("the model's chat template makes nothing of this conversation")
    limit = limit_for(asked.max_completion_tokens or asked.max_tokens, len(ids), served, limits, limits.answer)
    top = asked.top_logprobs or 0
    check_product(asked.n, limit, top, limits)
    own = await aside(lambda: rules_for(asked, served), 0 if asked.response_format is None else 1 + SHORT)
    asks = asks_for(asked, served, [(ids, limit)], manner_of(asked, top, own))
    return await _answered(asked, Chats(asked, served), seat, asks, request)


async def _answered(asked: Sampled, shape: Shape, seat: Seat, asks: Sequence[Ask], request: Request) -> Response:
    counter = counter_of(request)
    waiting = counter.wait(seat, asks, request)
    if not asked.stream:
        return written(await at_once(shape, seat, waiting, counter.metrics))
    return Events(_lines(shape, seat, waiting, counter), counter.hall.limits.stalled, waiting.leave)


async def _lines(shape: Shape, seat: Seat, waiting: Waiting, counter: Counter) -> AsyncIterator[str]:
    async for chunk in in_turn(shape, seat, waiting, counter.metrics):
        yield json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))


def _card(seat: Seat | TableSeat) -> replies.ModelCard:
    served = seat.served
    card = replies.ModelCard(id=served.name, created=served.created, abilities=list(map(str, served.abilities)))
    if isinstance(seat, Seat):
        return card.model_copy(update={"context": seat.served.context})
    table = seat.served.table
    columns = [replies.Column(name=name, kind=kind) for name, kind in table.columns.items()]
    facts = replies.TableCard(target=list(table.target), columns=columns, classes=list(table.classes))
    return card.model_copy(update={"table": facts})
