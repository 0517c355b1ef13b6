"""What a request asks of the logits for itself alone: biases, and the form of the answer."""

import json
from typing import Any

from softlook.base.errors import ConfigError
from softlook.decode import Rule, json_schema, logit_bias
from softlook.serve.parsing import BadRequestError
from softlook.serve.schemas import ChatRequest, CompletionRequest, ResponseFormat
from softlook.serve.served import Served

LARGEST_SCHEMA = 1 << 16
"""Characters of a JSON schema."""
DEEPEST_SCHEMA = 64
LIMITS = {"max_lexer_states": 10_000, "max_grammar_size": 100_000, "max_items_in_row": 500}
"""What following a schema may take: about 20 MB, and 20 ms for a token. What takes more is given up with an error."""


def rules_for(request: CompletionRequest | ChatRequest, served: Served) -> tuple[Rule, ...]:
    """The rules of a request. To compile a schema takes a while: not for the event loop."""
    bias = () if not request.logit_bias else (logit_bias(_known(request.logit_bias, served)),)
    asked = request.response_format if isinstance(request, ChatRequest) else None
    form = None if asked is None else _form(asked)
    if form is None:
        return bias
    if not served.ends:
        raise BadRequestError("this model has no end-of-text token, so that JSON would have no end", "response_format")
    try:
        return (*bias, json_schema(served.tokenizer, form, end=served.ends, limits=LIMITS))
    except ConfigError as fault:
        raise BadRequestError(str(fault), "response_format") from None


def _known(bias: dict[int, float], served: Served) -> dict[int, float]:
    wrong = next((id for id in bias if id >= served.vocab), None)
    if wrong is not None:
        expected = f"expected a token id from 0 to {served.vocab - 1}"
        raise BadRequestError(f"{expected}, got {wrong}", f"logit_bias.{wrong}")
    return bias


def _form(asked: ResponseFormat) -> dict[str, Any] | None:
    """The schema that an answer follows, if it is of reasonable size."""
    if (asked.type == "json_schema") != (asked.json_schema is not None):
        expected = "one of" if asked.type == "json_schema" else "none of"
        raise BadRequestError(f"expected {expected} these with the type {asked.type}", "response_format.json_schema")
    form = asked.form
    if form is not None and (len(json.dumps(form)) > LARGEST_SCHEMA or _depth(form) > DEEPEST_SCHEMA):
        raise BadRequestError(
            f"expected a schema of at most {LARGEST_SCHEMA:,} characters, nested at most {DEEPEST_SCHEMA} deep",
            "response_format.json_schema.schema",
        )
    return form


def _depth(value: Any) -> int:
    """How deep lists and objects lie within each other; JSON of a request is nested 200 deep at most."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0
