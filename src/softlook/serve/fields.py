"""Field types of requests: everything is bounded, and a wrong value costs one error, however often it is wrong."""

import json
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError, core_schema

TEXT, TEXTS, IDS, LISTS, PARTS = TAGS = ("(text)", "(texts)", "(ids)", "(lists)", "(parts)")
"""Shapes of a value that may have several; they stand in the location of an error, and are not shown."""
KINDS = {str: TEXTS, int: IDS, list: LISTS, dict: PARTS}
"""The shape of a list, by its first item."""


class Request(BaseModel):
    """Nothing is guessed: a field that is not known is refused, and so is a number that comes as a text."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, value: Any) -> Any:
        """Refuse the first unknown field before pydantic makes an error object for each of them."""
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = next((name for name in value if name not in known), None) if type(value) is dict else None
        if unknown is not None:
            close = get_close_matches(unknown[:80], known, n=1)
            hint = f"Did you mean {close[0]}?" if close else "Leave it out"
            raise PydanticCustomError("unknown_field", "unknown field. {hint}", {"hint": hint, "name": unknown})
        return value


class Several:
    """A list of `least` to `most` items, read up to the first wrong one."""

    def __init__(self, most: int, least: int = 1) -> None:
        self.most, self.least = most, least

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "min_length": self.least, "max_length": self.most, "fail_fast": True}


class ByShape:
    """A union of which one choice alone is tried: the one whose shape the value has."""

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
        found = KINDS.get(type(value[0])) if value else None
        return found if found in self.tags else next(tag for tag in self.tags if tag != TEXT)


class NullIs:
    """Where null means the default, as in OpenAI's API."""

    def __init__(self, default: Any) -> None:
        self.default = default

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        def given(value: Any) -> Any:
            return self.default if value is None else value

        return core_schema.no_info_before_validator_function(given, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"anyOf": [handler(schema), {"type": "null"}]}


class Only:
    """A field of OpenAI's API that is not implemented: accepted in the values that change nothing."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"enum": list(self.values), "description": "Not implemented: accepted where it changes nothing."}

    def _checked(self, value: Any) -> Any:
        if any(type(value) is type(one) and value == one for one in self.values):
            return value
        told = {"values": " or ".join(map(json.dumps, self.values))}
        raise PydanticCustomError("unsupported", "not supported by this server: leave it out, or send {values}", told)


class Plainly:
    """Of a value that may be of several kinds, one sentence says what is expected, not one for each kind."""

    def __init__(self, expected: str) -> None:
        self.expected = expected

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "custom_error_type": "expected", "custom_error_message": self.expected}


def at_most(most: int, items: str) -> Callable[[Any], Any]:
    """A validator that counts the entries of an object before any of them is looked at."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            told = {"most": f"{most:,}", "items": items, "count": f"{len(value):,}"}
            raise PydanticCustomError("too_many", "expected at most {most} {items}, got {count}", told)
        return value

    return check
