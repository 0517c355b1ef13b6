"""`softlook tune`, as a person types it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.small import people

TUNE = ("tune", "people.csv", "--target", "buys", "--ignore", "id", "spent", "--trials", "2")
QUICK = ("--size.dim", "8", "--size.depth", "1", "--size.heads", "2", "--size.members", "1", "--training.epochs", "2")


@pytest.fixture
def ask(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    from softlook.cli import main  # noqa: PLC0415  (after pytest has switched on the shape checks)

    monkeypatch.chdir(tmp_path)
    people(tmp_path / "people.csv")

    def asked(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err  # pyright: ignore[reportReturnType]

    return asked


def test_every_trial_is_a_line_and_the_next_word_is_told(ask: Any) -> None:
    code, out, err = ask(*TUNE, *QUICK)
    assert code == 0, err
    best = str(Path("runs") / "tune-people" / "best.toml")
    assert out.strip() == best
    assert "trial 1 of 2: validation loss" in err and "trial 2 of 2: validation loss" in err
    assert "best so far" in err and f"softlook train table --config {best}" in err
    code, out, err = ask("train", "table", "--config", best, "--no-baseline")
    assert code == 0 and out.strip() == str(Path("runs") / "table-people"), err
    code, out, err = ask(*TUNE, *QUICK)
    assert code == 0 and "Resuming" in err and "trial 1" not in err and "The best of 2 trials is " in err


def test_for_programs_every_trial_is_an_object(ask: Any) -> None:
    code, out, err = ask("--json", *TUNE, *QUICK)
    assert code == 0, err
    *trials, result = map(json.loads, out.splitlines())
    assert [trial["number"] for trial in trials] == [0, 1]
    assert {"settings", "state", "worth", "loss", "score", "epochs", "seconds", "is_best"} <= trials[0].keys()
    assert result["trials"] == 2 and result["settings"]["optim.lr"] > 0


def test_without_optuna_the_extra_is_named(tmp_path: Path) -> None:
    people(tmp_path / "people.csv")
    code = "import sys; sys.modules['optuna'] = None; from softlook.cli import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *TUNE], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 69
    assert "error: to search for settings, install optuna: pip install softlook[tune]" in done.stderr


def test_a_trial_that_failed_says_why() -> None:
    from softlook.cli.commands.tune import describe_trial  # noqa: PLC0415  (after the shape checks are on)
    from softlook.tabular.tuning import TrialResult  # noqa: PLC0415  (as above)

    said = describe_trial(
        TrialResult(1, {"lr": 1e30}, "failed", None, None, None, 0, 1.2, error="the loss became nan"), 9
    )
    assert said == "trial 2 of 9: 0 epochs, 1.2 s, failed: the loss became nan\n    lr 1e+30"
