"""trackio keeps what a run tells, on this machine, and prints nothing into the result of a command."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from softlook.recipes.sinks.aside import printing_aside
from tests.recipes.sinks.story import BROKEN_OFF, GOING_ON, SETTINGS, tell


class Run:
    """Stands in for trackio's."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self.said, self.is_finished = given, list[tuple[dict[str, Any], int]](), False

    def log(self, values: dict[str, Any], step: int) -> None:
        self.said.append((values, step))

    def finish(self) -> None:
        self.is_finished = True


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    made: list[Run] = []
    module = ModuleType("trackio")

    def init(**given: Any) -> Run:
        print("* Trackio project initialized")  # noqa: T201  (as the real one does)
        made.append(Run(given))
        return made[-1]

    names = SimpleNamespace(runs=lambda project: [SimpleNamespace(name=run.given["name"]) for run in made])
    module.__dict__.update(init=init, Markdown=str, Api=lambda: names)
    monkeypatch.setitem(sys.modules, "trackio", module)
    monkeypatch.delenv("TRACKIO_PROJECT", raising=False)
    return made


def test_one_run_holds_what_two_processes_told(runs: list[Run], tmp_path: Path, capsys: Any) -> None:
    tell("trackio", tmp_path, BROKEN_OFF)
    tell("trackio", tmp_path, GOING_ON)
    first, second = runs
    told = {"project": "softlook", "name": tmp_path.name, "resume": "never", "config": SETTINGS}
    assert told.items() <= first.given.items()
    assert (second.given["name"], second.given["resume"]) == (tmp_path.name, "allow")
    losses = [(step, values["train/loss"]) for values, step in first.said + second.said if "train/loss" in values]
    assert losses == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    assert ({"samples": "said: words 4  \nwanted: w"}, 4) in second.said
    assert ({"final/loss": 0.5, "final/test.bleu": 40.0}, 4) in second.said
    assert first.is_finished and second.is_finished
    assert capsys.readouterr().out == ""


def test_a_run_of_the_same_name_elsewhere_is_another_run(runs: list[Run], tmp_path: Path) -> None:
    for place in ("here", "there"):
        folder = tmp_path / place / "lm-words"
        folder.mkdir(parents=True)
        tell("trackio", folder, BROKEN_OFF)
    first, second = (run.given["name"] for run in runs)
    assert first == "lm-words"
    assert second.startswith("lm-words-")


def test_printing_aside_silences_one_thread_alone(capsys: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with printing_aside(), ThreadPoolExecutor(1) as other:
        sys.stdout.write("mine\n")
        other.submit(sys.stdout.write, "theirs\n").result()
    sys.stdout.write("after\n")
    assert capsys.readouterr().out == "theirs\nafter\n"


@pytest.mark.filterwarnings("ignore")
def test_trackio_itself_shows_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "home"))
    trackio = pytest.importorskip("trackio")
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    project = f"softlook-{tmp_path.name}"  # where trackio keeps it was decided when it was first imported
    monkeypatch.setenv("TRACKIO_PROJECT", project)
    folder = tmp_path / "lm-words"
    folder.mkdir()
    tell("trackio", folder, BROKEN_OFF)
    tell("trackio", folder, GOING_ON)
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
    assert [row["step"] for row in rows if "held_out/loss" in row] == [2, 4]
    assert [row["final/test.bleu"] for row in rows if "final/test.bleu" in row] == [40.0]
    assert any("words 4" in str(row.get("samples")) for row in rows)
    assert capsys.readouterr().out == ""
