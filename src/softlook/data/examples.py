"""Training examples, iterated from files, with read statistics."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from softlook.base.errors import DataError
from softlook.data.records import Origin


class TextPair(NamedTuple):
    """A source text and its target, such as a translation."""

    source: str
    target: str
    origin: Origin | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Each text by its name."""
        return {"source": self.source, "target": self.target}

    @property
    def key(self) -> str:
        """What decides the side of a split: equal inputs are always on the same side."""
        return self.source


class TextExample(NamedTuple):
    """A text, or a part of a document. Parts with the same document number belong together, in order."""

    text: str
    document: int = 0
    origin: Origin | None = None
    label: str | None = None
    """Of a document with a class."""

    @property
    def texts(self) -> dict[str, str]:
        """The text by its name."""
        return {"text": self.text}

    @property
    def key(self) -> str:
        """What decides the side of a split."""
        return self.text


class LabeledText(NamedTuple):
    """A text, or a pair of texts, with a label: a class, any number of labels, or a number."""

    text: str
    pair: str | None
    label: str
    """As text, whatever it is."""
    origin: Origin | None = None
    labels: tuple[str, ...] | None = None
    """Of multi-label data."""
    value: float | None = None
    """Of regression data."""

    @property
    def texts(self) -> dict[str, str]:
        """Each text by its name."""
        return {"text": self.text} if self.pair is None else {"text": self.text, "text pair": self.pair}

    @property
    def key(self) -> str:
        """What decides the side of a split: equal inputs are always on the same side."""
        return self.text if self.pair is None else f"{self.text}\n{self.pair}"

    @property
    def stratum(self) -> str:
        """The class, by which a split is stratified; the same for all texts if they have no classes."""
        return self.label if self.labels is None and self.value is None else ""


class TaggedText(NamedTuple):
    """The tokens of a sentence with one tag each, such as B-PER."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    origin: Origin | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The tokens as one text, by its name."""
        return {"text": " ".join(self.tokens)}

    @property
    def key(self) -> str:
        """What decides the side of a split: equal sentences are always on the same side."""
        return " ".join(self.tokens)


UNREADABLE = "unreadable"
Example = TypeVar("Example", TextPair, TextExample, LabeledText, TaggedText)


class ReadStats:
    """Counts of examples read and of rows skipped, by reason. Raises when there are too many bad rows.

    >>> stats = ReadStats(max_bad_rows=1)
    >>> stats.count_example(text="a text"), stats.count_example(text="a text", label=" ")
    (True, False)
    >>> stats.skip_bad_row(DataError("not a text"))
    >>> stats.read, stats.empty, stats.bad, str(stats)
    (1, 1, 1, 'skipped 2 of 3 rows: 1 without a label, 1 unreadable')
    """

    def __init__(self, max_bad_rows: int = 0) -> None:
        self.max_bad_rows = max_bad_rows
        self.read = self.blank_lines = 0
        self.skipped: Counter[str] = Counter()
        """Rows skipped, by reason: "without a text", "without a label", "unreadable"."""
        self.first_errors: list[str] = []

    @property
    def bad(self) -> int:
        """Unreadable rows."""
        return self.skipped[UNREADABLE]

    @property
    def empty(self) -> int:
        """Blank lines of plain text, and rows in which a text or a label is missing."""
        return self.blank_lines + self.skipped.total() - self.bad

    def __str__(self) -> str:
        """What was skipped and why; empty if nothing was."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.most_common() if count)
        total = self.skipped.total()
        return f"skipped {total:,} of {self.read + total:,} rows: {reasons}" if reasons else ""

    def count_example(self, **texts: str) -> bool:
        """Count an example as read, or as skipped if one of its texts is blank. False if it is to be skipped."""
        for name, text in texts.items():
            if not text or text.isspace():
                self.skipped[f"without a {name.replace('_', ' ')}"] += 1
                return False
        self.read += 1
        return True

    def count_line(self, text: str) -> bool:
        """Count a line or a chunk of plain text, where a blank one only separates others. False if it is blank."""
        if not text or text.isspace():
            self.blank_lines += 1
            return False
        self.read += 1
        return True

    def skip_bad_row(self, error: DataError) -> None:
        """Count a bad row, or raise its error if there were too many."""
        if self.bad >= self.max_bad_rows:
            if self.bad:
                error.why = f"{error.why}. {self.bad:,} bad rows before it were skipped".lstrip(". ")
            skip = "skip such rows: --max-bad-rows 100"
            error.help = f"{error.help}; or {skip}" if error.help else skip
            raise error
        self.skipped[UNREADABLE] += 1
        if len(self.first_errors) < 5:
            self.first_errors.append(str(error))


@dataclass
class Examples(Generic[Example]):
    """Examples in files, read anew in every iteration; never all in memory.

    >>> from softlook.data.readers import read_sentences
    >>> _ = Path("a.txt").write_text("one\\n\\ntwo\\n")
    >>> examples = read_sentences("a.txt")
    >>> [example.text for example in examples], examples.read_stats.empty, examples.skipped
    (['one', 'two'], 1, Counter())
    """

    files: tuple[Path, ...]
    reader: Callable[[ReadStats], Iterator[Example]]
    """Starts one pass over the files."""
    notes: tuple[str, ...] = ()
    """What was inferred about the files, in sentences."""
    max_bad_rows: int = 0
    """Bad rows to skip before it is an error."""
    inferred: dict[str, str] = field(default_factory=dict)
    """Options that follow from the files, and that other files of the same data must be read with."""
    read_stats: ReadStats = field(default_factory=ReadStats)
    """Of the last pass, which may have stopped early."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Rows skipped in the last complete pass, by reason."""

    def __iter__(self) -> Iterator[Example]:
        self.read_stats = stats = ReadStats(self.max_bad_rows)
        yield from self.reader(stats)
        self.skipped = stats.skipped
        if not stats.read:
            raise _no_examples_error(self.files, stats)


def _no_examples_error(files: tuple[Path, ...], stats: ReadStats) -> DataError:
    skipped = [f"{stats.empty:,} empty"] * bool(stats.empty) + [f"{stats.bad:,} bad"] * bool(stats.bad)
    is_empty = bool(files) and not files[0].stat().st_size
    why = f"skipped: {' and '.join(skipped)}" if skipped else "it is empty" if is_empty else "it has no rows"
    why += f"; the first bad one: {stats.first_errors[0].splitlines()[0]}" if stats.first_errors else ""
    others = f", nor in the {len(files) - 1:,} others" if len(files) > 1 else ""
    return DataError(f"there are no examples in this file{others}", file=next(iter(files), None), why=why)
