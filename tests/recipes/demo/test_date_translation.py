"""The demo's model, and how it is trained."""

import subprocess
import sys
from pathlib import Path

import torch

from softlook.recipes.demo.dates import (
    EXAMPLE_DATE,
    HELD_OUT_DATES_FILE,
    HELD_OUT_FORMS_FILE,
    TRAIN_FILE,
    align_date,
    demo_config,
    held_out_dates,
    make_data,
    read_dates,
    score_dates,
    shipped_model,
    train,
)

ROOT = Path(__file__).parents[3]


def test_the_shipped_model_reads_held_out_dates() -> None:
    scores = score_dates(shipped_model(), held_out_dates(1000, seed=11))
    assert scores.accuracy >= 0.99, scores.errors


def test_cross_attention_aligns_the_day() -> None:
    prediction, weights = align_date(shipped_model(), EXAMPLE_DATE)
    assert prediction == "2022-03-03"
    assert weights.shape == (len(prediction), len(EXAMPLE_DATE))
    assert weights[-1].argmax().item() == EXAMPLE_DATE.index("3")
    assert weights[3].argmax().item() >= EXAMPLE_DATE.index("2022")


def test_predictions_do_not_depend_on_the_batch() -> None:
    model, texts = shipped_model(), [date.text for date in held_out_dates(7)]
    single = [read_dates(model, [text])[0] for text in texts[:3]]
    assert read_dates(model, texts)[:3] == read_dates(model, texts[:3]) == single


def test_it_writes_its_data_and_trains_on_it(tmp_path: Path) -> None:
    make_data(tmp_path)
    assert {TRAIN_FILE, HELD_OUT_DATES_FILE, HELD_OUT_FORMS_FILE} <= {path.name for path in tmp_path.iterdir()}
    torch.manual_seed(0)
    pipeline = train(tmp_path, steps=3)
    assert len(read_dates(pipeline, [EXAMPLE_DATE])) == 1
    run_dir = demo_config(tmp_path).run_dir
    assert run_dir is not None and (run_dir / "report.html").is_file()


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "softlook", "demo", "--pretrained", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_plots_the_attention(tmp_path: Path) -> None:
    result = run_demo("--to", str(tmp_path / "demo"), "3 mars 2022")
    assert result.returncode == 0, result.stderr
    assert "2022-03-03" in result.stderr
    assert result.stdout.strip() == str(tmp_path / "demo" / "alignment.svg")
    assert (tmp_path / "demo" / "alignment.svg").is_file()
