"""Subprocess that compiles and renders a chat template.

It runs as a script and imports nothing of softlook. It reads JSON lines from stdin and answers each with one:
{"cpu_seconds", "source", "names"} compiles a template, {"cpu_seconds", "messages"} renders it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_OUTPUT_CHARS = 1_000_000
"""Characters of a rendered conversation."""
MAX_MEMORY = 256 << 20
"""Bytes that may be allocated on top of those in use at the start."""
PADDING_FILTERS = ("format", "center", "indent", "wordwrap", "pprint")
"""Filters that pad to any width; removed."""


class OutputTooLongError(Exception):
    """The template writes more than `MAX_OUTPUT_CHARS` characters."""


class Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's sandbox, without operators that make values large in one step."""

    intercepted_binops = frozenset(["*", "**", "%"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        are_numbers = all(isinstance(one, int | float) for one in (left, right))
        if operator == "**" or (operator in "*%" and not are_numbers):
            raise SecurityError(f"a template may not use {operator} here")
        return super().call_binop(context, operator, left, right)


def compile_template(source: str) -> Template:
    """Compile a template in the sandbox, with the functions Hugging Face templates expect."""
    sandbox = Sandbox(trim_blocks=True, lstrip_blocks=True)
    for name in PADDING_FILTERS:
        sandbox.filters.pop(name, None)
    sandbox.filters["tojson"] = _to_json
    sandbox.globals |= {"raise_exception": _raise_exception, "strftime_now": time.strftime}
    return sandbox.from_string(source)


def render(template: Template, messages: list[Any], names: dict[str, str]) -> str:
    """The text of a conversation, up to where the answer starts."""
    parts, length = [], 0
    for part in template.generate(messages=messages, add_generation_prompt=True, **names):
        length += len(part)
        if length > MAX_OUTPUT_CHARS:
            raise OutputTooLongError
        parts.append(part)
    return "".join(parts)


class Worker:
    """Holds one compiled template."""

    def __init__(self) -> None:
        self.template: Template | None = None
        self.names: dict[str, str] = {}

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """The text, the violated limit, or the error."""
        try:
            with _cpu_limit(message["cpu_seconds"]):
                return {"text": self._text(message)}
        except MemoryError:
            self.template = None  # free its memory before writing anything
            return {"violation": "memory"}
        except OutputTooLongError:
            return {"violation": "length"}
        except Exception as error:  # whatever the template raises
            return {"error": f"{error!s:.200}" or type(error).__name__}

    def _text(self, message: dict[str, Any]) -> str:
        if "source" in message:
            self.template, self.names = compile_template(message["source"]), message["names"]
            return ""
        if self.template is None:
            raise TemplateError("there is no template")
        return render(self.template, message["messages"], self.names)


def main() -> None:
    """Handle messages until stdin is closed."""
    _limit_memory()
    worker = Worker()
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(worker.handle(json.loads(line))) + "\n")
        sys.stdout.flush()


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Kill this process if it computes for longer: this stops even a loop in C."""
    set_timer: Callable[..., Any] | None = getattr(signal, "setitimer", None)  # not on Windows: the parent limits there
    if set_timer is not None:
        set_timer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        if set_timer is not None:
            set_timer(signal.ITIMER_PROF, 0)


def _limit_memory() -> None:
    """Limit memory to `MAX_MEMORY`, and forbid files and core dumps, where the system supports it."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415  (not on Windows)

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        maximum = _address_space() + MAX_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (maximum, maximum))


def _address_space() -> int:
    """Current size of the address space in bytes; 1 GiB if unknown."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 1 << 30


def _to_json(value: object, indent: int | None = None) -> str:
    """As Hugging Face templates expect it: without HTML escapes."""
    return json.dumps(value, ensure_ascii=False, indent=None if indent is None else min(indent, 8))


def _raise_exception(message: object) -> NoReturn:
    """Called by templates that reject a conversation."""
    raise TemplateError(str(message))


if __name__ == "__main__":
    main()
