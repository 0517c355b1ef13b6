"""How a conversation becomes one text: by the template that lies beside a model, and by no other.

A template is other people's code. It runs in jinja2's sandbox, where it can change nothing and reach nothing, and in a
process of its own, which has little time and little memory: what it takes beyond them ends that process alone.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Timer
from typing import Any
from weakref import finalize

from softlook.base.errors import DataError, WeightsError
from softlook.weights.schema import read_json

if find_spec("jinja2") is None:
    raise ImportError("to hold conversations, install what a server needs: pip install softlook[serve]")

SETTINGS, FILE = "tokenizer_config.json", "chat_template.jinja"
LARGEST_FILE = 16 << 20
LONGEST_TEMPLATE = 1 << 18
"""Characters."""
LONGEST_TEXT = 1_000_000
"""Characters that a template may write; the worker has the same number."""
LONGEST_LINE = 12 * LONGEST_TEXT + 1024
"""Bytes of such a text as JSON."""
SECONDS = 1.0
"""Of computing."""
PATIENCE = 30.0
"""Seconds, beside those of computing, that a busy machine may take."""
WORKER = Path(__file__).with_name("template_worker.py")
ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
"""All that the worker knows of this process's environment, which may hold secrets."""
VIOLATIONS = {
    "time": "the model's chat template takes too long",
    "memory": "the model's chat template takes too much memory",
    "length": f"the model's chat template writes more than {LONGEST_TEXT:,} characters",
    "end": "the process of the model's chat template ended",
}
KILLED = (1,) if sys.platform == "win32" else (-signal.SIGPROF, -signal.SIGKILL)
"""What a process returns that was ended for the time it took."""
Message = Mapping[str, Any]


class ChatTemplate:
    """A template, ready for conversations. `seconds` is the time it may compute, for one of them.

    >>> template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}assistant:")
    >>> template.written([{"role": "user", "content": "Who is there?"}])
    'user: Who is there?\\nassistant:'
    """

    def __init__(self, source: str, *, begin: str = "", end: str = "", seconds: float = SECONDS) -> None:
        if len(source) > LONGEST_TEMPLATE:
            raise WeightsError(f"a chat template of {len(source):,} characters came; at most {LONGEST_TEMPLATE:,} do")
        names = {"bos_token": begin, "eos_token": end}
        self.worker = TemplateProcess({"source": source, "names": names}, seconds)
        self.waiting = ThreadPoolExecutor(1, "softlook-template")
        answer = self.worker.start()
        if "text" not in answer:
            why = VIOLATIONS.get(answer.get("violation", ""), answer.get("fault"))
            raise WeightsError(f"this chat template cannot be compiled: {why}. Leave it out, or correct it")

    def written(self, messages: Sequence[Message]) -> str:
        """The text of a conversation, up to where the answer begins."""
        answer = self.worker.ask({"messages": list(messages)})
        if "violation" in answer:
            raise DataError(f"{VIOLATIONS[answer['violation']]} over this conversation")
        if "fault" in answer:
            raise DataError(f"the model's chat template refuses this conversation: {answer['fault']}")
        return answer["text"]

    async def written_aside(self, messages: Sequence[Message]) -> str:
        """The same, in a thread of the template's own: whoever waits for a slow one keeps no thread from others."""
        return await asyncio.get_running_loop().run_in_executor(self.waiting, self.written, messages)


class TemplateProcess:
    """A process that keeps one template compiled. One that broke a limit is replaced when it is next asked."""

    def __init__(self, template: Mapping[str, Any], seconds: float) -> None:
        self.template, self.seconds = template, seconds
        self._lock, self._process, self._end = Lock(), None, None

    def start(self) -> dict[str, Any]:
        """A new process; its answer to the template."""
        with self._lock:
            return self._start()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """What it says: a text, a fault of the template's, or a limit that it broke."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                answer = self._start()
                if "text" not in answer:
                    return answer
            return self._asked(question)

    def _start(self) -> dict[str, Any]:
        self._stop()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            start_new_session=True,  # Ctrl-C is for the server, which ends its processes itself
        )
        self._end = finalize(self, _ended, self._process)  # at the latest when this process ends
        return self._asked(self.template)

    def _asked(self, question: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        computes = (
            self.seconds if hasattr(signal, "setitimer") else 0.0
        )  # else its time is not measured, but waited for
        limit = Timer(computes + PATIENCE if computes else self.seconds, process.kill)
        limit.start()
        try:
            process.stdin.write(json.dumps({"seconds": self.seconds, **question}).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline(LONGEST_LINE)
        except OSError:  # it has ended
            line = b""
        finally:
            limit.cancel()
        answer = json.loads(line) if line.endswith(b"\n") else {"violation": _why(process)}
        if "violation" in answer:
            self._stop()
        return answer

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._end = None


def _why(process: "subprocess.Popen[bytes]") -> str:
    """Why it ended without an answer: it, or this process, or the system put an end to what it did; or it broke."""
    process.kill()
    return "time" if process.wait() in KILLED else "end"


def _ended(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what it was to read has nowhere to go
                continue


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
