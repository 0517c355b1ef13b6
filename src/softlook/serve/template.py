"""How a conversation becomes one text: by the template that lies beside a model, and by no other.

A template is other people's code. It runs in jinja2's sandbox, where it can change nothing and reach nothing; it has
little time, and may write little.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from softlook.base.errors import DataError, WeightsError
from softlook.weights.schema import read_json

try:
    from jinja2 import Template, TemplateError
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as fault:
    raise ImportError("to hold conversations, install what a server needs: pip install softlook[serve]") from fault

SETTINGS, FILE = "tokenizer_config.json", "chat_template.jinja"
LARGEST_FILE = 16 << 20
LONGEST_TEMPLATE = 1 << 18
"""Characters."""
LONGEST_TEXT = 1_000_000
"""Characters that a template may write."""
SECONDS = 1.0
Message = Mapping[str, Any]


class Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's own, in which nothing grows large in one step."""

    intercepted_binops = frozenset(["*", "**", "%"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(one, int | float) for one in (left, right))
        if operator == "**" or (operator == "*" and not numbers) or (operator == "%" and not numbers):
            raise SecurityError(f"a template may not use {operator} for this")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """A template, ready for conversations.

    >>> template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}assistant:")
    >>> template.written([{"role": "user", "content": "Who is there?"}])
    'user: Who is there?\\nassistant:'
    """

    def __init__(self, source: str, *, begin: str = "", end: str = "", seconds: float = SECONDS) -> None:
        self.names, self.seconds = {"bos_token": begin, "eos_token": end}, seconds
        if len(source) > LONGEST_TEMPLATE:
            raise WeightsError(f"a chat template of {len(source):,} characters came; at most {LONGEST_TEMPLATE:,} do")
        sandbox = Sandbox(trim_blocks=True, lstrip_blocks=True)
        for name in ("format", "center", "indent", "wordwrap", "pprint"):  # these pad to any width
            sandbox.filters.pop(name, None)
        sandbox.filters["tojson"] = _as_json
        sandbox.globals |= {"raise_exception": _refuse, "strftime_now": time.strftime}
        try:
            self.template: Template = sandbox.from_string(source)
        except TemplateError as fault:
            raise WeightsError(f"this chat template cannot be read: {str(fault):.200}") from None

    def written(self, messages: Sequence[Message]) -> str:
        """The text of a conversation, up to where the answer begins."""
        with _Deadline(self.seconds):
            try:
                return self._written(messages)
            except DataError:
                raise
            except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as fault:
                raise DataError(f"the model's chat template refuses this conversation: {str(fault):.200}") from None

    def _written(self, messages: Sequence[Message]) -> str:
        parts, length = [], 0
        for part in self.template.generate(messages=messages, add_generation_prompt=True, **self.names):
            length += len(part)
            if length > LONGEST_TEXT:
                raise DataError(f"this conversation takes more than {LONGEST_TEXT:,} characters")
            parts.append(part)
        return "".join(parts)


def template_in(folder: Path) -> ChatTemplate | None:
    """The template that lies beside a model; None where there is none."""
    settings = read_json(folder / SETTINGS, LARGEST_FILE) if (folder / SETTINGS).is_file() else {}
    source = settings.get("chat_template")
    if isinstance(source, list):  # several of them, by name
        known = {one.get("name"): one.get("template") for one in source if isinstance(one, dict)}
        source = known.get("default")
    if (folder / FILE).is_file() and (folder / FILE).stat().st_size <= LONGEST_TEMPLATE * 4:
        source = (folder / FILE).read_text(encoding="utf-8")
    if not isinstance(source, str):
        return None
    return ChatTemplate(source, begin=_token(settings.get("bos_token")), end=_token(settings.get("eos_token")))


def _token(value: Any) -> str:
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""


def _as_json(value: object, indent: int | None = None) -> str:
    """As Hugging Face's templates expect it: without the escapes that are for web pages."""
    return json.dumps(value, ensure_ascii=False, indent=None if indent is None else min(indent, 8))


def _refuse(message: object) -> NoReturn:
    """What templates call where a conversation is not as they want it."""
    raise TemplateError(str(message))


class _Deadline:
    """Breaks off Python code of this thread that takes too long: a template can loop without ever writing."""

    def __init__(self, seconds: float) -> None:
        self.until, self.before = time.thread_time() + seconds, None

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self._watch)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def _watch(self, frame: FrameType, event: str, argument: object) -> Any:
        if time.thread_time() > self.until:  # of this thread alone: to wait for others is no fault of the template's
            raise DataError("the model's chat template takes too long over this conversation")
        return self._watch
