"""Text corpus: training and validation data, read lazily."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, cast

from softlook.data import Examples, TextExample, data_digest, make_split
from softlook.data.examples import Example
from softlook.data.split import Split, content_digest
from softlook.recipes.config.schema import Files

MAX_HELD_OUT, MIN_HELD_OUT = 2000, 100
"""Examples of an automatic validation split: at most; and at least, unless that is more than a tenth of the data."""
MAX_VALIDATION_EXAMPLES = 20_000
"""Examples of given validation data that are used, in tasks that keep all of them in memory."""
MAX_CHUNK_CHARACTERS = 1 << 19
"""Characters of text that are tokenized at once."""


@dataclass(frozen=True)
class CorpusSplit(Generic[Example]):
    """One side of a split, or all examples."""

    examples: Examples[Example]
    split: Split | None = None
    is_held_out: bool = False

    def __iter__(self) -> Iterator[Example]:
        if self.split is None:
            return iter(self.examples)
        return self.split.validation(self.examples) if self.is_held_out else self.split.train(self.examples)


@dataclass(frozen=True)
class Corpus(Generic[Example]):
    """The data of one run."""

    train: CorpusSplit[Example]
    valid: CorpusSplit[Example]
    counts: tuple[int, int]
    """Training and validation examples."""
    characters: int
    """Characters of training text."""
    digest: str
    valid_characters: int = 0
    """Characters of given validation data; an automatic split is small."""
    notes: tuple[str, ...] = ()
    columns: tuple[str | None, ...] = ()
    """Columns named by the user; detected ones follow from the data."""

    @property
    def messages(self) -> tuple[str, ...]:
        """What was detected, for people."""
        return (*self.train.examples.notes, *self.notes)


def read_corpus(
    read: Callable[[Files], Examples[Example]],
    data: Files,
    valid: Files,
    *,
    max_valid: int | None = None,
    columns: tuple[str | None, ...] = (),
) -> Corpus[Example]:
    """Training data and validation data: given, or a split that depends on the examples' content only.

    At most `max_valid` examples of given validation data are used.
    """
    examples = read(data)
    if not valid:
        split = make_validation_split(examples)
        train, held_out = CorpusSplit(examples, split), CorpusSplit(examples, split, is_held_out=True)
        count, characters = count_examples(train)
        digest = data_digest(examples.files)
        return Corpus(train, held_out, (count, split.held_out), characters, digest, columns=columns)
    (count, characters), given = count_examples(CorpusSplit(examples)), CorpusSplit(read(valid))
    used, (valid_count, valid_characters), notes = _subsample(given, *count_examples(given), max_valid)
    digest = data_digest([*examples.files, *given.examples.files])
    train = CorpusSplit(examples)
    return Corpus(train, used, (count, valid_count), characters, digest, valid_characters, notes, columns)


def count_examples(split: CorpusSplit[Example]) -> tuple[int, int]:
    """The number of examples, and of their characters."""
    count, characters = 0, 0
    for example in split:
        count += 1
        characters += sum(map(len, cast(dict[str, str], example.texts).values()))
    return count, characters


def _subsample(
    split: CorpusSplit[Example], count: int, characters: int, maximum: int | None
) -> tuple[CorpusSplit[Example], tuple[int, int], tuple[str, ...]]:
    """At most `maximum` examples, selected by content; their counts, and a message."""
    if maximum is None or count <= maximum:
        return split, (count, characters), ()
    sampled = make_split(split.examples, fraction=1.0, max_held_out=maximum)
    used = CorpusSplit(split.examples, sampled, is_held_out=True)
    counts = count_examples(used)
    return used, counts, (f"Evaluating on {counts[0]:,} of the {count:,} validation examples, sampled by content.",)


def make_validation_split(examples: Examples[Example]) -> Split:
    """Hold out 2 % of the distinct examples; 10 % of small data."""
    distinct: set[int] = set()
    for example in examples:
        distinct.add(content_digest(example.key))
        if len(distinct) >= 10 * MIN_HELD_OUT:
            break
    return make_split(examples, min_held_out=max(len(distinct) // 10, 1), max_held_out=MAX_HELD_OUT)


def contiguous_texts(split: CorpusSplit[TextExample]) -> Iterator[tuple[list[TextExample], bool, bool]]:
    """Consecutive texts of one document, interrupted where an example is in the other split.

    Each comes with two flags: whether the document begins, and whether it ends, with them.
    """
    texts: list[TextExample] = []
    begins, last, length = True, None, 0
    for example in split.examples:
        is_included = split.split is None or split.split.holds_out(example) == split.is_held_out
        is_new = example.document != last
        if texts and (is_new or not is_included or length > MAX_CHUNK_CHARACTERS):
            yield texts, begins, is_new
            texts, length, begins = [], 0, False
        if is_included:
            begins = is_new if not texts else begins
            texts.append(example)
            length += len(example.text)
        last = example.document
    if texts:
        yield texts, begins, True
