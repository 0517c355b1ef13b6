"""Chat templates, rendered in a sandboxed subprocess.

A chat template is code from an untrusted model folder. It runs in jinja2's sandbox and in a process of its own with
limits on CPU time and memory: exceeding them ends only that process.
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

TOKENIZER_CONFIG, TEMPLATE_FILE = "tokenizer_config.json", "chat_template.jinja"
MAX_CONFIG_BYTES = 16 << 20
MAX_TEMPLATE_CHARS = 1 << 18
MAX_OUTPUT_CHARS = 1_000_000
"""Characters of a rendered conversation; the worker has the same limit."""
MAX_LINE_BYTES = 12 * MAX_OUTPUT_CHARS + 1024
"""Bytes of a rendered conversation as JSON."""
CPU_SECONDS = 1.0
WALL_CLOCK_SLACK = 30.0
"""Seconds of wall-clock time allowed on top of the CPU time, for a busy machine."""
WORKER = Path(__file__).with_name("chat_template_worker.py")
INHERITED_ENV = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
"""Environment variables passed to the worker. The others may hold secrets."""
VIOLATIONS = {
    "time": "the model's chat template takes too long",
    "memory": "the model's chat template takes too much memory",
    "length": f"the model's chat template writes more than {MAX_OUTPUT_CHARS:,} characters",
    "end": "the process of the model's chat template ended",
}
KILLED_CODES = (1,) if sys.platform == "win32" else (-signal.SIGPROF, -signal.SIGKILL)
"""Exit codes of a process that was killed for the time it took."""
ChatTurn = Mapping[str, Any]


class ChatTemplate:
    """A compiled chat template. `cpu_seconds` limits the rendering of one conversation.

    >>> template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}assistant:")
    >>> template.render([{"role": "user", "content": "Who is there?"}])
    'user: Who is there?\\nassistant:'
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "", cpu_seconds: float = CPU_SECONDS) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise WeightsError(
                f"the chat template has {len(source):,} characters, the maximum is {MAX_TEMPLATE_CHARS:,}"
            )
        if find_spec("jinja2") is None:
            raise ImportError("chat templates require jinja2: pip install jinja2")
        self.eos = eos
        """Text of the token that ends an answer, if known."""
        names = {"bos_token": bos, "eos_token": eos}
        self.worker = TemplateProcess({"source": source, "names": names}, cpu_seconds)
        self.executor = ThreadPoolExecutor(1, "softlook-template")
        reply = self.worker.start()
        if "text" not in reply:
            reason = VIOLATIONS.get(reply.get("violation", ""), reply.get("error"))
            raise WeightsError(f"this chat template cannot be compiled: {reason}. Remove or correct it")

    def render(self, messages: Sequence[ChatTurn]) -> str:
        """The text of a conversation, up to where the answer starts."""
        reply = self.worker.call({"messages": list(messages)})
        if "violation" in reply:
            raise DataError(f"{VIOLATIONS[reply['violation']]} for this conversation")
        if "error" in reply:
            raise DataError(f"the model's chat template rejects this conversation: {reply['error']}")
        return reply["text"]

    async def render_async(self, messages: Sequence[ChatTurn]) -> str:
        """Render in the template's own thread, so that a slow template does not occupy a shared one."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, self.render, messages)


class TemplateProcess:
    """A subprocess that keeps one template compiled. It is restarted after exceeding a limit."""

    def __init__(self, template: Mapping[str, Any], cpu_seconds: float) -> None:
        self.template, self.cpu_seconds = template, cpu_seconds
        self._lock, self._process, self._finalizer = Lock(), None, None

    def start(self) -> dict[str, Any]:
        """Start a process and compile the template."""
        with self._lock:
            return self._start()

    def call(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message. The reply holds a text, an error of the template, or the limit it violated."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                reply = self._start()
                if "text" not in reply:
                    return reply
            return self._call(message)

    def _start(self) -> dict[str, Any]:
        self._stop()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in INHERITED_ENV if name in os.environ},
            start_new_session=True,  # Ctrl-C goes to the parent, which ends its processes itself
        )
        self._finalizer = finalize(self, _kill, self._process)  # at the latest when this process ends
        return self._call(self.template)

    def _call(self, message: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        # Without setitimer the worker cannot measure its CPU time: limit the wall-clock time instead.
        timeout = self.cpu_seconds + (WALL_CLOCK_SLACK if hasattr(signal, "setitimer") else 0.0)
        timer = Timer(timeout, process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps({"cpu_seconds": self.cpu_seconds, **message}).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline(MAX_LINE_BYTES)
        except OSError:  # the process has ended
            line = b""
        except BaseException:  # Ctrl-C: the reply would be read by the next call
            self._stop()
            raise
        finally:
            timer.cancel()
        reply = json.loads(line) if line.endswith(b"\n") else {"violation": _violation(process)}
        if "violation" in reply:
            self._stop()
        return reply

    def _stop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None


def _violation(process: "subprocess.Popen[bytes]") -> str:
    """Why a process ended without a reply: killed for its time, or crashed."""
    process.kill()
    return "time" if process.wait() in KILLED_CODES else "end"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # unread data is lost
                continue


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """The chat template in a model folder; None if there is none."""
    config = read_json(folder / TOKENIZER_CONFIG, MAX_CONFIG_BYTES) if (folder / TOKENIZER_CONFIG).is_file() else {}
    source = config.get("chat_template")
    if isinstance(source, list):  # several, by name
        by_name = {one.get("name"): one.get("template") for one in source if isinstance(one, dict)}
        source = by_name.get("default")
    path = folder / TEMPLATE_FILE
    if path.is_file() and path.stat().st_size <= MAX_TEMPLATE_CHARS * 4:
        source = path.read_text(encoding="utf-8")
    if not isinstance(source, str):
        return None
    return ChatTemplate(source, bos=_token_text(config.get("bos_token")), eos=_token_text(config.get("eos_token")))


def _token_text(value: Any) -> str:
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""
