"""The HTML report."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.recipes import train_translation
from softlook.recipes.run_dir.report import write_data_summary, write_report
from softlook.recipes.text.metrics import classification_report
from softlook.train.checkpoint.run_dir import write_json
from softlook.train.events import Evaluated, Event, EventLog, Finished, Sampled, Started, StepLogged, StepSkipped
from tests.recipes.small import translation_config

MALICIOUS = '<script>alert("1")</script>\x1b[31m'
SETTINGS = [
    ("data", "corpora/reviews.csv", "flag"),
    ("optim.lr", "0.002", "auto"),
    ("optim.beta1", "0.9", "default"),
    ("training.max_steps", "20", "file run.toml"),
]
VOID = {"meta", "br"}


class Balanced(HTMLParser):
    """Checks that every element is closed in the right order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def make_run(folder: Path, name: str = "good") -> None:
    """The files of a run, with events of two evaluations."""
    write_json(folder / "config.json", {"task": "classify"})
    write_json(folder / "metadata.json", {"command": ["softlook", "train"], "started": "2026-01-01T00:00:00+00:00"})
    samples = [{"text": "dull", "prediction": f"{name} (50%)", "label": name}]
    events: list[Event] = [
        Started(0, 20, "cpu", "float32", 1234567),
        StepLogged(10, 1.5, 1e-3, 2.0, 500.0, 1.0),
        Evaluated(10, {"error": 0.25, "loss": 0.9, "accuracy": 0.75}, is_best=True),
        Sampled(10, samples),
        StepLogged(20, 1.2, 1e-4, 2.0, 500.0, 2.0),
        Evaluated(20, {"error": 0.5, "loss": 0.7, "accuracy": 0.5}, is_best=False),
        Sampled(20, samples),
        Finished(20, "max_steps reached", 2.0),
    ]
    for event in events:
        EventLog(folder / "events.jsonl")(event)


def render(folder: Path, scores: dict[str, Any] | None = None) -> str:
    write_report(folder, SETTINGS, scores or {})
    page = (folder / "report.html").read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(page.removeprefix("<!doctype html>"))
    assert parser.open == []
    assert page.count("<table") == page.count('<div class="wide"><table'), "wide tables scroll"
    return page


def report(names: tuple[str, ...] = ("bad", "good"), text: str = "not bad") -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(50, len(names), generator=generator).softmax(-1)
    labels = torch.randint(0, len(names), (50,), generator=generator).tolist()
    return classification_report(probabilities, labels, names, [text] * 50)


def test_data_is_escaped_in_the_report(tmp_path: Path) -> None:
    path = tmp_path / "evil.tsv"
    path.write_text("".join(f"word {n} {MALICIOUS}\t{MALICIOUS} {n}\n" for n in range(50)), encoding="utf-8")
    config = translation_config(tmp_path).model_copy(update={"data": (path,)})
    page = (train_translation(config).run_dir / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\\x1b[31m" in page


def test_class_names_and_texts_are_escaped(tmp_path: Path) -> None:
    make_run(tmp_path, MALICIOUS)
    write_data_summary(tmp_path, {"training": {"examples": 5}}, {MALICIOUS: 3, "good": 2})
    page = render(tmp_path, {"test": report(("good", MALICIOUS), MALICIOUS)})
    assert "<script" not in page and "\x1b" not in page


def test_the_report_is_self_contained_and_complete(tmp_path: Path) -> None:
    run_dir = train_translation(translation_config(tmp_path)).run_dir
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)=", page)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    for text in ("optim.lr", "auto", "BLEU", "<svg", "max_steps reached", "prediction, step"):
        assert text in page
    assert "prefers-color-scheme: dark" in (run_dir / "loss.svg").read_text(encoding="utf-8")


def test_the_title_names_task_and_data(tmp_path: Path) -> None:
    make_run(tmp_path)
    page = render(tmp_path)
    assert "<h1>classify · reviews.csv</h1>" in page and "<title>classify · reviews.csv</title>" in page
    assert str(tmp_path) in page and "<pre>softlook train</pre>" in page


def test_tiles_show_the_best_validation_score_and_the_test_score(tmp_path: Path) -> None:
    make_run(tmp_path)
    page = render(tmp_path, {"accuracy": 0.75, "test": {"examples": 1500, "accuracy": 0.625}})
    found = dict(re.findall(r'<span class="label">([^<]+)</span><span class="number">([^<]+)</span>', page))
    assert found["validation accuracy"] == "0.7500" and found["test accuracy"] == "0.6250"
    assert found["parameters"] == "1.23M" and found["steps"] == "20" and found["speed"] == "500/s"
    assert "best: step 10" in page and "1,500 examples" in page


def test_a_running_run_has_a_report(tmp_path: Path) -> None:
    make_run(tmp_path)
    lines = (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()
    for count in range(1, len(lines)):
        (tmp_path / "events.jsonl").write_text("\n".join(lines[:count]) + "\n", encoding="utf-8")
        assert "running" in render(tmp_path)


def test_a_classifier_gets_its_classes_confusions_calibration_and_errors(tmp_path: Path) -> None:
    make_run(tmp_path)
    page = render(tmp_path, {"accuracy": 0.75, "test": report()})
    for text in ("Confusion matrix", "Reliability", "Most confidently wrong", "precision", "support", "not bad", "ECE"):
        assert text in page
    assert "confusion_matrix" not in page and "wrong_examples" not in page
    assert "Most frequent confusions" not in page, "the matrix shows them"


def test_many_classes_are_folded_and_have_no_matrix(tmp_path: Path) -> None:
    make_run(tmp_path)
    page = render(tmp_path, {"test": report(tuple(f"class {number}" for number in range(41)))})
    assert "21 more classes" in page and "Most frequent confusions" in page and "Confusion matrix" not in page


def test_the_scores_of_each_data_set_have_a_column(tmp_path: Path) -> None:
    make_run(tmp_path)
    page = render(tmp_path, {"loss": 0.9, "validation": {"loss": 0.8, "tokens": 12000}, "test": {"signature": "x|y"}})
    assert re.search(r"<td class=\"name\">loss</td><td class=\"num\">0.9000</td><td class=\"num\">0.8000</td>", page)
    assert "12,000" in page and "x|y" in page


def test_the_best_model_of_a_comparison_is_bold(tmp_path: Path) -> None:
    make_run(tmp_path)
    models = [
        {"model": "softlook", "accuracy": 0.9, "log_loss": 0.5, "seconds": 60.0},
        {"model": "LightGBM", "accuracy": 0.8, "log_loss": 0.4, "seconds": 0.1},
    ]
    page = render(tmp_path, {"compared": models, "compared_on": "200 test rows"})
    assert re.findall(r'class="num best">([^<]+)<', page) == ["0.9000", "0.4000"]
    assert "On the 200 test rows." in page


def test_changed_settings_come_first_and_defaults_are_folded(tmp_path: Path) -> None:
    make_run(tmp_path)
    page = render(tmp_path)
    positions = [page.index(f">{name}<") for name in ("training.max_steps", "optim.lr", "optim.beta1")]
    assert positions == sorted(positions)
    assert page.index("<details><summary>1 defaults") < positions[-1] < page.index("</details>")


def test_the_data_summary_is_shown_with_label_counts(tmp_path: Path) -> None:
    make_run(tmp_path)
    splits = {"training": {"examples": 9000, "characters": 512345}, "validation": {"examples": 1000}}
    write_data_summary(tmp_path, splits, {"good": 6000, "bad": 3000})
    page = render(tmp_path)
    for text in ("9,000", "512,345", "held out of the training files", "66.7%", "3,000"):
        assert text in page


def test_samples_of_the_same_example_stand_in_one_row(tmp_path: Path) -> None:
    make_run(tmp_path)
    for step in range(30, 90, 10):
        EventLog(tmp_path / "events.jsonl")(Sampled(step, [{"text": "dull", "prediction": f"at {step}\nline"}]))
    page = render(tmp_path)
    assert re.findall(r"prediction, step (\d+)", page) == ["10", "30", "50", "60", "80"]
    assert "<td>at 80\nline</td>" in page, "line breaks are kept"


def test_skipped_steps_are_reported(tmp_path: Path) -> None:
    make_run(tmp_path)
    assert "Warnings" not in render(tmp_path)
    EventLog(tmp_path / "events.jsonl")(StepSkipped(20, float("nan"), 1.0, (0, 0)))
    assert "Step 20 had non-finite gradients and was skipped." in render(tmp_path)


@pytest.mark.parametrize("name", ["accuracy", "perplexity", "rmse", "other"])
def test_any_validation_score_can_be_the_headline(name: str, tmp_path: Path) -> None:
    make_run(tmp_path)
    EventLog(tmp_path / "events.jsonl")(Evaluated(30, {name: 3.0}, is_best=True))
    assert f"validation {name if name != 'rmse' else 'RMSE'}" in render(tmp_path)
