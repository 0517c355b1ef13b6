"""Free-text columns as length and topics (TF-IDF, LSA)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer

from softlook.tabular.formatting import describe_column, fraction
from softlook.tabular.io.column import Column

N_TOPICS = 16
VOCABULARY_SIZE = 5000
MAX_TEXTS = 50_000
"""Texts to fit on."""


@dataclass(frozen=True)
class TextEncoder:
    """Encoder of a free-text column: TF-IDF weights projected to the main directions of variation (LSA)."""

    name: str
    vocabulary: tuple[str, ...]
    missing: float = 0.0
    by_words: bool = True
    """Whether terms are words; otherwise character 1- and 2-grams, for text without spaces."""
    idf: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    """(V,) inverse document frequencies."""
    topics: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """(V, topics) projection."""

    column_type: ClassVar[Literal["text"]] = "text"
    cardinality: ClassVar[None] = None

    @classmethod
    def fit(cls, column: Column, *, seed: int = 0) -> "TextEncoder":
        """Vocabulary and topics from the distinct texts in sorted order."""
        strings = column.strings()
        texts = sorted(strings.values.to_pylist())
        if len(texts) > MAX_TEXTS:
            sample = sorted(np.random.default_rng(seed).choice(len(texts), MAX_TEXTS, replace=False))
            texts = [texts[index] for index in sample]
        missing = fraction(int((strings.codes < 0).sum()), len(column))
        by_words = uses_spaces(texts)
        vectorizer = _count_vectorizer(by_words, min_df=2 if len(texts) >= 50 else 1)
        try:
            counts: Any = vectorizer.fit_transform(texts)
        except ValueError:  # no term at all
            return cls(column.name, (), missing, by_words)
        vocabulary = tuple(vectorizer.get_feature_names_out().tolist())
        idf = np.log((1 + len(texts)) / (1 + np.asarray((counts > 0).sum(0)).ravel())).astype(np.float32) + 1
        topics = _fit_topics(_tf_idf(counts, idf), seed)
        return cls(column.name, vocabulary, missing, by_words, idf, topics)

    @property
    def features(self) -> tuple[str, ...]:
        """The numbers that represent a text."""
        return ("length", *(f"topic {number}" for number in range(1, 1 + self.topics.shape[1])))

    def encode(self, column: Column) -> np.ndarray:
        """(N, features) float32, NaN for missing cells."""
        strings = column.strings()
        texts = strings.values.to_pylist()
        encoded = np.full((len(texts) + 1, len(self.features)), np.nan, np.float32)
        encoded[:-1, 0] = [len(text.split()) if self.by_words else len(text) for text in texts]
        if self.vocabulary and texts:
            counts = _count_vectorizer(self.by_words, vocabulary=self.vocabulary).transform(texts)
            encoded[:-1, 1:] = _tf_idf(counts, self.idf) @ self.topics.astype(np.float64)
        return encoded[strings.codes]

    def describe(self) -> str:
        """One line about the column."""
        details = f"{len(self.vocabulary):,} words in {self.topics.shape[1]} topics"
        return describe_column(self.name, self.column_type, details, missing=self.missing)


def uses_spaces(texts: list[str]) -> bool:
    """Whether words are separated by spaces, as in most languages."""
    characters = sum(map(len, texts))
    return characters < 16 * sum(len(text.split()) for text in texts)


def _count_vectorizer(by_words: bool, *, min_df: int = 1, vocabulary: tuple[str, ...] | None = None) -> CountVectorizer:
    terms: dict[str, Any] = (
        {"token_pattern": r"(?u)\b\w+\b"} if by_words else {"analyzer": "char", "ngram_range": (1, 2)}
    )
    return CountVectorizer(max_features=VOCABULARY_SIZE, min_df=min_df, vocabulary=vocabulary, **terms)


def _tf_idf(counts: Any, idf: np.ndarray) -> Any:
    """Sublinear TF-IDF rows of norm 1 (or 0)."""
    weighted = counts.astype(np.float64)
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1)).ravel())
    weighted.data /= np.repeat(norms, np.diff(weighted.indptr))
    return weighted


def _fit_topics(weighted: Any, seed: int) -> np.ndarray:
    count = min(N_TOPICS, *(size - 1 for size in weighted.shape))
    if count < 1:
        return np.zeros((weighted.shape[1], 0), np.float32)
    svd: Any = TruncatedSVD(count, random_state=seed).fit(weighted)
    return np.ascontiguousarray(svd.components_.T, np.float32)
