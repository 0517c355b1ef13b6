"""From the bytes of a body to a request, in time and memory in proportion to it, and with the first fault only."""

import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from email.message import Message
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from softlook.base.errors import DataError
from softlook.serve import fields

try:
    from fastapi import Request, Response
    from fastapi.routing import APIRoute
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault

Schema = TypeVar("Schema", bound=fields.Request)
MOST_NESTED = 50_000
"""Lists and objects in a request: more than any that is answered holds, so that a megabyte of [] is not read."""
STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
SHOWN = 60
"""Characters of a wrong value that an error shows."""
LONGEST_PLACE = 200
SILENT = ("unknown_field", "missing", "too_many")
"""Kinds of errors that say all there is to say, without the value."""
WORDS = {
    "missing": "this field is required",
    "int_type": "expected an integer",
    "int_from_float": "expected an integer",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "string_type": "expected a string",
    "string_unicode": "expected a string of whole characters",
    "string_too_short": "expected a string of at least {min_length} character(s)",
    "string_too_long": "expected a string of at most {max_length:,} characters",
    "list_type": "expected a list",
    "too_short": "expected at least {min_length} item(s)",
    "too_long": "expected at most {max_length:,} items",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "literal_error": "expected {expected}",
    "greater_than_equal": "expected at least {ge}",
    "less_than_equal": "expected at most {le}",
}


class BadRequestError(DataError):
    """A request that cannot be answered as it stands; `param` is the JSON path of what is wrong with it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param


class ParsedRequest(Request):
    """A request whose body has been read already."""

    parsed: Any = None

    async def json(self) -> Any:
        return self.parsed


class ParsingRoute(APIRoute):
    """A page whose body is read by `parse`; FastAPI itself would keep an error object for every fault in it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        if self.body_field is None:
            return answer
        schema: Any = self.body_field.field_info.annotation

        async def parse_and_answer(request: Request) -> Response:
            _check_type(request.headers.get("content-type"))
            read = ParsedRequest(request.scope, request.receive)
            read.parsed = parse(schema, await read.body())
            return await answer(read)

        return parse_and_answer


def parse(schema: type[Schema], body: bytes) -> Schema:
    """A request of this kind.

    >>> class Ask(fields.Request):
    ...     n: int
    >>> parse(Ask, b'{"n": 3}')
    Ask(n=3)
    >>> parse(Ask, b'{"n": "three"}')
    Traceback (most recent call last):
    softlook.serve.parsing.BadRequestError: n: expected an integer, got "three"
    """
    try:
        return schema.model_validate(_read(body))
    except ValidationError as fault:
        raise first_fault(fault.errors(include_url=False)) from None


def _read(body: bytes) -> Any:
    """JSON as Python's values, if there are not so many of them that to make and to collect them takes long."""
    if _nested(body) > MOST_NESTED and _nested(STRINGS.sub(b"", body)) > MOST_NESTED:
        raise BadRequestError(f"expected at most {MOST_NESTED:,} lists and objects in a request, got more")
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as fault:
        raise BadRequestError(f"the body of the request is not valid JSON: {str(fault):.200}") from None


def _nested(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def first_fault(faults: Sequence[Mapping[str, Any]]) -> BadRequestError:
    """The first of pydantic's errors in plain words: where, what is expected, what came."""
    first = faults[0]
    kind, told = first["type"], first.get("ctx", {})
    location = (*first["loc"], told["name"]) if "name" in told else first["loc"]
    message = WORDS[kind].format(**told) if kind in WORDS else first["msg"]
    got = "" if kind in SILENT else f", got {_shown(first['input'])}"
    return BadRequestError(message + got, place_of(location))


def place_of(location: Sequence[str | int]) -> str | None:
    """A JSON path.

    >>> place_of(("body", "prompt", "(lists)", 3, 17)), place_of(("messages", "(parts)", 0, "role")), place_of(())
    ('prompt[3][17]', 'messages[0].role', None)
    """
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part not in (*fields.TAGS, "body", "[key]"):
            place += f".{part}" if place else part
        if len(place) > LONGEST_PLACE:
            return place[:LONGEST_PLACE] + "..."
    return place or None


def _shown(value: Any) -> str:
    """A wrong value in a few words, however large it is."""
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= SHOWN else f"a string of {len(value):,} characters"
    if isinstance(value, list):
        return f"a list of {len(value):,} item(s)"
    if isinstance(value, dict):
        return f"an object with {len(value):,} field(s)"
    text = json.dumps(value, default=str)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _check_type(content_type: str | None) -> None:
    """A browser sends JSON to another site only after it has asked; other types it sends unasked."""
    read = Message()
    read["content-type"] = content_type or "application/octet-stream"
    subtype = read.get_content_subtype()
    if read.get_content_maintype() != "application" or not (subtype == "json" or subtype.endswith("+json")):
        got = "none" if content_type is None else f"{content_type:.80}"
        raise BadRequestError(f"expected a JSON body with the header Content-Type: application/json, got {got}")
