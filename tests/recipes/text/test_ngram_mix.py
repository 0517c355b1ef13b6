"""The n-gram model beside a causal language model: its gate, scores, the command's flag, resuming."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.heads.ngram_lm import mix_logprobs
from softlook.recipes import evaluate, train_causal_lm, train_masked_lm
from softlook.recipes.config.schema import BatchConfig
from softlook.recipes.text.ngram_mix import HeldOutTokens, build_ngram_lm, fit_gate, mix_loss
from softlook.train.batching.packed_stream import TokenizedDocuments
from softlook.train.events import Evaluated, Event
from softlook.weights import load
from tests.recipes.small import causal_lm_config, events_of, masked_lm_config, sentences


def tokens(attention: float, own: float, count: int = 200) -> HeldOutTokens:
    return HeldOutTokens(torch.ones(count, 1), torch.full((count,), attention), torch.full((count,), own))


@pytest.mark.parametrize(("attention", "own"), [(-1.0, -3.0), (-3.0, -1.0), (-1.0, -1.0)])
def test_the_gate_selects_the_better_model(attention: float, own: float) -> None:
    held_out = tokens(attention, own)
    assert mix_loss(held_out, fit_gate(held_out)) == pytest.approx(-max(attention, own), abs=0.05)


def test_a_gate_by_position_is_better_than_both_models() -> None:
    """Each model knows one kind of token, which the features tell apart."""
    first, second = tokens(-0.5, -4.0), tokens(-4.0, -0.5)
    features = torch.cat([torch.tensor([[1.0, 0.0]]).expand(200, -1), torch.tensor([[0.0, 1.0]]).expand(200, -1)])
    both = HeldOutTokens(features, torch.cat([first.attention, second.attention]), torch.cat([first.own, second.own]))
    assert mix_loss(both, fit_gate(both)) < 0.6 < -both.attention.mean()


def test_mixed_probabilities_are_a_weighted_mean() -> None:
    probabilities = torch.tensor([0.5]), torch.tensor([0.1])
    mixed = mix_logprobs(torch.ones(1, 1), torch.tensor([1.0]), *(p.log() for p in probabilities)).exp()
    share = torch.tensor(1.0).sigmoid()
    torch.testing.assert_close(mixed, share * probabilities[0] + (1 - share) * probabilities[1])


@pytest.mark.parametrize(("characters", "order"), [(100, 8), (400, 5)])
def test_ngrams_of_characters_are_longer_than_those_of_subwords(characters: int, order: int) -> None:
    documents = TokenizedDocuments(torch.arange(100) % 5, torch.tensor([0]))
    assert build_ngram_lm(documents, vocab_size=5, characters=characters).config.order == order


def config(folder: Path, name: str, **options: Any) -> Any:
    batch = BatchConfig(max_tokens=512, max_length=32)
    return causal_lm_config(folder, steps=4, run_dir=folder / name, batch=batch, **options)


def test_a_mix_is_better_than_attention_alone_and_scored_alike_by_eval(tmp_path: Path) -> None:
    events: list[Event] = []
    trained = train_causal_lm(config(tmp_path, "mixed"), [events.append])
    last = events_of(events, Evaluated)[-1].scores
    assert last["loss"] < last["attention_loss"]
    model: Any = load(trained.run_dir)
    assert model.config.ngrams == trained.model.config.ngrams and model.ngrams.gate.abs().sum() > 0  # pyright: ignore[reportAttributeAccessIssue]
    text = sentences(tmp_path / "more.txt")
    again = evaluate(trained.run_dir, (text,))
    plain = train_causal_lm(config(tmp_path, "plain", no_ngrams=True))
    assert getattr(plain.model, "ngrams", None) is None
    assert again["loss"] < evaluate(plain.run_dir, (text,))["loss"]


@pytest.mark.parametrize("arch", ["transformer_xl", "convolution"])
def test_architectures_without_a_kv_cache_have_no_ngrams(arch: str, tmp_path: Path) -> None:
    trained = train_causal_lm(config(tmp_path, arch, arch=arch))
    assert "attention_loss" not in trained.scores


def test_a_fine_tuned_model_keeps_its_ngrams(tmp_path: Path) -> None:
    first = train_causal_lm(config(tmp_path, "first"))
    tuned = train_causal_lm(config(tmp_path, "tuned", init_from=first.run_dir))
    own, former = (load(run.run_dir).state_dict() for run in (tuned, first))
    assert torch.equal(own["ngrams.unigram"], former["ngrams.unigram"])


def test_a_masked_language_model_is_better_with_its_neighbors(tmp_path: Path) -> None:
    trained = train_masked_lm(masked_lm_config(tmp_path))
    assert trained.scores["loss"] < trained.scores["attention_loss"]
    plain = train_masked_lm(masked_lm_config(tmp_path, run_dir=tmp_path / "plain", no_ngrams=True))
    assert trained.scores["loss"] < plain.scores["loss"] and "attention_loss" not in plain.scores
    text = sentences(tmp_path / "more.txt")
    assert evaluate(trained.run_dir, (text,))["loss"] < evaluate(plain.run_dir, (text,))["loss"]
