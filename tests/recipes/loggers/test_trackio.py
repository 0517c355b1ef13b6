"""The trackio logger."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from softlook.recipes.loggers.backends import discard_stdout
from tests.recipes.loggers.fake_run import CRASHED, RESUMED, SETTINGS, log_run


class Run:
    """A fake trackio run."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.calls, self.is_finished = options, list[tuple[dict[str, Any], int]](), False

    def log(self, values: dict[str, Any], step: int) -> None:
        self.calls.append((values, step))

    def finish(self) -> None:
        self.is_finished = True


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    runs: list[Run] = []
    module = ModuleType("trackio")

    def init(**options: Any) -> Run:
        print("* Trackio project initialized")  # noqa: T201  (as the real one does)
        runs.append(Run(options))
        return runs[-1]

    api = SimpleNamespace(runs=lambda project: [SimpleNamespace(name=run.options["name"]) for run in runs])
    module.__dict__.update(init=init, Markdown=str, Api=lambda: api)
    monkeypatch.setitem(sys.modules, "trackio", module)
    monkeypatch.delenv("TRACKIO_PROJECT", raising=False)
    return runs


def test_a_resumed_run_is_one_run(runs: list[Run], tmp_path: Path, capsys: Any) -> None:
    log_run("trackio", tmp_path, CRASHED)
    log_run("trackio", tmp_path, RESUMED)
    first, second = runs
    expected = {"project": "softlook", "name": tmp_path.name, "resume": "never", "config": SETTINGS}
    assert expected.items() <= first.options.items()
    assert (second.options["name"], second.options["resume"]) == (tmp_path.name, "allow")
    losses = [(step, values["train/loss"]) for values, step in first.calls + second.calls if "train/loss" in values]
    assert losses == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    assert ({"samples": "prediction: words 4  \nlabel: w"}, 4) in second.calls
    assert ({"final/loss": 0.5, "final/test.bleu": 40.0}, 4) in second.calls
    assert first.is_finished and second.is_finished
    assert capsys.readouterr().out == ""


def test_a_run_of_the_same_name_in_another_folder_is_another_run(runs: list[Run], tmp_path: Path) -> None:
    for parent in ("here", "there"):
        folder = tmp_path / parent / "lm-words"
        folder.mkdir(parents=True)
        log_run("trackio", folder, CRASHED)
    first, second = (run.options["name"] for run in runs)
    assert first == "lm-words"
    assert second.startswith("lm-words-")


def test_discard_stdout_affects_one_thread_only(capsys: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with discard_stdout(), ThreadPoolExecutor(1) as other:
        sys.stdout.write("this thread\n")
        other.submit(sys.stdout.write, "other thread\n").result()
    sys.stdout.write("after\n")
    assert capsys.readouterr().out == "other thread\nafter\n"


@pytest.mark.filterwarnings("ignore")
def test_trackio_itself_shows_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "home"))
    trackio = pytest.importorskip("trackio")
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    project = f"softlook-{tmp_path.name}"  # trackio reads its folder once, at its first import
    monkeypatch.setenv("TRACKIO_PROJECT", project)
    folder = tmp_path / "lm-words"
    folder.mkdir()
    log_run("trackio", folder, CRASHED)
    log_run("trackio", folder, RESUMED)
    (run,) = trackio.Api().runs(project)
    assert run.name == "lm-words"
    assert SETTINGS.items() <= run.config.items()
    rows = storage.get_logs(project, run.name)
    assert [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row] == [
        (1, 9.0),
        (2, 8.0),
        (3, 7.0),
        (4, 6.0),
    ]
    assert [row["step"] for row in rows if "validation/loss" in row] == [2, 4]
    assert [row["final/test.bleu"] for row in rows if "final/test.bleu" in row] == [40.0]
    assert any("words 4" in str(row.get("samples")) for row in rows)
    assert capsys.readouterr().out == ""
