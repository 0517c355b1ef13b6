"""Baselines of text tasks: proper distributions, the scores of the task, and a time limit."""

import math
import time
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ConfigError, DataError
from softlook.data import TextPair
from softlook.losses import IGNORE_INDEX
from softlook.models import GPT, GPTConfig
from softlook.recipes.text import baselines
from softlook.recipes.text.baselines import (
    causal_lm_baselines,
    fit_within,
    masked_lm_baselines,
    sample_documents,
    translation_baselines,
)
from softlook.recipes.text.neighbor_model import NeighborModel
from softlook.recipes.text.ngram_lm import KneserNeyModel
from softlook.recipes.text.packed_lm import CausalLMObjective, PerplexityEvaluator
from softlook.recipes.text.translation_memory import TranslationMemory
from softlook.train.batching.collate import MaskedLMBatch
from softlook.train.batching.masking import DocumentStore
from softlook.train.batching.packed_stream import PackedStream, TokenizedDocuments
from softlook.train.batching.token_store import store_in_memory

V = 5
DOCUMENTS = st.lists(st.lists(st.integers(0, V - 1), min_size=1, max_size=12), min_size=1, max_size=6)


def to_documents(rows: list[list[int]]) -> TokenizedDocuments:
    return TokenizedDocuments.from_store(store_in_memory(((row,) for row in rows), vocab_size=V))


@settings(max_examples=60)
@given(DOCUMENTS, st.lists(st.integers(0, V - 1), min_size=1, max_size=5), st.integers(1, 4))
def test_ngram_probabilities_sum_to_one_after_any_text(train: list[list[int]], text: list[int], order: int) -> None:
    model = KneserNeyModel(to_documents(train), vocab_size=V, order=order)
    logprobs = model.logprobs(to_documents([[*text, token] for token in range(V)]))
    last = logprobs.view(V, len(text))[:, -1]
    assert last.isfinite().all() and last.exp().sum().item() == pytest.approx(1)


def test_kneser_ney_bigrams_follow_the_definition() -> None:
    """With the default discount, since the counts of so few bigrams do not determine another."""
    rows, D = [[0, 1, 0, 1, 2, 0, 1], [3, 1, 2]], 0.75
    bigrams = [pair for row in rows for pair in pairwise(row)]
    before = {token: len({a for a, b in bigrams if b == token}) or int(token in (3,)) for token in range(V)}
    total = sum(before.values())

    def probability(history: int, token: int) -> float:
        unigram = (max(before[token] - D, 0) + D * sum(map(bool, before.values())) / V) / total
        follows = [b for a, b in bigrams if a == history]
        if not follows:
            return unigram
        return (max(follows.count(token) - D, 0) + D * len(set(follows)) * unigram) / len(follows)

    model, pairs = KneserNeyModel(to_documents(rows), vocab_size=V, order=2), list(product(range(V), repeat=2))
    found = model.logprobs(to_documents([list(pair) for pair in pairs])).exp()
    assert found.tolist() == pytest.approx([probability(*pair) for pair in pairs])


def test_longer_ngrams_predict_repeated_text_better() -> None:
    documents = to_documents([[0, 1, 0, 2, 0, 1, 0, 3] * 20])
    losses = [-KneserNeyModel(documents, vocab_size=V, order=n).logprobs(documents).mean().item() for n in (1, 2, 4)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.3
    with pytest.raises(ConfigError, match="expected an order of at least 1, got 0"):
        KneserNeyModel(documents, vocab_size=V, order=0)


def test_ngrams_are_evaluated_on_the_tokens_of_the_model() -> None:
    """A model with equal logits has the loss log V on as many tokens as the n-gram model."""
    valid = to_documents([[0, 1, 2], [3], [4, 0, 1, 2, 3, 4, 0, 1, 2]])
    model = GPT(GPTConfig(vocab_size=V, context=4, dim=8, depth=1, heads=1)).eval()
    model.lm_head.weight.data.zero_()  # pyright: ignore[reportCallIssue]
    stream = PackedStream(valid, context=4, batch_size=2, seed=0)
    evaluator = PerplexityEvaluator(stream, CausalLMObjective(4), torch.device("cpu"))
    with torch.no_grad():
        scores = evaluator.evaluate_all(26, model)
    assert scores["tokens"] == len(KneserNeyModel(valid, vocab_size=V, order=3).logprobs(valid)) == 10
    (row,) = causal_lm_baselines(valid, valid, vocab_size=V, num_bytes=26)
    assert row["model"] == "5-gram (modified Kneser-Ney)" and row["perplexity"] == pytest.approx(math.exp(row["loss"]))
    assert row["bits_per_byte"] / row["loss"] == pytest.approx(scores["bits_per_byte"] / scores["loss"], rel=1e-4)


def test_the_time_limit_is_kept_with_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "TRIAL_TOKENS", 1000)
    monkeypatch.setattr(baselines, "BLOCK_TOKENS", 256)
    sizes = list[int]()

    def fit(documents: TokenizedDocuments) -> None:
        sizes.append(len(documents.ids))
        time.sleep(len(documents.ids) * 1e-5)

    train = TokenizedDocuments(torch.arange(100_000), torch.arange(0, 100_000, 70))
    fit_within(fit, train, 0.2)
    assert sizes[0] == 1000 and 3_000 < sizes[1] < 8_000
    fit_within(fit, train, 0.0)
    assert sizes[2:] == [1000]
    with pytest.raises(DataError, match="a baseline needs training text"):
        fit_within(fit, TokenizedDocuments(torch.tensor([]), torch.tensor([])), 1)


@given(DOCUMENTS, st.integers(1, 40))
def test_a_sample_has_contiguous_tokens_of_single_documents(rows: list[list[int]], count: int) -> None:
    documents = to_documents(rows)
    numbered = TokenizedDocuments(torch.arange(len(documents.ids)), documents.starts)
    sample = sample_documents(numbered, count)
    assert len(sample.ids) == min(count, len(numbered.ids)) and sample.starts[0] == 0
    is_start = torch.zeros(len(sample.ids), dtype=torch.bool)
    is_start[sample.starts] = True
    expected = torch.isin(sample.ids, documents.starts)
    assert (is_start[1:] == expected[1:]).all() and (sample.ids.diff() == 1).all()


@settings(max_examples=30)
@given(DOCUMENTS, st.integers(-1, V), st.integers(-1, V))
def test_neighbor_probabilities_sum_to_one(train: list[list[int]], left: int, right: int) -> None:
    distribution = NeighborModel(to_documents(train), vocab_size=V).distribution(left, right)
    assert (distribution > 0).all() and distribution.sum().item() == pytest.approx(1)


def masked_batch(rows: list[list[int]], labels: list[list[int]]) -> MaskedLMBatch:
    ids = torch.tensor(rows)
    return MaskedLMBatch(ids, torch.ones_like(ids).bool(), torch.zeros_like(ids), torch.tensor(labels), ids[:, 0])


def test_masked_tokens_are_predicted_from_their_neighbors() -> None:
    sentences = [([5, 6, 7, 6, 8], [1])] * 10 + [([7, 8, 5, 6], [])] * 10
    train = DocumentStore(store_in_memory(sentences, vocab_size=9, rows=2))
    cls, sep, mask, none = 0, 1, 2, IGNORE_INDEX
    options: dict[str, Any] = {"vocab_size": 9, "special_ids": (0, 1, 2), "mask_id": mask}
    batch = masked_batch(
        [[cls, 5, mask, 7, 6, 8, sep], [cls, mask, 6, 7, mask, 8, sep]],
        [[none, none, 6, none, none, none, none], [none, 5, none, none, 6, none, none]],
    )
    unigram, neighbors = masked_lm_baselines(train, [batch], **options)
    assert (unigram["model"], neighbors["model"]) == ("unigram", "left and right neighbor")
    assert unigram["accuracy"] == pytest.approx(2 / 3)  # 6 is the most frequent token
    assert neighbors["accuracy"] == 1 and neighbors["loss"] < 0.5 * unigram["loss"]
    assert masked_lm_baselines(train, [masked_batch([[5]], [[none]])], **options) == []


def test_translation_memory_finds_the_most_similar_source() -> None:
    train = [TextPair(f"number {n} is big", f"die Zahl {n} ist groß") for n in range(40)]
    train += [TextPair(f"the {word}", "immer dasselbe") for word in ("cat", "dog", "bird")]
    sources, references = ["a number 7 is big", "the cat sat"], ["die Zahl 7 ist groß", "immer dasselbe"]
    copied, frequent, nearest = translation_baselines(train, sources, references)
    assert nearest["chrf"] == 100 and nearest["bleu"] == pytest.approx(100)
    assert copied["chrf"] < 50 and frequent["chrf"] < nearest["chrf"]
    memory = TranslationMemory([(one.source, one.target) for one in train])
    assert memory.translate(sources, seconds=0.0) == memory.translate(sources)  # the rarest words suffice here
    assert translation_baselines(train, [], []) == []
    with pytest.raises(DataError, match="a baseline needs training pairs"):
        translation_baselines([], sources, references)
