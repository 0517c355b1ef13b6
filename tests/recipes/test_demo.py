"""The demo: the reader that comes with the package, and how one is trained."""

import subprocess
import sys
from pathlib import Path

import torch

from softlook.recipes.dates import unseen_dates
from softlook.recipes.demo import DATES, FORMS, SHOWN, TRAIN, alignment, learn, make_data, marks, settings, shipped

ROOT = Path(__file__).parents[2]


def test_the_reader_that_comes_along_reads_dates_it_never_saw() -> None:
    came = marks(shipped(), unseen_dates(1000, seed=11))
    assert came.share >= 0.99, came.wrong


def test_it_looks_at_the_day_when_it_says_the_day() -> None:
    said, weights = alignment(shipped(), SHOWN)
    assert said == "2022-03-03"
    assert weights.shape == (len(said), len(SHOWN))
    assert weights[-1].argmax().item() == SHOWN.index("3")
    assert weights[3].argmax().item() >= SHOWN.index("2022")


def test_one_date_more_or_less_in_a_batch_changes_nothing() -> None:
    reader = shipped()
    texts = [date.text for date in unseen_dates(7)]
    assert reader.read(texts)[:3] == reader.read(texts[:3]) == [reader.read([text])[0] for text in texts[:3]]


def test_its_data_are_files_and_it_trains_on_them(tmp_path: Path) -> None:
    make_data(tmp_path)
    assert {TRAIN, DATES, FORMS} <= {path.name for path in tmp_path.iterdir()}
    torch.manual_seed(0)
    reader = learn(tmp_path, steps=3)
    assert len(reader.read([SHOWN])) == 1
    assert (settings(tmp_path).run / "report.html").is_file()  # pyright: ignore[reportOptionalOperand]


def test_the_command_shows_where_the_model_looks(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "softlook", "demo", "--trained", "--to", str(tmp_path / "demo"), "3 mars 2022"]
    came = subprocess.run(words, capture_output=True, text=True, check=False)
    assert came.returncode == 0, came.stderr
    assert "reads '3 mars 2022' as 2022-03-03" in came.stderr
    assert came.stdout.strip() == str(tmp_path / "demo" / "alignment.svg")
    assert "3 looks at 3" in (tmp_path / "demo" / "alignment.svg").read_text(encoding="utf-8")


def test_the_readme_shows_where_it_really_looks(tmp_path: Path) -> None:
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("```text\n")[2].split("```")[0].rstrip()
    words = [sys.executable, "-m", "softlook", "demo", "--trained", "--to", str(tmp_path / "demo")]
    came = subprocess.run(words, capture_output=True, text=True, check=False)
    said = "\n".join(line.rstrip() for line in came.stderr.splitlines())
    assert shown in said
