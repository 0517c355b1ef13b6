"""Attention of a text classifier, as data and in the report of a run."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from softlook.recipes import train_classification
from softlook.recipes.inference import load_pipeline
from softlook.recipes.run_dir.report import write_report
from softlook.recipes.run_dir.report.attention import MAX_EVALUATIONS
from softlook.recipes.text.attention import MAX_TOKENS, sample_attention
from softlook.train.events import EventLog, Sampled
from tests.recipes.small import classification_config


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_classification(classification_config(tmp_path_factory.mktemp("attention"))).run_dir


def test_the_weights_of_each_token_sum_to_one(run_dir: Path) -> None:
    pipeline = load_pipeline(run_dir, device="cpu")
    samples = sample_attention(pipeline.model, pipeline.tokenizer, ["film 3 was lovely", "dull " * 100])
    assert json.loads(json.dumps(samples)) == samples
    for sample in samples:
        weights, count = torch.tensor(sample["weights"]), len(sample["tokens"])
        assert weights.shape == (count, count) and count <= MAX_TOKENS
        torch.testing.assert_close(weights.sum(-1), torch.ones(count), atol=0.01, rtol=0)
    assert "film" in "".join(samples[0]["tokens"]) and samples[0]["tokens"][0] == "<cls>"


def test_a_model_without_attention_has_none(run_dir: Path) -> None:
    tokenizer = load_pipeline(run_dir, device="cpu").tokenizer
    assert sample_attention(nn.Linear(1, 1), tokenizer, ["film"]) == []


def test_the_report_shows_tokens_and_the_map(run_dir: Path) -> None:
    events = run_dir / "events.jsonl"
    recorded, weights = events.read_text(encoding="utf-8"), [[0.25, 0.75], [0.5, 0.5]]
    assert '"attention": [{"tokens"' in recorded
    events.write_text("", encoding="utf-8")
    for step in range(1, 9):
        EventLog(events)(Sampled(step, [], [{"tokens": ["<b>", "film"], "weights": weights}]))
    write_report(run_dir, [], {})
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert 'class="token" style="--share:100%" title="0.625">film</span>' in page
    assert 'style="--share:60%" title="0.375">&lt;b&gt;</span>' in page and "<b>" not in page
    assert "film attends to film: 0.500" in page
    assert "step 1<" in page and "step 8<" in page and page.count(">step ") == MAX_EVALUATIONS
    events.write_text("", encoding="utf-8")
    write_report(run_dir, [], {})
    assert "attends to" not in (run_dir / "report.html").read_text(encoding="utf-8")
