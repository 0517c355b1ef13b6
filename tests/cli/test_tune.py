"""`softlook tune`: its output and its errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.small import people

TUNE = ("tune", "people.csv", "--target", "buys", "--ignore", "id", "spent", "--trials", "2")
SMALL = ("--model.dim", "8", "--model.depth", "1", "--model.heads", "2", "--model.n-members", "1")
QUICK = (*SMALL, "--training.epochs", "2")


@pytest.fixture
def run(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command: its exit code, stdout and stderr."""
    from softlook.cli import main  # noqa: PLC0415  (after pytest has installed the shape checks)

    monkeypatch.chdir(tmp_path)
    people(tmp_path / "people.csv")

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            main(list(args))
        out, err = capsys.readouterr()
        assert isinstance(exited.value.code, int)
        return exited.value.code, out, err

    return call


def test_every_trial_is_logged_and_the_next_command_is_suggested(run: Any) -> None:
    code, out, err = run(*TUNE, *QUICK)
    assert code == 0, err
    best = str(Path("runs") / "tune-people" / "best.toml")
    assert out.strip() == best
    assert "trial 1 of 2: validation loss" in err and "trial 2 of 2: validation loss" in err
    assert "best so far" in err and f"softlook train table --config {best}" in err
    code, out, err = run("train", "table", "--config", best, "--no-baseline", "--ensemble", "single")
    assert code == 0 and out.strip() == str(Path("runs") / "table-people"), err
    code, out, err = run(*TUNE, *QUICK)
    assert code == 0 and "Resuming" in err and "trial 1" not in err and "The best of 2 trials is " in err


def test_with_json_every_trial_is_an_object(run: Any) -> None:
    code, out, err = run("--json", *TUNE, *QUICK)
    assert code == 0, err
    *trials, result = map(json.loads, out.splitlines())
    assert [trial["number"] for trial in trials] == [0, 1]
    assert {"params", "state", "value", "loss", "score", "epochs", "seconds", "is_best"} <= trials[0].keys()
    assert result["trials"] == 2 and result["params"]["optim.lr"] > 0


def test_without_optuna_the_extra_to_install_is_named(tmp_path: Path) -> None:
    people(tmp_path / "people.csv")
    code = "import sys; sys.modules['optuna'] = None; from softlook.cli import main; main(sys.argv[1:])"
    completed = subprocess.run([sys.executable, "-c", code, *TUNE], cwd=tmp_path, capture_output=True, text=True)
    assert completed.returncode == 69
    assert "error: hyperparameter search requires optuna: pip install softlook[tune]" in completed.stderr


def test_the_line_of_a_failed_trial_contains_its_error() -> None:
    from softlook.cli.commands.tune import describe_trial  # noqa: PLC0415  (after the shape checks are installed)
    from softlook.tabular.tuning import TrialResult  # noqa: PLC0415  (as above)

    trial = TrialResult(1, {"lr": 1e30}, "failed", None, None, None, 0, 1.2, error="the loss became nan")
    line = "trial 2 of 9: 0 epochs, 1.2 s, failed: the loss became nan\n    lr 1e+30"
    assert describe_trial(trial, 9) == line
