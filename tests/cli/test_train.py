"""From a file to a working model by one command, as a person types it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.small import digits, reviews, sentences

QUICK = (
    "--size.dim",
    "16",
    "--size.depth",
    "1",
    "--size.heads",
    "2",
    "--training.max_steps",
    "3",
    "--training.device",
    "cpu",
)


def softlook(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "softlook", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environ},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    digits(tmp_path / "digits.tsv", 60)
    sentences(tmp_path / "words.txt", 12)
    reviews(tmp_path / "reviews.csv", 60)
    return tmp_path


TASKS = {
    "translate": ("digits.tsv",),
    "lm": ("words.txt",),
    "mlm": ("words.txt", "--next-sentence"),
    "classify": ("reviews.csv", "--text", "review", "--label", "verdict"),
    "word2vec": ("words.txt",),
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_runs_from_a_file_alone(task: str, here: Path) -> None:
    data, *more = TASKS[task]
    done = softlook(here, "--json", "train", task, "--data", data, *more, *QUICK)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["path"] == str(Path("runs") / f"{task}-{Path(data).stem}")
    assert answer["steps"] == 3
    for words in ("held out", "parameters, on cpu in float32", "chosen for the data", "Next:"):
        assert words in done.stderr
    assert "Traceback" not in done.stderr
    if task != "word2vec":
        tested = softlook(here, "--json", "eval", answer["path"], "--data", data)
        assert tested.returncode == 0, tested.stderr
        assert json.loads(tested.stdout)["scores"]


def test_the_same_command_resumes_and_a_changed_one_is_rejected(here: Path) -> None:
    words = ("train", "lm", "words.txt", *QUICK)
    assert softlook(here, *words).returncode == 0
    again = softlook(here, *words)
    assert again.returncode == 0
    assert "Resuming runs" in again.stderr.replace(os.sep, "/")
    changed = softlook(here, *words, "--optim.lr", "0.7")
    assert changed.returncode == 1
    assert "optim.lr: 0.004 then, 0.7 now" in changed.stderr
    assert "another name with --run" in changed.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_ctrl_c_saves_a_checkpoint_to_resume_from(asked: signal.Signals, here: Path) -> None:
    steps = ("--training.max_steps", "100000", "--training.evaluate-every", "100000", "--training.log-every", "1")
    words = ("train", "lm", "words.txt", *QUICK[:6], *steps)
    process = subprocess.Popen(
        [sys.executable, "-m", "softlook", *words],
        cwd=here,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = here / "runs/lm-words/metrics.csv"
    while not metrics.exists() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(asked)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if asked == signal.SIGINT else 143), err
    assert "is saved. The same command resumes from there." in err
    assert list((here / "runs/lm-words/checkpoints").glob("step-*"))
    assert "Traceback" not in err


FAULTS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "a file that is not there": (("train", "lm", "word.txt"), 65, "did you mean words.txt"),
    "no data": (("train", "lm"), 65, "--data corpus.txt"),
    "an option that is not there": (("train", "lm", "words.txt", "--optim.lrr", "1"), 2, "Did you mean --optim.lr?"),
    "a command that is not there": (("trian", "lm", "words.txt"), 2, 'Did you mean "train"?'),
    "a value that is no number": (("train", "lm", "words.txt", "--optim.lr", "fast"), 2, "--optim.lr: input should be"),
    "a value that is too small": (("train", "lm", "words.txt", "--optim.lr", "0"), 2, "greater than 0; '0' came"),
    "a model that is not there": (("train", "lm", "words.txt", "--model", "gtp"), 2, "'gpt', 'llama'"),
    "a device that is not there": (("train", "lm", "words.txt", "--training.device", "moon"), 65, "no device 'moon'"),
    "a config that is not there": (("train", "lm", "words.txt", "--config", "run.toml"), 65, "run.toml is not there"),
    "a column that is not there": (("train", "classify", "reviews.csv", "--label", "verdikt"), 65, "verdict"),
    "a run that is none": (("eval", "runs/none", "--data", "words.txt"), 65, "is no run"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_is_said_with_what_to_do(fault: str, here: Path, capsys: Any, monkeypatch: Any) -> None:
    from softlook.cli import main  # noqa: PLC0415  (after pytest has switched on the shape checks)

    words, code, message = FAULTS[fault]
    monkeypatch.chdir(here)
    with pytest.raises(SystemExit) as ended:
        main(words)
    err = capsys.readouterr().err
    assert (ended.value.code, "Traceback" in err) == (code, False), err
    assert message in err
    assert not (here / "runs").exists()


def test_settings_come_from_file_environment_and_flags(here: Path) -> None:
    (here / "run.toml").write_text('data = "words.txt"\n[optim]\nlr = 0.5\nbeta1 = 0.5\n', encoding="utf-8")
    environ = {"SOFTLOOK_OPTIM__BETA1": "0.6"}
    words = ("--json", "train", "lm", "--config", "run.toml", "--dry-run", "--optim.grad_clip", "3")
    done = softlook(here, *words, **environ)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [said["settings"][f"optim.{name}"] for name in ("lr", "beta1", "clip")] == [0.5, 0.6, 3.0]
    assert said["origins"]["optim.lr"] == "file run.toml"
    assert said["origins"]["optim.beta1"] == "environment SOFTLOOK_OPTIM__BETA1"
    assert said["origins"]["optim.grad_clip"] == "flag"
    assert not (here / "runs").exists()


def test_quiet_says_nothing_and_the_result_is_the_path_alone(here: Path) -> None:
    done = softlook(here, "-q", "train", "lm", "words.txt", *QUICK)
    assert (done.stdout.strip(), done.stderr) == (str(Path("runs/lm-words")), "")


def test_control_characters_in_data_are_shown_and_do_not_act(here: Path) -> None:
    (here / "odd.tsv").write_text("".join(f"red \x1b[31m {n}\tback \x1b[0m {n}\n" for n in range(40)), encoding="utf-8")
    done = softlook(here, "train", "translate", "odd.tsv", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr
    assert "\\x1b[31m" in done.stderr


HELPS = (
    (),
    ("train",),
    ("train", "translate"),
    ("train", "lm"),
    ("train", "table"),
    ("predict",),
    ("check",),
    ("eval",),
    ("runs",),
    ("tokenizer", "train"),
)


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_does_not_wait_for_torch(words: tuple[str, ...]) -> None:
    code = "\n".join(
        (
            "import sys",
            "from softlook.cli import main",
            f"try: main({[*words, '--help']!r})",
            "except SystemExit as end: print(end.code or 0, 'torch' in sys.modules)",
        )
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert done.stdout.splitlines()[-1] == "0 False"
    assert "Usage: softlook" in done.stdout


def test_check_counts_before_training(here: Path) -> None:
    done = softlook(here, "--json", "check", "reviews.csv")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["task"], facts["examples"], set(facts["labels"])) == ("classify", 60, {"good", "bad"})
    shown = softlook(here, "check", "digits.tsv", "--task", "translate")
    assert "60 examples" in shown.stdout


def test_a_tokenizer_is_made_and_shown(here: Path) -> None:
    made = softlook(here, "tokenizer", "train", "words.txt", "--to", "mine.json", "--vocab-size", "300")
    assert (made.returncode, made.stdout.strip()) == (0, "mine.json"), made.stderr
    shown = json.loads(softlook(here, "--json", "tokenizer", "show", "mine.json", "the cat eats").stdout)
    assert shown["again"] == "the cat eats"
    assert len(shown["ids"]) == len(shown["pieces"])
    again = softlook(here, "tokenizer", "train", "words.txt", "--to", "mine.json")
    assert again.returncode == 74
    assert "overwrites nothing" in again.stderr


def test_runs_info_and_doctor_answer(here: Path) -> None:
    assert "There are no runs" in softlook(here, "runs").stderr
    assert "- **torch**: " in softlook(here, "info", "--markdown").stdout
    assert "a small model learns" in softlook(here, "doctor").stdout


def test_distributed_training_from_the_command_line(here: Path) -> None:
    done = softlook(here, "--json", "train", "lm", "words.txt", *QUICK, "--devices", "2", "--run-dir", "two")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 3
    assert done.stderr.count("Starting two") == 1
    assert softlook(here, "--json", "eval", "two", "--data", "words.txt").returncode == 0
