"""Bounded parsing of JSON requests, reporting the first error only.

A request costs time and memory in proportion to its size, however many errors it has: pydantic alone would keep an
error object for each.
"""

import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from difflib import get_close_matches
from email.message import Message
from typing import Any, TypeVar, get_args

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError, core_schema, from_json

from softlook.base.errors import DataError

TEXT, TEXTS, IDS, LISTS, PARTS = TAGS = ("(text)", "(texts)", "(ids)", "(lists)", "(parts)")
"""Tags of the choices of a union by shape. They occur in error locations and are not shown."""
LIST_TAGS = {str: TEXTS, int: IDS, list: LISTS, dict: PARTS}
"""The tag of a list, by the type of its first item."""
MAX_CONTAINERS = 50_000
"""Lists and objects in a request: more than any valid one holds, so that a megabyte of [] is not parsed."""
STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
MAX_SHOWN_CHARS = 60
"""Characters of an invalid value shown in an error."""
MAX_SHOWN_FIELDS = 12
"""Fields of a request listed in an error."""
MAX_PATH_CHARS = 200
ERRORS_WITHOUT_INPUT = ("unknown_field", "missing", "too_many")
"""Error types whose message does not repeat the input."""
MESSAGES = {
    "missing": "this field is required: add it",
    "int_type": "expected an integer",
    "int_from_float": "expected an integer",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "string_type": "expected a string",
    "string_unicode": "expected a string of valid Unicode",
    "string_too_short": "expected a string that is not empty",
    "string_too_long": "expected a string of at most {max_length:,} characters",
    "list_type": "expected a list",
    "too_short": "expected at least one entry",
    "too_long": "expected at most {max_length:,} entries",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "literal_error": "expected {expected}",
    "greater_than_equal": "expected at least {ge}",
    "less_than_equal": "expected at most {le}",
}
"""Messages for pydantic's error types. Every minimum length is 1."""


class StrictModel(BaseModel):
    """Base of all request schemas: unknown fields are errors, and values are not converted."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_fields(cls, value: Any) -> Any:
        """Raise at the first unknown field, before pydantic makes an error object for each."""
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = next((name for name in value if name not in known), None) if type(value) is dict else None
        if unknown is not None:
            close = get_close_matches(unknown[:80], known, n=1)
            fields = f"; the fields are {', '.join(known)}" if len(known) <= MAX_SHOWN_FIELDS else ""
            hint = f"Did you mean {close[0]}?" if close else f"Remove it{fields}"
            raise PydanticCustomError("unknown_field", "unknown field. {hint}", {"hint": hint, "name": unknown})
        return value


Schema = TypeVar("Schema", bound=StrictModel)


class BoundedList:
    """A list of `min_length` to `max_length` items, validated up to the first invalid one."""

    def __init__(self, max_length: int, min_length: int = 1) -> None:
        self.max_length, self.min_length = max_length, min_length

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        bounds = {"min_length": self.min_length, "max_length": self.max_length}
        return {**handler(source), **bounds, "fail_fast": True}


class ShapeUnion:
    """A union of which only the choice that matches the shape of the value is validated."""

    def __init__(self, expected: str, *tags: str) -> None:
        self.expected, self.tags = expected, tags

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        choices = dict(zip(self.tags, map(handler.generate_schema, get_args(source)), strict=True))
        message = {"custom_error_type": "expected", "custom_error_message": f"expected {self.expected}"}
        return core_schema.tagged_union_schema(choices, discriminator=self._shape, **message)  # pyright: ignore[reportArgumentType]

    def _shape(self, value: Any) -> str | None:
        if isinstance(value, str):
            return TEXT
        if not isinstance(value, list):
            return None
        tag = LIST_TAGS.get(type(value[0])) if value else None
        return tag if tag in self.tags else next(tag for tag in self.tags if tag != TEXT)


class NullDefault:
    """Null means the default, as in OpenAI's API."""

    def __init__(self, default: Any) -> None:
        self.default = default

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        def replace_null(value: Any) -> Any:
            return self.default if value is None else value

        return core_schema.no_info_before_validator_function(replace_null, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"anyOf": [handler(schema), {"type": "null"}]}


class UnsupportedField:
    """A field of OpenAI's API that is not implemented: accepted with values that have no effect."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"enum": list(self.values), "description": "Not implemented: accepted where it has no effect."}

    def _validate(self, value: Any) -> Any:
        if any(type(value) is type(one) and value == one for one in self.values):
            return value
        context = {"values": " or ".join(map(json.dumps, self.values))}
        raise PydanticCustomError("unsupported", "not supported by this server: remove it, or send {values}", context)


class SingleError:
    """One message for a value that matches no choice of a union, instead of one for each choice."""

    def __init__(self, expected: str) -> None:
        self.expected = expected

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "custom_error_type": "expected", "custom_error_message": self.expected}


def max_entries(maximum: int, items: str) -> Callable[[Any], Any]:
    """A validator that counts the entries of an object before any of them is validated."""

    def validate(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > maximum:
            context = {"maximum": f"{maximum:,}", "items": items, "count": f"{len(value):,}"}
            raise PydanticCustomError("too_many", "expected at most {maximum} {items}, got {count}", context)
        return value

    return validate


class BadRequestError(DataError):
    """An invalid request; `param` is the JSON path of the error."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param


class ParsedRequest(Request):
    """A request whose JSON body has been parsed already."""

    parsed: Any = None

    async def json(self) -> Any:
        return self.parsed


class ParsingRoute(APIRoute):
    """A route whose body is parsed by `parse`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        schema: Any = self.body_field.field_info.annotation

        async def parse_and_handle(request: Request) -> Response:
            _check_content_type(request.headers.get("content-type"))
            parsed = ParsedRequest(request.scope, request.receive)
            parsed.parsed = parse(schema, await parsed.body())
            return await handle(parsed)

        return parse_and_handle


def parse(schema: type[Schema], body: bytes) -> Schema:
    """Parse and validate a JSON body.

    >>> class Example(StrictModel):
    ...     n: int
    >>> parse(Example, b'{"n": 3}')
    Example(n=3)
    >>> parse(Example, b'{"n": "three"}')
    Traceback (most recent call last):
    softlook.serve.protocol.parsing.BadRequestError: n: expected an integer, got "three"
    """
    try:
        return schema.model_validate(_load_json(body))
    except ValidationError as error:
        raise first_error(error.errors(include_url=False)) from None


def _load_json(body: bytes) -> Any:
    """JSON as Python values, unless it has too many lists and objects."""
    if not body.strip():
        raise BadRequestError("expected a JSON object as the body of the request, got an empty body")
    if _count_containers(body) > MAX_CONTAINERS and _count_containers(STRINGS.sub(b"", body)) > MAX_CONTAINERS:
        raise BadRequestError(f"expected at most {MAX_CONTAINERS:,} lists and objects in a request, got more")
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BadRequestError(f"the body of the request is not valid JSON: {str(error):.200}") from None


def _count_containers(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def first_error(errors: Sequence[Mapping[str, Any]]) -> BadRequestError:
    """The first of pydantic's errors: JSON path, what was expected, what was received."""
    first = errors[0]
    error_type, context = first["type"], first.get("ctx", {})
    location = (*first["loc"], context["name"]) if "name" in context else first["loc"]
    message = MESSAGES[error_type].format(**context) if error_type in MESSAGES else first["msg"]
    message = message.replace("'", '"') if error_type == "literal_error" else message  # as in JSON
    got = "" if error_type in ERRORS_WITHOUT_INPUT else f", got {_preview(first['input'])}"
    return BadRequestError(message + got, json_path(location))


def json_path(location: Sequence[str | int]) -> str | None:
    """The JSON path of a pydantic error location.

    >>> json_path(("body", "prompt", "(lists)", 3, 17)), json_path(("messages", "(parts)", 0, "role")), json_path(())
    ('prompt[3][17]', 'messages[0].role', None)
    """
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in (*TAGS, "body", "[key]"):
            path += f".{part}" if path else part
        if len(path) > MAX_PATH_CHARS:
            return path[:MAX_PATH_CHARS] + "..."
    return path or None


def _preview(value: Any) -> str:
    """A short description of an invalid value."""
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= MAX_SHOWN_CHARS else f"a string of {len(value):,} characters"
    if isinstance(value, list):
        return f"a list of {_count(len(value), 'entry', 'entries')}" if value else "an empty list"
    if isinstance(value, dict):
        return f"an object of {_count(len(value), 'field', 'fields')}" if value else "an empty object"
    text = json.dumps(value, default=str)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _check_content_type(content_type: str | None) -> None:
    """Require JSON: browsers send it to another origin only after a preflight request."""
    header = Message()
    header["content-type"] = content_type or "application/octet-stream"
    subtype = header.get_content_subtype()
    if header.get_content_maintype() != "application" or not (subtype == "json" or subtype.endswith("+json")):
        got = "none" if content_type is None else f"{content_type:.80}"
        raise BadRequestError(f"expected a JSON body with the header Content-Type: application/json, got {got}")
