"""Data report: statistics of texts, their quality issues, and findings about a dataset."""

import re
import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from softlook.data.examples import LabeledText, TaggedText, TextExample, TextPair
from softlook.data.records import Origin
from softlook.data.split import content_digest, exact_digest
from softlook.data.tags import find_entities

AnyExample = TextPair | TextExample | LabeledText | TaggedText
MAX_TRACKED = 20_000_000
"""Examples checked for duplicates: more would exceed the memory of a laptop."""


@dataclass(frozen=True)
class Finding:
    """A problem found in the data: severity, what, how to fix it, and where it first occurs."""

    severity: Literal["error", "warning", "note"]
    what: str
    help: str = ""
    location: str = ""

    def __str__(self) -> str:
        where = f" (first in {self.location})" if self.location else ""
        help = f". {self.help[0].upper()}{self.help[1:]}." if self.help else ""
        return f"{self.severity}: {self.what}{where}{help}"


@dataclass(frozen=True)
class LengthStats:
    """Statistics of text lengths."""

    min: int
    median: int
    p95: int
    max: int
    total: int


@dataclass(frozen=True)
class TextStats:
    """Statistics of the texts of one column."""

    characters: LengthStats
    words: LengthStats
    scripts: dict[str, int]
    """Number of texts per script of the first letter, most common first."""
    quality_issues: dict[str, int]
    """Number of texts with each quality issue."""


@dataclass(frozen=True)
class DataReport:
    """Statistics and findings of one pass over the data."""

    files: list[dict[str, Any]]
    notes: tuple[str, ...]
    examples: int
    empty: int
    bad_rows: int
    duplicates: int
    texts: dict[str, TextStats]
    labels: dict[str, int] = field(default_factory=dict)
    """Number of examples with each label, or of entities."""
    leaks: dict[str, int] = field(default_factory=dict)
    """For each held-out set, how many of its inputs are also in the training data."""
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


class DataStats:
    """Accumulates statistics of examples, and where some of them first occur."""

    def __init__(self) -> None:
        self.characters: dict[str, Counter[int]] = {}
        self.words: dict[str, Counter[int]] = {}
        self.scripts: dict[str, Counter[str]] = {}
        self.quality_issues: dict[str, Counter[str]] = {}
        self.labels: Counter[str] = Counter()
        self.entities: Counter[str] = Counter()
        self.length_ratios: Counter[int] = Counter()
        self.duplicates = self.copies = self.conflicting_labels = 0
        self.first_seen: dict[str, Origin | None] = {}
        self.seen: set[int] = set()
        self.inputs: dict[int, int] = {}
        """The digest of each input, and the hash of its label."""
        self.longest = 0

    def add(self, example: AnyExample) -> None:
        """Add one example."""
        label, origin = example.label if isinstance(example, LabeledText) else "", example.origin
        for name, text in example.texts.items():
            self._add_text(name, text, origin)
        self._add_digests(example, label, origin)
        if isinstance(example, LabeledText):
            self.labels.update((label,) if example.labels is None else example.labels)
        if isinstance(example, TaggedText):
            self.entities.update(span.label for span in find_entities(example.tags))
        if isinstance(example, TextPair):
            self._add_length_ratio(example, origin)

    def _add_text(self, name: str, text: str, origin: Origin | None) -> None:
        length = len(text)
        self.characters.setdefault(name, Counter())[length] += 1
        self.words.setdefault(name, Counter())[len(text.split())] += 1
        self.scripts.setdefault(name, Counter())[script_of(text)] += 1
        if length > self.longest:
            self.longest, self.first_seen["longest"] = length, origin
        for issue in quality_issues(text):
            self.quality_issues.setdefault(name, Counter())[issue] += 1
            self.first_seen.setdefault(f"{name} {issue}", origin)

    def _add_digests(self, example: AnyExample, label: str, origin: Origin | None) -> None:
        digest = exact_digest("\0".join((*example.texts.values(), label)))
        if digest in self.seen:
            self.duplicates += 1
            self.first_seen.setdefault("duplicates", origin)
        elif len(self.seen) < MAX_TRACKED:
            self.seen.add(digest)
            label_hash = hash(label)
            if self.inputs.setdefault(content_digest(example.key), label_hash) != label_hash:
                self.conflicting_labels += 1
                self.first_seen.setdefault("conflicting_labels", origin)

    def _add_length_ratio(self, pair: TextPair, origin: Origin | None) -> None:
        if pair.source == pair.target:
            self.copies += 1
            self.first_seen.setdefault("copies", origin)
        ratio = round(100 * (len(pair.target) + 5) / (len(pair.source) + 5))  # plus 5: short texts vary more
        self.length_ratios[ratio] += 1
        self.first_seen.setdefault(f"ratio {ratio}", origin)

    def text_stats(self, name: str) -> TextStats:
        """The statistics of one column."""
        return TextStats(
            length_stats(self.characters[name]),
            length_stats(self.words[name]),
            dict(self.scripts[name].most_common()),
            dict(self.quality_issues.get(name, Counter()).most_common()),
        )


def length_stats(counts: Counter[int]) -> LengthStats:
    """Statistics of lengths, from the count of each.

    >>> length_stats(Counter({1: 10, 5: 1}))
    LengthStats(min=1, median=1, p95=5, max=5, total=15)
    """
    total = sum(length * count for length, count in counts.items())
    return LengthStats(min(counts), quantile(counts, 0.5), quantile(counts, 0.95), max(counts), total)


def quantile(counts: Counter[int], q: float) -> int:
    """The q-quantile of numbers, from the count of each."""
    left = q * counts.total()
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return number
    return max(counts, default=0)


class QualityIssue(NamedTuple):
    """Characters that text should not have."""

    name: str
    pattern: re.Pattern[str]
    help: str


QUALITY_ISSUES = (
    QualityIssue("control characters", re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"), "remove them"),
    QualityIssue("carriage returns inside", re.compile(r"\r"), "write line ends as one line feed"),
    QualityIssue("replacement characters (U+FFFD)", re.compile("\ufffd"), "convert the file again from an intact copy"),
    QualityIssue(
        "invisible characters",  # not the joiners of Persian, Hindi and emoji
        re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"),
        "remove them",
    ),
    QualityIssue("private-use characters", re.compile("[\ue000-\uf8ff]"), "they depend on a font: replace them"),
    QualityIssue(
        "UTF-8 decoded as Latin-1 (mojibake)",
        re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac[\u0090-\u2122]"),
        "it was converted twice: convert it back, or try the package ftfy",
    ),
    QualityIssue(
        "HTML",
        re.compile(r"&(?:amp|lt|gt|quot|nbsp|#\d+);|</?(?:br|p|div|span|a|b|i|em)\b[^<>]*>", re.I),
        "remove it",
    ),
    QualityIssue("combining accents", re.compile("\\w[\u0300-\u036f]"), "normalize to Unicode NFC"),
    QualityIssue(
        "a missing value in words", re.compile(r"\A\s*(?:nan|null|none|n/a|#n/a)\s*\Z", re.I), "remove such rows"
    ),
    QualityIssue(
        "CSV quotes in a TSV",
        re.compile(r'\A"(?:[^"]|"")*""(?:[^"]|"")*"\Z'),
        "name the file .csv: tabs are detected",
    ),
)
TRIGGER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u00c2\u00c3\u00e2&<\u0300-\u036f\u200b-\u2069\ue000-\uf8ff\ufeff\ufffd]"
)
"""Characters that any of the patterns needs, except those on whole texts: a fast first check."""
START = tuple('"nN#')


def quality_issues(text: str) -> list[str]:
    """The names of the quality issues of a text.

    >>> quality_issues("Grüße"), quality_issues("GrÃ¼Ã\\x9fe<br>")
    ([], ['control characters', 'UTF-8 decoded as Latin-1 (mojibake)', 'HTML'])
    """
    if not TRIGGER.search(text) and not text.lstrip().startswith(START):
        return []
    return [issue.name for issue in QUALITY_ISSUES if issue.pattern.search(text)]


def script_of(text: str) -> str:
    """The script of a text's first letter.

    >>> script_of("(Привет)"), script_of("42")
    ('Cyrillic', 'none')
    """
    return next((_script(character) for character in text if character.isalpha()), "none")


@lru_cache(maxsize=1 << 12)
def _script(letter: str) -> str:
    first = unicodedata.name(letter, "unknown").split()[0]
    return {"CJK": "Han"}.get(first, first.capitalize())
