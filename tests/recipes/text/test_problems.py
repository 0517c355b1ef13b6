"""Multi-label classification of texts, and regression."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import ConfigError, DataError
from softlook.recipes import evaluate, train_classification
from softlook.recipes.inference import classify, load_pipeline
from softlook.recipes.text.problems import MultiLabel, Regression
from softlook.weights import to_hugging_face
from softlook.weights.checkpoint import load_auto
from softlook.weights.schema import read_json
from tests.recipes.small import classification_config

WORDS = {"food": ("soup", "bread"), "sport": ("goal", "match"), "tech": ("chip", "robot")}
GRADES = {"awful": 100, "dull": 200, "fine": 300, "superb": 500}


def topics(path: Path, count: int = 200, separator: str = ";") -> Path:
    """Texts with any number of topics: as lists in JSON Lines, otherwise in a cell of a table."""
    rng, rows = random.Random(0), []
    for number in range(count):
        labels = [label for label in WORDS if rng.random() < 0.4]
        text = " ".join([f"news {number}", *(rng.choice(WORDS[label]) for label in labels)])
        rows.append((text, labels))
    if path.suffix == ".jsonl":
        lines = (json.dumps({"text": text, "labels": labels}) for text, labels in rows)
    else:
        lines = ("text\tlabels", *(f"{text}\t{separator.join(labels)}" for text, labels in rows))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def grades(path: Path, count: int = 200) -> Path:
    """Texts with a number that depends on their words."""
    rng, rows = random.Random(1), []
    for number in range(count):
        words = rng.choices(list(GRADES), k=2)
        rows.append(f"film {number} {' '.join(words)},{5000 + sum(GRADES[word] for word in words)}.5")
    path.write_text("review,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def multi_label_run(folder: Path, steps: int = 60, suffix: str = ".tsv", **more: Any) -> Any:
    data = topics(folder / f"topics{suffix}")
    given = {} if suffix == ".jsonl" else {"problem": "multi_label"}
    return train_classification(classification_config(folder, steps, data=(data,), test=(data,), **given, **more))


def regression_run(folder: Path, steps: int = 60, **more: Any) -> Any:
    data = grades(folder / "grades.csv")
    return train_classification(
        classification_config(folder, steps, data=(data,), test=(data,), problem="regression", **more)
    )


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_several_labels_per_text_are_learned(suffix: str, tmp_path: Path) -> None:
    trained = multi_label_run(tmp_path, suffix=suffix)
    assert trained.resolved.config.problem == "multi_label"
    assert trained.scores["f1_micro"] == trained.scores["subset_accuracy"] == 1.0
    assert trained.scores["test"]["classes"]["food"]["f1"] == 1.0
    assert read_json(trained.run_dir / "labels.json") == {"labels": ["food", "sport", "tech"]}
    assert evaluate(trained.run_dir, (tmp_path / f"topics{suffix}",), device="cpu") == trained.scores["test"]
    assert "label frequencies" in (trained.run_dir / "report.html").read_text(encoding="utf-8")
    found, nothing = classify(load_pipeline(trained.run_dir, device="cpu"), ["news 3 soup robot", "news 3"])
    assert set(found.labels) == {"food", "tech"} and len(found.classes) == 3
    assert nothing.labels == ()


@pytest.mark.parametrize("separator", ["|", ",", " / "])
def test_the_separator_of_labels_is_detected_or_given(separator: str, tmp_path: Path) -> None:
    data = topics(tmp_path / "topics.tsv", separator=separator)
    given = {"label_separator": separator} if separator == " / " else {"problem": "multi_label"}
    trained = train_classification(classification_config(tmp_path, 2, data=(data,), **given))
    assert trained.resolved.config.label_separator == separator
    assert read_json(trained.run_dir / "labels.json") == {"labels": ["food", "sport", "tech"]}


def test_test_data_are_read_with_the_separator_of_the_training_data(tmp_path: Path) -> None:
    trained = multi_label_run(tmp_path, steps=2)
    other = tmp_path / "other.tsv"
    other.write_text("text\tlabels\nsoup | match\tfood\nbread\ttech\n")
    assert evaluate(trained.run_dir, (other,), device="cpu")["examples"] == 2
    other.write_text("text\tlabels\nsoup\tfood|sport\n")
    with pytest.raises(DataError, match=r"other\.tsv:2: the class 'food\|sport' is not in the training data"):
        evaluate(trained.run_dir, (other,), device="cpu")


@pytest.mark.parametrize("ngrams", [True, False])
def test_numbers_are_learned_in_their_own_units(ngrams: bool, tmp_path: Path) -> None:
    trained = regression_run(tmp_path, steps=200, no_ngrams=not ngrams)
    assert trained.scores["r2"] > (0.9 if ngrams else 0.7) and trained.scores["test"]["rmse"] < 60
    scores = evaluate(trained.run_dir, (tmp_path / "grades.csv",), device="cpu")
    assert scores["rmse"] == pytest.approx(trained.scores["test"]["rmse"], rel=1e-3)
    low, high = classify(load_pipeline(trained.run_dir, device="cpu"), ["film 3 awful awful", "film 3 superb superb"])
    assert 5000 < low.probability < 5500 < high.probability < 6200


def test_the_scale_of_a_regression_is_folded_into_the_head(tmp_path: Path) -> None:
    trained = regression_run(tmp_path, steps=4, no_ngrams=True, pooling="cls")
    assert type(trained.model.head.to_classes) is torch.nn.Linear
    folder = to_hugging_face(trained.model, tmp_path / "hf", tokenizer=trained.run_dir / "tokenizer.json")
    assert read_json(folder / "config.json")["problem_type"] == "regression"
    ids = torch.tensor([[3, 5, 6, 4]])
    with torch.no_grad():
        expected = trained.model.eval()(ids)
        for model in (load_auto(trained.run_dir), load_auto(folder)):
            torch.testing.assert_close(model.eval()(ids), expected)
    assert expected.item() > 1000


def test_text_instead_of_a_number_is_an_error_with_its_position(tmp_path: Path) -> None:
    path = tmp_path / "grades.csv"
    path.write_text("review,score\nfine,3.5\ndull,bad\n")
    with pytest.raises(DataError, match=r"grades\.csv:3: 'score': expected a number, got 'bad'"):
        train_classification(classification_config(tmp_path, 2, data=(path,), problem="regression"))


def test_equal_numbers_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "grades.csv"
    path.write_text("review,score\n" + "".join(f"text {n},3\n" for n in range(20)))
    with pytest.raises(DataError, match="all examples have the number 3"):
        train_classification(classification_config(tmp_path, 2, data=(path,), problem="regression"))


def test_accuracy_cannot_select_a_checkpoint_of_a_regression(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--monitor accuracy is for one class per text"):
        regression_run(tmp_path, steps=2, monitor="accuracy")


def test_many_numeric_classes_suggest_regression(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "grades.csv"
    path.write_text("review,score\n" + "".join(f"text {n},{n % 25}\n" for n in range(100)))
    with caplog.at_level("INFO", "softlook"):
        train_classification(classification_config(tmp_path, 2, data=(path,)))
    assert "The 25 different labels are numbers: --problem regression predicts a number" in caplog.text


def test_targets_are_stored_as_ids_and_restored() -> None:
    numbers, labels = Regression(["value"]), MultiLabel(["a", "b", "c"])
    assert [numbers.from_ids(numbers.to_ids(value)) for value in (0.5, -3e7)] == [0.5, -3e7]
    assert labels.collate([[0, 2], []]).tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_weights_of_the_mix_of_numbers_add_up_to_one() -> None:
    targets = torch.randn(50, 1)
    assert Regression(["value"]).mix_weights(torch.zeros(50, 1), targets, targets) == (0.0, 1.0)
    first, second = Regression(["value"]).mix_weights(targets + 1, targets - 1, targets)
    assert (first, second) == pytest.approx((0.5, 0.5))
