"""From texts to asks, and from tokens to texts."""

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from softlook.base.errors import DataError
from softlook.decode import Rule, Stop, TextStream, Token
from softlook.decode.text import BROKEN
from softlook.serve.asking import Ask, Manner, Ticket
from softlook.serve.limits import Limits
from softlook.serve.parsing import BadRequestError
from softlook.serve.schemas import Sampled
from softlook.serve.served import Served

Made = TypeVar("Made")
Inputs = str | list[str] | list[int] | list[list[int]]
SHORT = 2000
"""Characters up to which a text is cut up at once; longer ones would keep everybody waiting."""
LEAST = -9999.0
"""Stands for log-probabilities that JSON cannot write."""


async def aside(work: Callable[[], Made], size: int) -> Made:
    """Do it here where it is little, and else in another thread."""
    return work() if size <= SHORT else await asyncio.to_thread(work)


def numbered(field: str, given: Inputs) -> dict[str, str | list[int]]:
    """The texts or lists of ids of a field by their JSON paths.

    >>> numbered("prompt", "a"), numbered("prompt", [3, 4]), numbered("prompt", ["a", "b"])
    ({'prompt': 'a'}, {'prompt': [3, 4]}, {'prompt[0]': 'a', 'prompt[1]': 'b'})
    """
    if isinstance(given, str) or isinstance(given[0], int):
        return {field: given}  # pyright: ignore[reportReturnType]  (a list of ids, as its first item says)
    return {f"{field}[{number}]": one for number, one in enumerate(given)}  # pyright: ignore[reportReturnType]


async def prompt_ids(served: Served, prompts: Mapping[str, str | list[int]]) -> list[tuple[int, ...]]:
    """What a model is to go on from. Where nothing is asked, it begins."""
    found = []
    coded = await input_ids(served, prompts, len(served.signs.before) + 1, bare=1)
    for prompt, ids in zip(prompts.values(), coded, strict=True):
        whole = (*served.signs.before, *ids) if isinstance(prompt, str) else tuple(ids)
        if not whole and not served.signs.begin:
            raise DataError("the prompt is empty, and this model knows no sign to begin with")
        found.append(whole or served.signs.begin)
    return found


async def input_ids(
    served: Served, inputs: Mapping[str, str | list[int]], around: int, *, bare: int | None = None
) -> list[list[int]]:
    """Texts or ids; so many places are kept for what stands `around` a text, or with ids, which may come `bare`."""
    rooms = served.context - around, served.context - (around if bare is None else bare)

    def read(path: str, one: str | list[int]) -> list[int]:
        return served.ids(one, rooms[0]) if isinstance(one, str) else known_ids(served, path, one, rooms[1])

    return await aside(lambda: [read(*one) for one in inputs.items()], sum(map(len, inputs.values())))


def known_ids(served: Served, path: str, ids: list[int], room: int) -> list[int]:
    """Ids as they came, if the model knows them all."""
    if len(ids) > room:
        raise BadRequestError(f"{len(ids):,} tokens came, and there is room for {room:,}", path)
    if ids and not (min(ids) >= 0 and max(ids) < served.vocab):
        place, wrong = next((place, id) for place, id in enumerate(ids) if not 0 <= id < served.vocab)
        expected = f"expected a token id from 0 to {served.vocab - 1}"
        raise BadRequestError(f"{expected}, got {str(wrong):.40}", f"{path}[{place}]")
    return ids


def limit_for(asked: int | None, prompt: int, served: Served, limits: Limits, usual: int) -> int:
    """The most words of an answer: as asked, if there is room for so many."""
    room = served.context - prompt
    if asked is None:
        return max(min(usual, room, limits.answer), 1)
    if asked > room:
        raise DataError(
            f"{asked:,} new tokens behind {prompt:,} do not fit into this model's {served.context:,}; "
            f"there is room for {room:,}"
        )
    if asked > limits.answer:
        raise DataError(f"an answer has at most {limits.answer:,} tokens here; {asked:,} were asked for")
    return asked


def check_product(sequences: int, limit: int, top: int, limits: Limits) -> None:
    """Each number may be fine, and all of them together too much."""
    product = sequences * limit * (1 + top)
    if product > limits.product or sequences > limits.queue:
        raise DataError(
            f"{sequences} sequences of {limit:,} tokens with {top} alternatives each are {product:,} altogether; "
            f"at most {limits.product:,} are answered. Ask for less at a time"
        )


def manner_of(request: Sampled, top: int, own: tuple[Rule, ...] = ()) -> Manner:
    """How a request wants its words chosen; `own` are the rules of this request alone."""
    return Manner(
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        presence=request.presence_penalty,
        frequency=request.frequency_penalty,
        repetition=request.repetition_penalty,
        top=top,
        own=own,
    )


def asks_for(
    request: Sampled, served: Served, prompts: Sequence[tuple[tuple[int, ...], int]], manner: Manner
) -> list[Ask]:
    """Every prompt, with the most words of its answer, as often as the request wants it."""
    seed = secrets.randbits(62) if request.seed is None else request.seed
    stop = Stop(served.tokenizer, request.stops) if request.stream or request.stops else None
    return [
        Ask(
            ids,
            limit=limit,
            manner=manner,
            seed=seed,
            number=number,
            end=served.ends,
            stop=stop,
            stream=request.stream,
        )
        for ids, limit in prompts
        for number in range(request.n)
    ]


async def text_of(ticket: Ticket, served: Served) -> str:
    """What was said, as text. It is what a stream of it put together is."""
    if ticket.row.listening is not None:
        return ticket.row.listening.shown

    def read() -> str:
        stream = TextStream(served.tokenizer, ticket.ask.prompt[-16:])
        return "".join([*map(stream.push, ticket.row.new), stream.finish()])

    return await aside(read, 16 * len(ticket.row.new))


def word(served: Served, id: int) -> str:
    """One token as text; where it is none by itself, half a character say, as the tokenizer writes it."""
    text = served.tokenizer.decode([id])
    return text if text and BROKEN not in text else served.tokenizer.tokenizer.id_to_token(id) or ""


def log_probability(token: Token) -> float:
    return finite(token.log_probability)


def finite(value: float) -> float:
    return value if math.isfinite(value) else LEAST
