"""Classifiers, rerankers and regressors give the scores of Hugging Face's text-classification pipeline."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from transformers import pipeline

from softlook.base.errors import WeightsError
from softlook.cli import main
from softlook.recipes.inference import classify, load_pipeline
from softlook.serve.app import create_app
from softlook.serve.loaded_model import load_model, to_device
from softlook.serve.registry import ModelRegistry
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from tests.parity.text_folders import encoder_folder

TEXTS = ["a soft look", "this is a look at every word", "word"]
PROBLEMS: dict[str, dict[str, Any]] = {
    "one label": {"num_labels": 1},
    "two labels without names": {"num_labels": 2},
    "one number": {"num_labels": 1, "problem_type": "regression"},
    "three numbers": {"num_labels": 3, "problem_type": "regression"},
    "several labels at once": {"num_labels": 3, "problem_type": "multi_label_classification"},
    "one of several labels": {"num_labels": 3, "problem_type": "single_label_classification"},
    "labels without a problem": {"num_labels": 3},
}
KINDS = ["BertForSequenceClassification", "RobertaForSequenceClassification", "DistilBertForSequenceClassification"]


def expected_scores(folder: Path) -> list[dict[str, float]]:
    """The scores of the pipeline: label -> score, for each text."""
    reference: Any = pipeline("text-classification", model=str(folder), device="cpu", top_k=None)
    return [{one["label"]: one["score"] for one in found} for found in reference(TEXTS)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_scores_of_the_library_and_the_server_match_the_pipeline(kind: str, problem: str, tmp_path: Path) -> None:
    folder = encoder_folder(kind, tmp_path / "hf", **PROBLEMS[problem])
    expected = expected_scores(folder)
    for one, scores in zip(classify(load_pipeline(folder, device="cpu"), TEXTS), expected, strict=True):
        assert one.classes == pytest.approx(scores, rel=1e-4, abs=1e-6)
        assert one.label == max(scores, key=lambda label: scores[label])
    registry = ModelRegistry([to_device(load_model(folder, "m"), "cpu")])
    with TestClient(create_app(registry), base_url="http://localhost") as client:
        found = client.post("/v1/classify", json={"model": "m", "text": TEXTS}).json()["data"]
    registry.close()
    for one, scores in zip(found, expected, strict=True):
        assert {each["label"]: each["score"] for each in one["scores"]} == pytest.approx(scores, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("problem", "name"), [("one number", "value"), ("one label", "probability")])
def test_the_command_line_gives_the_same_scores(problem: str, name: str, tmp_path: Path, capsys: Any) -> None:
    folder = encoder_folder(KINDS[0], tmp_path / "hf", **PROBLEMS[problem])
    with pytest.raises(SystemExit) as exit_info:
        main(["--json", "classify", str(folder), *TEXTS, "--all", "--device", "cpu"])
    assert exit_info.value.code == 0
    for line, scores in zip(capsys.readouterr().out.splitlines(), expected_scores(folder), strict=True):
        found = json.loads(line)
        assert found[name] == pytest.approx(scores["LABEL_0"], rel=1e-4)
        if name == "probability":  # a number has no classes
            assert found["classes"] == pytest.approx(scores, rel=1e-4)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_problem_type_is_kept_in_checkpoints_and_exports(problem: str, tmp_path: Path) -> None:
    actual: Any = from_hugging_face(encoder_folder(KINDS[0], tmp_path / "hf", **PROBLEMS[problem]))
    saved: Any = load(save(actual, tmp_path / "saved"))
    assert saved.config.problem == actual.config.problem
    exported = json.loads((to_hugging_face(saved, tmp_path / "exported") / "config.json").read_text())
    assert exported.get("problem_type") == PROBLEMS[problem].get("problem_type")


def test_an_unknown_problem_raises_an_error(tmp_path: Path) -> None:
    folder = encoder_folder(KINDS[0], tmp_path / "hf")
    config = json.loads((folder / "config.json").read_text()) | {"problem_type": "ranking"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="problem_type.*got 'ranking'"):
        from_hugging_face(folder)
