"""`softlook chat`: one answer per line of stdin, or a conversation in a terminal."""

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from softlook.models import GPT, GPTConfig
from softlook.tokens import train_tokenizer
from softlook.weights import save
from tests.cli.conftest import RunCommand

pytest.importorskip("jinja2")
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
GREEDY = ("--temperature", "0", "--max-new-tokens", "10")


def write_model(folder: Path, context: int, template: str = TEMPLATE) -> Path:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(["abc def"], model_type="characters")
    model = GPT(GPTConfig(vocab_size=tokenizer.get_vocab_size(), context=context, dim=32, depth=1, heads=2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))  # so that answers depend on the conversation
        bias = model.get_parameter("final_norm.bias")
        model.token_embedding.weight[tokenizer.token_to_id("</s>")] = -20 * bias  # answers never end by themselves
    save(model, folder)
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    if template:
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("chat") / "model", 96)


def test_each_line_of_stdin_is_answered_and_the_conversation_is_remembered(command: RunCommand, model: Path) -> None:
    contents = command("--json", "chat", model, *GREEDY, stdin="a\n\nb\n").objects
    assert [content["user"] for content in contents] == ["a", "b"]
    plain = command("chat", model, *GREEDY, stdin="a\n\nb\n")
    assert plain.code == 0 and plain.out == "\n\n".join(content["assistant"] for content in contents) + "\n"


def test_reset_starts_a_new_conversation_and_exit_ends_it(command: RunCommand, model: Path) -> None:
    completed = command("--json", "chat", model, *GREEDY, stdin="a\n/reset\na\n/exit\nb\n")
    first, second = completed.objects
    assert first == second and "A new conversation." in completed.err


def test_dropped_messages_are_reported(command: RunCommand, model: Path) -> None:
    completed = command("--json", "chat", model, *GREEDY, stdin="abc\n" * 4)
    dropped = [content["dropped"] for content in completed.objects]
    assert sum(dropped) > 0 and "2 oldest messages were dropped" in completed.err


def test_a_system_message_changes_the_answer(command: RunCommand, model: Path) -> None:
    answers = [command("chat", model, *GREEDY, *more, stdin="a\n").out for more in ((), ("--system", "fed cab"))]
    assert answers[0] != answers[1]


def test_a_model_without_a_template_continues_the_text(command: RunCommand, tmp_path: Path) -> None:
    completed = command("chat", write_model(tmp_path / "plain", 32, ""), *GREEDY, stdin="abc\n")
    assert completed.code == 0 and completed.out and "has no chat template" in completed.err


def test_a_message_that_does_not_fit_and_a_model_that_cannot_generate_are_errors(
    command: RunCommand, model: Path
) -> None:
    too_long = command("chat", model, stdin="a" * 200 + "\n")
    assert too_long.code == 65 and "exceed the context of 96" in too_long.err
    assert "softlook translate dates" in command("chat", "dates", stdin="a\n").err


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, *args: str) -> None:
        import pty  # noqa: PLC0415  (not on Windows)

        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-m", "softlook", *args])
        self.output = ""

    def send(self, keys: str) -> None:
        os.write(self.handle, keys.encode())

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Read until a text appears; return the output before it."""
        end = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < end, f"expected {text!r}, got {self.output!r}"
            if select.select([self.handle], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self.handle, 1 << 16).decode(errors="replace")
                except OSError:  # the command has ended
                    raise AssertionError(f"expected {text!r}, got {self.output!r}") from None
        before, _, self.output = self.output.partition(text)
        return before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_in_a_terminal_ctrl_c_stops_an_answer_and_ctrl_d_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("TERM", "dumb")
    folder = write_model(tmp_path / "model", 1 << 14)
    terminal = Terminal("chat", str(folder), "--device", "cpu", "--temperature", "0")
    terminal.wait_for("> ")
    terminal.send("abc\n")
    terminal.wait_for("abc\r\n")
    time.sleep(0.5)  # the answer would take minutes
    terminal.send("\x03")
    terminal.wait_for("> ")
    terminal.send("/reset\n")
    terminal.wait_for("A new conversation.")
    terminal.wait_for("> ")
    time.sleep(0.5)  # until it reads the line
    terminal.send("\x03")
    terminal.wait_for("/exit or Ctrl-D leaves.")
    terminal.wait_for("> ")
    terminal.send("\x04")
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0 and status != signal.SIGINT
