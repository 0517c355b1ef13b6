"""The process in which a chat template is compiled and rendered, with little time and little memory.

It runs as a script and imports nothing of softlook's. It reads lines of JSON from its input and answers each with one:
{"seconds", "source", "names"} compiles a template, and {"seconds", "messages"} renders it.
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

LONGEST_TEXT = 1_000_000
"""Characters that a template may write."""
MEMORY = 256 << 20
"""Bytes that may be allocated beside what the process takes when it starts."""
PADDING = ("format", "center", "indent", "wordwrap", "pprint")
"""Filters that pad to any width."""


class TooLongError(Exception):
    """A template writes more than there is room for."""


class Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's own, in which nothing grows large in one step."""

    intercepted_binops = frozenset(["*", "**", "%"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(one, int | float) for one in (left, right))
        if operator == "**" or (operator == "*" and not numbers) or (operator == "%" and not numbers):
            raise SecurityError(f"a template may not use {operator} for this")
        return super().call_binop(context, operator, left, right)


def compiled(source: str) -> Template:
    """A template in the sandbox, with the functions that Hugging Face's templates expect."""
    sandbox = Sandbox(trim_blocks=True, lstrip_blocks=True)
    for name in PADDING:
        sandbox.filters.pop(name, None)
    sandbox.filters["tojson"] = _as_json
    sandbox.globals |= {"raise_exception": _refuse, "strftime_now": time.strftime}
    return sandbox.from_string(source)


def rendered(template: Template, messages: list[Any], names: dict[str, str]) -> str:
    """The text of a conversation, up to where the answer begins."""
    parts, length = [], 0
    for part in template.generate(messages=messages, add_generation_prompt=True, **names):
        length += len(part)
        if length > LONGEST_TEXT:
            raise TooLongError
        parts.append(part)
    return "".join(parts)


class Worker:
    """One template, and what is asked of it."""

    def __init__(self) -> None:
        self.template: Template | None = None
        self.names: dict[str, str] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The text, or what stands in its way."""
        try:
            with _cpu_time(asked["seconds"]):
                return {"text": self._text(asked)}
        except MemoryError:
            self.template = None  # what it holds on to is let go before anything is written
            return {"violation": "memory"}
        except TooLongError:
            return {"violation": "length"}
        except Exception as fault:  # whatever other people's code raises
            return {"fault": f"{fault!s:.200}" or type(fault).__name__}

    def _text(self, asked: dict[str, Any]) -> str:
        if "source" in asked:
            self.template, self.names = compiled(asked["source"]), asked["names"]
            return ""
        if self.template is None:
            raise TemplateError("there is no template")
        return rendered(self.template, asked["messages"], self.names)


def main() -> None:
    """Answer until there are no more questions."""
    _bound_memory()
    worker = Worker()
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(worker.answer(json.loads(line))) + "\n")
        sys.stdout.flush()


@contextmanager
def _cpu_time(seconds: float) -> Iterator[None]:
    """End this process, without a word, if it computes for longer: not even a loop in C goes on."""
    timer: Callable[..., Any] | None = getattr(signal, "setitimer", None)  # not on Windows: there the parent's alone
    if timer is not None:
        timer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        if timer is not None:
            timer(signal.ITIMER_PROF, 0)


def _bound_memory() -> None:
    """Take no more memory than `MEMORY`, write no files, and leave no core, where the system can see to it."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415  (not on Windows)

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        most = _address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _address_space() -> int:
    """Bytes of addresses that this process has now; 1 GiB where the system does not tell."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 1 << 30


def _as_json(value: object, indent: int | None = None) -> str:
    """As Hugging Face's templates expect it: without the escapes that are for web pages."""
    return json.dumps(value, ensure_ascii=False, indent=None if indent is None else min(indent, 8))


def _refuse(message: object) -> NoReturn:
    """What templates call where a conversation is not as they want it."""
    raise TemplateError(str(message))


if __name__ == "__main__":
    main()
