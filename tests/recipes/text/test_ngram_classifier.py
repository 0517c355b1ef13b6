"""Fitting of n-gram classifiers: scikit-learn's solution, held-out data stay held out, the time limit, the mix."""

import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, pairwise

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from softlook.heads.ngrams import NGramClassifier, bigram_keys, build_ngrams
from softlook.recipes.text import ngram_classifier
from softlook.recipes.text.ngram_classifier import fit_mix, fit_ngrams, known_bigrams
from softlook.recipes.text.problems import SingleLabel
from softlook.train.batching.collate import ClassificationBatch, collate_classification
from softlook.train.batching.token_store import store_in_memory

VOCABULARY = [f"w{number}" for number in range(30)]
CLASSES = 3
FAMILY = SingleLabel(["a", "b", "c"])


def examples(count: int, seed: int, *, random_labels: bool = False) -> list[tuple[list[int], list[int], int]]:
    """Texts whose class has a few frequent words of its own."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        label = int(rng.integers(CLASSES))
        words = np.where(rng.random(12) < 0.3, 10 * label + rng.integers(3, size=12), rng.integers(30, size=12))
        rows.append((words.tolist(), [], int(rng.integers(CLASSES)) if random_labels else label))
    return rows


def batches(rows: Sequence[tuple[list[int], list[int], int]], size: int = 16) -> list[ClassificationBatch]:
    def join(first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
        return list(first), [0] * len(first)

    chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [collate_classification(chunk, join=join, max_length=64) for chunk in chunks]


def classifier(rows: Sequence[tuple[list[int], list[int], int]]) -> NGramClassifier:
    keys = {int(key) for ids, *_ in rows for key in bigram_keys(torch.tensor(ids), len(VOCABULARY))}
    return build_ngrams(VOCABULARY, torch.tensor(sorted(keys)), CLASSES)


def matrix(made: NGramClassifier, rows: Sequence[tuple[list[int], list[int], int]]) -> Tensor:
    """The features of texts, as a dense matrix."""
    ids = torch.tensor([ids for ids, *_ in rows])
    row, column, value = made.features(ids)
    return torch.zeros(len(rows), made.num_features).index_put((row, column), value)


def labels_of(rows: Sequence[tuple[list[int], list[int], int]]) -> Tensor:
    return torch.tensor([label for *_, label in rows])


def penalized_loss(logits: Tensor, labels: Tensor, weight: Tensor, strength: float) -> float:
    """Mean loss and L2 penalty: what scikit-learn minimizes, divided by C and the number of texts."""
    penalty = weight.square().sum() / (2 * strength * len(labels))
    return float(F.cross_entropy(logits, labels) + penalty)


@pytest.mark.parametrize("strength", [1.0, 30.0])
def test_the_weights_are_those_of_logistic_regression(strength: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAMILY, "regularization", (strength,))
    monkeypatch.setattr("softlook.recipes.text.ngram_classifier.COUNT_RATIO_SHARE", 0.0)
    train, valid = examples(120, 0), examples(40, 1)
    made = classifier(train)
    fit_ngrams(made, batches(train), batches(valid), FAMILY)
    features, labels = matrix(made, train + valid), labels_of(train + valid)
    oracle = LogisticRegression(C=strength, max_iter=2000, tol=1e-7).fit(features.numpy(), labels.numpy())
    weight, bias = (torch.from_numpy(part).float() for part in (oracle.coef_, oracle.intercept_))
    expected = penalized_loss(features @ weight.T + bias, labels, weight, strength)
    found = penalized_loss(features @ made.weight + made.bias, labels, made.weight, strength)
    assert found == pytest.approx(expected, abs=1e-3)


def test_features_of_one_class_are_penalized_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights minimize the loss with the penalty of each divided by the square of its scale."""
    monkeypatch.setattr(FAMILY, "regularization", (10.0,))
    train, valid = examples(120, 0), examples(40, 1)
    made = classifier(train)
    fit_ngrams(made, batches(train), batches(valid), FAMILY)
    features, labels = matrix(made, train + valid), labels_of(train + valid)
    presence, responses = (features > 0).float().T, FAMILY.responses(labels)
    own, others = presence @ responses + 1, presence @ (1 - responses) + 1
    ratio = ((own / own.sum(0)).log() - (others / others.sum(0)).log()).abs()
    used = presence.sum(1) > 0
    scale = 1 + ratio / ratio[used].square().mean().sqrt()
    scale /= scale[used].square().mean().sqrt()
    weight, bias = (torch.zeros_like(part, requires_grad=True) for part in (made.weight, made.bias))
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=300, tolerance_change=1e-9, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        penalty = weight.square().sum() / (20 * len(labels))
        total = F.cross_entropy(features @ (scale * weight) + bias, labels) + penalty
        total.backward()
        return total

    optimizer.step(loss)
    torch.testing.assert_close(made.weight, (scale * weight).detach(), atol=0.02, rtol=0.05)


def test_idf_weights_are_those_of_scikit_learn_on_the_training_texts() -> None:
    train = examples(50, 0)
    made = classifier(train)
    fit_ngrams(made, batches(train), batches(examples(20, 1)), FAMILY)
    expected = TfidfTransformer(smooth_idf=True).fit(matrix(made, train).numpy()).idf_
    torch.testing.assert_close(made.idf, torch.from_numpy(expected).float())


def test_held_out_predictions_do_not_depend_on_the_held_out_labels() -> None:
    """A model without these texts makes them: random labels are predicted no better than by chance."""
    train, valid = examples(150, 0), examples(90, 1, random_labels=True)
    made = classifier(train)
    log_probs = fit_ngrams(made, batches(train), batches(valid), FAMILY).log_softmax(-1)
    labels = labels_of(valid)
    assert log_probs.shape == (len(valid), CLASSES)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(len(valid)))
    assert (log_probs.argmax(-1) == labels).float().mean() < 0.5
    refitted = (matrix(made, valid) @ made.weight + made.bias).argmax(-1)
    assert (refitted == labels).float().mean() > 0.8  # the final weights have seen these labels


def test_held_out_predictions_are_in_the_order_of_the_texts() -> None:
    train, valid = examples(300, 0), examples(60, 1)
    log_probs = fit_ngrams(classifier(train), batches(train), batches(valid, size=7), FAMILY)
    assert (log_probs.argmax(-1) == labels_of(valid)).float().mean() > 0.8


def test_fitting_ends_within_its_time_limit() -> None:
    """Of an endless stream of texts, it uses those that there is time for."""
    train, valid = examples(64, 0), examples(40, 1)
    made = classifier(train)
    began = time.monotonic()
    log_probs = fit_ngrams(made, cycle(batches(train)), batches(valid), FAMILY, seconds=0.4)
    assert time.monotonic() - began < 5
    assert (log_probs.argmax(-1) == labels_of(valid)).float().mean() > 0.5


def test_the_solver_gets_no_more_than_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[float] = []
    monkeypatch.setattr(ngram_classifier._Solver, "solve", lambda self, strength, deadline: deadlines.append(deadline))
    train, valid = examples(64, 0), examples(40, 1)
    began = time.monotonic()
    fit_ngrams(classifier(train), batches(train), batches(valid), FAMILY, seconds=100.0)
    *searches, final = (round(deadline - began) for deadline in deadlines)
    assert set(searches) == {50} and final == 100  # half for the strength of regularization, half for all texts


def test_without_time_some_texts_are_used() -> None:
    train, valid = examples(400, 0), examples(40, 1)
    made = classifier(train)
    log_probs = fit_ngrams(made, batches(train), batches(valid), FAMILY, seconds=0.0)
    assert log_probs.shape == (40, CLASSES) and made.weight.any()


def noisy_log_probs(labels: Tensor, strength: float, seed: int) -> Tensor:
    """Log-probabilities of a classifier that is right more often than not."""
    noise = torch.randn(len(labels), CLASSES, generator=torch.Generator().manual_seed(seed))
    return (3 * (strength * F.one_hot(labels, CLASSES) + noise)).log_softmax(-1)


def test_the_mix_has_a_lower_loss_than_either_part() -> None:
    labels = torch.arange(300) % CLASSES
    first, second = noisy_log_probs(labels, 1.0, 0), noisy_log_probs(labels, 1.5, 1)
    weights = fit_mix(first, second, labels)
    mixed = F.cross_entropy(weights[0] * first + weights[1] * second, labels)
    assert min(weights) > 0
    assert mixed < min(F.nll_loss(first, labels), F.nll_loss(second, labels))


def test_a_classifier_that_knows_nothing_gets_no_say() -> None:
    labels = torch.arange(300) % CLASSES
    weights = fit_mix(noisy_log_probs(labels, 0.0, 0), noisy_log_probs(labels, 1.5, 1), labels)
    assert 0 < weights[0] < 0.2 * weights[1], weights


def test_the_weights_of_perfect_classifiers_are_finite() -> None:
    labels = torch.arange(60) % CLASSES
    perfect = (20.0 * F.one_hot(labels, CLASSES)).log_softmax(-1)
    assert max(fit_mix(perfect, perfect, labels)) < 100


def test_known_bigrams_are_the_most_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_classifier, "MAX_BIGRAMS", 3)
    texts = [[1, 2, 3], [1, 2, 3], [1, 2, 4], [5, 6, 7], [5, 6]]
    store = store_in_memory([(text, [], [0]) for text in texts], vocab_size=10, rows=3)
    assert known_bigrams(store, 10, classes=2).tolist() == [12, 23, 56]


@pytest.mark.parametrize("chunk", [3, 1000])
def test_known_bigrams_are_pairs_of_tokens_of_one_text(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the labels nor two texts in a row are counted, however many tokens are counted at once."""
    monkeypatch.setattr(ngram_classifier, "CHUNK", chunk)
    pairs = [([1, 2, 3], [4, 1]), ([7], []), ([2, 3, 4, 4, 4], [8, 9])]
    store = store_in_memory([(*pair, [5]) for pair in pairs], vocab_size=10, rows=3)
    expected = Counter(10 * one + two for pair in pairs for text in pair for one, two in pairwise(text))
    assert known_bigrams(store, 10, classes=2).tolist() == sorted(expected)


def test_many_classes_have_fewer_bigrams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_classifier, "MAX_WEIGHTS", 20)
    store = store_in_memory([(list(range(10)), [], [0])], vocab_size=10, rows=3)
    assert [len(known_bigrams(store, 10, classes)) for classes in (2, 5)] == [9, 4]
