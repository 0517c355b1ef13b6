"""Fitting of n-gram classifiers: IDF weights, a generalized linear model, and the mix with another classifier."""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.heads.classification import Problem
from softlook.heads.ngrams import NGramClassifier, NGramFeatures, bigram_keys
from softlook.train.batching.collate import ClassificationBatch
from softlook.train.batching.token_store import TokenStore

MAX_NONZERO = 40_000_000
"""Entries of the feature matrix; further texts are left out."""
MAX_ITERATIONS, ITERATIONS_PER_CHECK, HISTORY = 100, 10, 6
"""Of L-BFGS, for each strength of regularization; between two looks at the clock; and gradients that it keeps."""
COUNT_RATIO_SHARE, SMOOTHING = 0.5, 1.0
"""Share of the log-count ratio in the scale of a feature, and what is added to the counts of each class."""
MAX_BIGRAMS, MAX_WEIGHTS = 500_000, 1 << 24
"""Bigrams, and their weights for all classes."""
MAX_TOKENS, CHUNK = 30_000_000, 4_000_000
"""Tokens in which bigrams are counted, and that are counted at once."""


class Family(Protocol):
    """The family of a generalized linear model: logistic regression, one-vs-rest logistic regression, or ridge."""

    problem: ClassVar[Problem]
    regularization: ClassVar[tuple[float, ...]]
    """Inverse strengths of the L2 penalty that are compared on held-out data, ascending; scikit-learn's C."""
    scale: float
    """What the output of the model is multiplied by after fitting."""
    shift: float
    """What is then added."""

    def responses(self, targets: Tensor) -> Float[Tensor, "N K"]:
        """The values that the means are compared with."""
        ...

    def means(self, logits: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """The inverse of the canonical link function."""
        ...

    def negative_log_likelihood(self, logits: Float[Tensor, "N K"], targets: Tensor) -> Tensor:
        """The mean over the examples; its gradient is the difference of means and responses, divided by N."""
        ...

    def selection_error(self, logits: Float[Tensor, "N K"], targets: Tensor) -> float:
        """What the best regularization minimizes on held-out data."""
        ...


def known_bigrams(store: TokenStore, vocab_size: int, classes: int) -> Int[Tensor, " N"]:
    """The keys of the bigrams in the texts, in ascending order; the most frequent ones if there are many."""
    limit = min(MAX_BIGRAMS, MAX_WEIGHTS // classes)
    ids, starts = store.tensors()
    ids = ids[:MAX_TOKENS]
    has_previous = torch.ones(len(ids), dtype=torch.bool)
    has_previous[starts[starts < len(ids)]] = False  # a text, or its label, is no continuation of the one before
    keys, counts = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    for start in range(0, len(ids), CHUNK):
        pairs = bigram_keys(ids[start : start + CHUNK + 1].long(), vocab_size)
        new = torch.cat([keys, pairs[has_previous[start + 1 : start + CHUNK + 1]]])
        weights = torch.cat([counts, torch.ones(len(new) - len(keys), dtype=torch.int64)])
        keys, place = torch.unique(new, return_inverse=True)
        counts = torch.zeros(len(keys), dtype=torch.int64).index_add_(0, place, weights)
        if len(keys) > 2 * limit:
            keys, counts = _most_frequent(keys, counts, limit)
    return _most_frequent(keys, counts, limit)[0]


def _most_frequent(keys: Tensor, counts: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    chosen = counts.argsort(descending=True, stable=True)[:limit].sort().values
    return keys[chosen], counts[chosen]


@torch.no_grad()
def fit_ngrams(
    classifier: NGramClassifier,
    train: Iterable[ClassificationBatch],
    valid: Sequence[ClassificationBatch],
    family: Family,
    *,
    seconds: float = math.inf,
) -> Float[Tensor, "N K"]:
    """Fit IDF weights and a generalized linear model; the held-out data select the regularization.

    Returns the logits of the held-out texts, or their numbers, then fits once more on all texts together: a tenth more
    of a small data set is worth more than anything else.
    """
    began = time.monotonic()
    matrix, labels = _count_matrix(classifier, train, deadline=began + seconds / 4)
    documents = torch.bincount(matrix.column, minlength=classifier.num_features)
    classifier.idf.copy_(torch.log((1 + len(labels)) / (1 + documents)) + 1)
    held_out, held_out_labels = _count_matrix(classifier, valid)
    solver = _Solver(classifier, family, [matrix], [labels])
    best, strength, logits = math.inf, family.regularization[0], torch.empty(0)
    for candidate in family.regularization:
        solver.solve(candidate, began + seconds / 2)
        predicted = classifier.logits(classifier.normalize(*held_out, len(held_out_labels)), len(held_out_labels))
        loss = family.selection_error(predicted, held_out_labels)
        if loss < best:
            best, strength, logits = loss, candidate, predicted
        if loss > best or time.monotonic() > began + seconds / 2:
            break
    _Solver(classifier, family, [matrix, held_out], [labels, held_out_labels]).solve(strength, began + seconds)
    classifier.weight.mul_(family.scale)
    classifier.bias.mul_(family.scale).add_(family.shift)
    return logits * family.scale + family.shift


def fit_mix(
    logits: Float[Tensor, "B K"],
    own: Float[Tensor, "B K"],
    labels: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> tuple[float, float]:
    """Weights of two classifiers' log-probabilities or logits with the lowest held-out loss; neither is negative.

    >>> labels = torch.arange(100) % 2
    >>> good, bad = 2.0 * F.one_hot(labels, 2), torch.zeros(100, 2)
    >>> fit_mix(bad, good.log_softmax(-1), labels)[1] > 1
    True
    """
    both = torch.stack([logits.float(), own.float()], -1)
    log_weights = torch.full((2,), math.log(0.5), requires_grad=True)
    optimizer = torch.optim.LBFGS([log_weights], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        # A weak penalty keeps the weights of a perfect fit finite.
        total = loss(both @ log_weights.exp(), labels) + 1e-3 * log_weights.square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimizer.step(closure)
    first, second = log_weights.detach().exp().tolist()
    return first, second


def _count_matrix(
    classifier: NGramClassifier, batches: Iterable[ClassificationBatch], deadline: float = math.inf
) -> tuple[NGramFeatures, Tensor]:
    """Term frequencies and labels of as many texts as memory and time allow."""
    rows, columns, values, labels = [], [], [], []
    count = entries = 0
    for batch in batches:
        mask = batch.padding_mask
        frequency, column, row = classifier.count(batch.ids, mask)
        rows.append((row + count).int())
        columns.append(column.int())
        values.append(1 + frequency.log())
        labels.append(batch.labels)
        count, entries = count + len(batch.ids), entries + len(row)
        if entries > MAX_NONZERO or time.monotonic() > deadline:
            break
    return NGramFeatures(torch.cat(rows), torch.cat(columns), torch.cat(values)), torch.cat(labels)


class _Solver:
    """A generalized linear model with an L2 penalty, by L-BFGS; each solution starts from the one before.

    Features are scaled by class: those that are much more frequent in one class than in the others are penalized less
    (NBSVM, Wang and Manning, 2012). `weight` are the weights of scaled features.
    """

    def __init__(
        self,
        classifier: NGramClassifier,
        family: Family,
        matrices: Sequence[NGramFeatures],
        labels: Sequence[Tensor],
    ) -> None:
        self.classifier, self.family, self.labels = classifier, family, torch.cat(list(labels))
        rows = [first + matrix.row for first, matrix in zip(_starts(labels), matrices, strict=True)]
        columns, frequencies = (torch.cat([matrix[i] for matrix in matrices]) for i in (1, 2))
        matrix = classifier.normalize(torch.cat(rows), columns, frequencies, len(self.labels))
        self.used, column = torch.unique(matrix.column, return_inverse=True)
        shape = (len(self.labels), len(self.used))
        self.matrix = _to_csr(matrix.row, column, matrix.value, shape)
        self.transposed = _to_csr(column, matrix.row, matrix.value, (shape[1], shape[0]))
        self.scale = self._count_ratios()
        self.weight, self.bias = classifier.weight[self.used] / self.scale, classifier.bias.clone()

    def _count_ratios(self) -> Float[Tensor, "F K"]:
        """The scale of each feature in each class: a mean of 1 and of the relative log-count ratio."""
        if self.family.problem == "regression":
            return torch.ones_like(self.classifier.weight[self.used])
        presence = torch.sparse_csr_tensor(
            self.transposed.crow_indices(),
            self.transposed.col_indices(),
            torch.ones_like(self.transposed.values()),
            self.transposed.shape,
            check_invariants=False,
        )
        responses = self.family.responses(self.labels)
        own, others = presence @ responses + SMOOTHING, presence @ (1 - responses) + SMOOTHING
        ratio = ((own / own.sum(0)).log() - (others / others.sum(0)).log()).abs()
        relative = ratio / ratio.square().mean().sqrt().clamp(min=1e-6)
        scale = 1 - COUNT_RATIO_SHARE + COUNT_RATIO_SHARE * relative
        return scale / scale.square().mean().sqrt()

    def solve(self, strength: float, deadline: float) -> None:
        """Minimize the mean loss plus the penalty, and copy the solution into the classifier."""
        penalty, family = 1 / (strength * len(self.labels)), self.family
        responses = family.responses(self.labels)
        parameters = [nn.Parameter(self.weight), nn.Parameter(self.bias)]
        optimizer = torch.optim.LBFGS(
            parameters,
            max_iter=ITERATIONS_PER_CHECK,
            history_size=HISTORY,
            tolerance_grad=1e-6,
            tolerance_change=1e-7,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            weight, bias = (parameter.data for parameter in parameters)
            logits = self.matrix @ (self.scale * weight) + bias
            loss = family.negative_log_likelihood(logits, self.labels) + penalty / 2 * weight.square().sum()
            error = (family.means(logits) - responses) / len(responses)
            parameters[0].grad = self.scale * (self.transposed @ error) + penalty * weight
            parameters[1].grad = error.sum(0)
            return loss

        for _ in range(MAX_ITERATIONS // ITERATIONS_PER_CHECK):
            before = parameters[0].detach().clone()
            optimizer.step(closure)
            if time.monotonic() > deadline or torch.equal(before, parameters[0]):
                break
        self.weight, self.bias = (parameter.detach() for parameter in parameters)
        self.classifier.weight[self.used] = self.scale * self.weight
        self.classifier.bias.copy_(self.bias)


def _to_csr(row: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    order = torch.argsort(row, stable=True)
    starts = torch.zeros(shape[0] + 1, dtype=torch.int32)
    starts[1:] = torch.bincount(row, minlength=shape[0]).cumsum(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # CSR tensors are in beta
        return torch.sparse_csr_tensor(starts, column[order].int(), value[order], shape, check_invariants=False)


def _starts(labels: Sequence[Tensor]) -> list[int]:
    return [sum(map(len, labels[:number])) for number in range(len(labels))]
