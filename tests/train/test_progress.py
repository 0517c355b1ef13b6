"""The progress bar shows how far a run is, where somebody watches, and leaves the terminal clean."""

import sys
from io import StringIO
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console

from softlook.train import OptimizerConfig, TrainingConfig, fit
from softlook.train.events import Evaluated, Event, Finished, Started, StepLogged, StepSkipped
from softlook.train.progress import NotebookDisplay, ProgressBar, TerminalDisplay, find_display, progress_bar
from tests.train.tiny import Line, distance

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
STARTED = Started(0, 200, "cpu", "float32", 10)


def logged(step: int, seconds: float = 1.0) -> StepLogged:
    return StepLogged(step, 0.5, 1e-3, 1.0, 100.0, seconds)


class Terminal(StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class Handle:
    """What IPython's `display` returns."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        self.shown.append(data)


def watch(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal, without a sign of pytest, which replaces stderr between fixtures and tests."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("softlook.train.progress.MIN_INTERVAL", 0.0)
    monkeypatch.setattr("softlook.train.progress.PYTEST_VARIABLE", "UNKNOWN_VARIABLE")
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def open_notebook(monkeypatch: pytest.MonkeyPatch) -> Handle:
    """Run in a notebook from now on."""
    handle, module = Handle(), ModuleType("IPython.display")

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        handle.shown.append(data)
        return handle

    monkeypatch.setattr(module, "display", display, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    return handle


def show(*events: Event, width: int = 120) -> str:
    """What the bar leaves on a terminal."""
    file = StringIO()
    bar = ProgressBar(lambda: TerminalDisplay(Console(file=file, force_terminal=True, no_color=True, width=width)))
    for event in events:
        bar.shown_at = 0.0
        bar(event)
    bar.close()
    return file.getvalue().removesuffix(SHOW_CURSOR).strip()


def train(**options: Any) -> None:
    training = TrainingConfig(max_steps=4, log_every=1, evaluate_every=2, device="cpu")
    line, optim = Line(), OptimizerConfig(warmup=1)
    fit(line, [torch.ones(2)], distance, evaluate=lambda m: {"loss": 0.25}, training=training, optim=optim, **options)


def test_the_bar_shows_steps_loss_validation_scores_and_time_left() -> None:
    shown = show(STARTED, Evaluated(50, {"loss": 0.25, "accuracy": 0.875}, True), logged(100))
    last = shown.splitlines()[-1]
    for part in ("100/200", "loss 0.5", "validation loss 0.25, accuracy 0.875", "0:00 left", "━" * 9):
        assert part in last, part


def test_a_run_with_a_time_limit_shows_the_time_that_is_left() -> None:
    shown = show(Started(0, 0, "cpu", "", 1, limit=180.0), logged(40, seconds=60.0))
    assert "step 40  2:00 left  loss 0.5" in shown


def test_the_limit_that_is_reached_first_decides() -> None:
    shown = show(Started(0, 1000, "cpu", "", 1, limit=180.0), logged(40, seconds=175.0))
    assert "40/1,000  0:0" in shown and "━" * 18 in shown.splitlines()[-1]


def test_a_run_without_limits_shows_its_steps() -> None:
    assert "step 40  loss 0.5" in show(Started(0, 0, "cpu", "", 1), logged(40))


def test_the_end_shows_steps_time_and_reason() -> None:
    shown = show(STARTED, logged(60), StepSkipped(61, 0.0, 0.0, (0, 0)), Finished(61, "stopped by SIGINT", 75.0))
    assert "61 steps in 1:15: stopped by SIGINT  loss 0.5  1 skipped" in shown.splitlines()[-1]


def test_text_is_escaped_and_cut_to_the_width_of_the_terminal() -> None:
    shown = show(STARTED, Evaluated(2, {"[red]\x1b[2J{x}": 1.0}, True), logged(100))
    assert r"validation [red]\x1b[2J{x} 1" in shown
    narrow = show(STARTED, Evaluated(2, {"a long name " * 9: 1.0}, True), logged(100), width=40)
    assert all(len(line) < 60 for line in narrow.splitlines()) and "…" in narrow and "━" in narrow


def test_fit_shows_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(monkeypatch)
    train()
    assert "4 steps in 0:00: max_steps reached" in watched.getvalue()
    assert watched.getvalue().count(HIDE_CURSOR) == watched.getvalue().count(SHOW_CURSOR) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_leaves_the_terminal_clean(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(monkeypatch)

    def fail(event: Event) -> None:
        if event.step == 3:
            raise error

    with pytest.raises(error):
        train(callbacks=[fail])
    shown = watched.getvalue()
    assert shown.rindex(SHOW_CURSOR) > shown.rindex(HIDE_CURSOR) and shown.removesuffix(SHOW_CURSOR).endswith("\n")
    assert sys.stderr is watched


def test_what_is_printed_to_a_file_stays_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch(monkeypatch)
    train(callbacks=[lambda event: print(event.step)])  # noqa: T201  (as users do)
    assert capsys.readouterr().out.split()[:3] == ["0", "1", "2"]


def test_a_bar_is_hidden_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(monkeypatch)
    train(progress=False)
    monkeypatch.setenv("SOFTLOOK_PROGRESS", "0")
    train()
    assert watched.getvalue() == ""


def test_a_bar_is_hidden_without_a_terminal_and_under_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)
    assert find_display() is TerminalDisplay
    with monkeypatch.context() as patch:
        patch.setattr("softlook.train.progress.PYTEST_VARIABLE", "PYTEST_CURRENT_TEST")
        assert find_display() is None
    for stream in (StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert find_display() is None
    with progress_bar() as bars:
        assert bars == []


def test_a_notebook_shows_html(monkeypatch: pytest.MonkeyPatch) -> None:
    watched, notebook = watch(monkeypatch), open_notebook(monkeypatch)
    assert find_display() is NotebookDisplay
    train()
    assert watched.getvalue() == ""
    last = notebook.shown[-1]
    assert last["text/plain"].startswith("4 steps in 0:00: max_steps reached")
    assert '<progress max="1" value="1.0000"' in last["text/html"] and "validation loss 0.25" in last["text/html"]


def test_a_notebook_shows_escaped_text(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = open_notebook(monkeypatch)
    NotebookDisplay().show(None, "<script> & loss")
    assert "&lt;script&gt; &amp; loss" in notebook.shown[-1]["text/html"]
    assert "value=" not in notebook.shown[-1]["text/html"]
