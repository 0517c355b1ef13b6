"""Columns of free text: how many words, and what they are about, in a few numbers.

Words are weighted by how seldom they are (TF-IDF), and the directions in which texts differ most are kept (LSA).
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer

from softlook.tabular.sources.cells import Cells
from softlook.tabular.wording import share, told

TOPICS = 16
VOCABULARY = 5000
MOST = 50_000
"""Texts that are learned from."""


@dataclass(frozen=True)
class TextColumn:
    """A column of free text."""

    name: str
    vocabulary: tuple[str, ...]
    missing: float = 0.0
    by_words: bool = True
    """Or by pairs and triples of letters, where words are not set apart by spaces."""
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    """(V,): how seldom each word is."""
    topics: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """(V, topics)."""

    kind: ClassVar[Literal["text"]] = "text"
    size: ClassVar[None] = None

    @classmethod
    def learn(cls, cells: Cells, *, seed: int = 0) -> "TextColumn":
        """Words and directions, from the distinct texts in the order of the alphabet."""
        words = cells.words()
        texts = sorted(words.values.to_pylist())
        if len(texts) > MOST:
            texts = [
                texts[place] for place in sorted(np.random.default_rng(seed).choice(len(texts), MOST, replace=False))
            ]
        missing = share(int((words.codes < 0).sum()), len(cells))
        by_words = is_spaced(texts)
        counter = _counter(by_words, least=2 if len(texts) >= 50 else 1)
        try:
            counted: Any = counter.fit_transform(texts)
        except ValueError:  # not one word
            return cls(cells.name, (), missing, by_words)
        vocabulary = tuple(counter.get_feature_names_out().tolist())
        weights = np.log((1 + len(texts)) / (1 + np.asarray((counted > 0).sum(0)).ravel())).astype(np.float32) + 1
        topics = _topics(_weighted(counted, weights), seed)
        return cls(cells.name, vocabulary, missing, by_words, weights, topics)

    @property
    def slots(self) -> tuple[str, ...]:
        """Numbers that stand for a text."""
        return ("length", *(f"topic {number}" for number in range(1, 1 + self.topics.shape[1])))

    def encode(self, cells: Cells) -> np.ndarray:
        """(N, slots) float32, NaN where missing."""
        words = cells.words()
        texts = words.values.to_pylist()
        found = np.full((len(texts) + 1, len(self.slots)), np.nan, np.float32)
        found[:-1, 0] = [len(text.split()) if self.by_words else len(text) for text in texts]
        if self.vocabulary and texts:
            counted = _counter(self.by_words, vocabulary=self.vocabulary).transform(texts)
            found[:-1, 1:] = _weighted(counted, self.weights) @ self.topics.astype(np.float64)
        return found[words.codes]

    def told(self) -> str:
        """A line for people."""
        return told(
            self.name,
            self.kind,
            f"{len(self.vocabulary):,} words in {self.topics.shape[1]} topics",
            missing=self.missing,
        )

    def facts(self) -> dict[str, Any]:
        """What `TextColumn(**facts)` is made of."""
        return vars(self).copy()


def is_spaced(texts: list[str]) -> bool:
    """Whether spaces set words apart, as in most languages."""
    letters = sum(map(len, texts))
    return letters < 16 * sum(len(text.split()) for text in texts)


def _counter(by_words: bool, *, least: int = 1, vocabulary: tuple[str, ...] | None = None) -> CountVectorizer:
    manner: dict[str, Any] = (
        {"token_pattern": r"(?u)\b\w+\b"} if by_words else {"analyzer": "char", "ngram_range": (1, 2)}
    )
    return CountVectorizer(max_features=VOCABULARY, min_df=least, vocabulary=vocabulary, **manner)


def _weighted(counted: Any, weights: np.ndarray) -> Any:
    """Rows of length 1 (or of zeros)."""
    found = counted.astype(np.float64)
    found.data = (1 + np.log(found.data)) * weights[found.indices]
    lengths = np.sqrt(np.asarray(found.multiply(found).sum(1)).ravel())
    found.data /= np.repeat(lengths, np.diff(found.indptr))
    return found


def _topics(weighted: Any, seed: int) -> np.ndarray:
    count = min(TOPICS, *(size - 1 for size in weighted.shape))
    if count < 1:
        return np.zeros((weighted.shape[1], 0), np.float32)
    found: Any = TruncatedSVD(count, random_state=seed).fit(weighted)
    return np.ascontiguousarray(found.components_.T, np.float32)
