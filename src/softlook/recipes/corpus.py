"""What is learned from and what is held out, read once more each time somebody goes through it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, cast

from softlook.data import Examples, Text, data_digest, make_split
from softlook.data.digest import content_digest
from softlook.data.examples import Example
from softlook.data.split import Split
from softlook.recipes.settings import Files

MOST_HELD_OUT, USUAL = 2000, 100
"""Examples that are held out at most; and so many at least, where that is no more than a tenth of them."""

MOST_LOOKED_AT = 20_000
"""Of held-out data that somebody gives, how many examples are looked at where all of them are kept in memory."""

LONGEST = 1 << 19
"""Characters of text that are handed on at once."""


@dataclass(frozen=True)
class Part(Generic[Example]):
    """One side of a split, or all examples there are."""

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

    train: Part[Example]
    valid: Part[Example]
    counts: tuple[int, int]
    """Examples to learn from, and held out."""
    characters: int
    """To learn from."""
    digest: str
    held_characters: int = 0
    """Of held-out data that were given; what we hold out ourselves is little."""
    more: tuple[str, ...] = ()

    @property
    def said(self) -> tuple[str, ...]:
        """What was guessed, in sentences."""
        return (*self.train.examples.said, *self.more)


def read_corpus(
    read: Callable[[Files], Examples[Example]], data: Files, valid: Files, *, most: int | None = None
) -> Corpus[Example]:
    """Data, and held-out data: given, or a part of the data that depends on what the examples say alone.

    Of held-out data that were given, `most` are looked at.
    """
    examples = read(data)
    if not valid:
        split = split_of(examples)
        train, held = Part(examples, split), Part(examples, split, is_held_out=True)
        count, characters = counted(train)
        return Corpus(train, held, (count, split.held_out), characters, data_digest(examples.files))
    (count, characters), given = counted(Part(examples)), Part(read(valid))
    held, found, more = fewer(given, *counted(given), most)
    digest = data_digest([*examples.files, *given.examples.files])
    return Corpus(Part(examples), held, (count, found[0]), characters, digest, found[1], more)


def counted(part: Part[Example]) -> tuple[int, int]:
    """How many examples there are, and how many characters they have."""
    count, characters = 0, 0
    for example in part:
        count += 1
        characters += sum(map(len, cast(dict[str, str], example.texts).values()))
    return count, characters


def fewer(
    part: Part[Example], count: int, characters: int, most: int | None
) -> tuple[Part[Example], tuple[int, int], tuple[str, ...]]:
    """At most so many of them, chosen by what they say; their counts, and what there is to say about it."""
    if most is None or count <= most:
        return part, (count, characters), ()
    chosen = Part(part.examples, make_split(part.examples, share=1.0, most=most), is_held_out=True)
    found = counted(chosen)
    return chosen, found, (f"Of the {count:,} held-out examples {found[0]:,} are looked at, chosen by what they say.",)


def split_of(examples: Examples[Example]) -> Split:
    """Hold out 2 in 100 of the different examples; where there are few, 1 in 10."""
    different: set[int] = set()
    for example in examples:
        different.add(content_digest(example.key))
        if len(different) >= 10 * USUAL:
            break
    return make_split(examples, least=max(len(different) // 10, 1), most=MOST_HELD_OUT)


def unbroken(part: Part[Text]) -> Iterator[tuple[list[Text], bool, bool]]:
    """Texts of one document as far as they follow one another without a gap, where something was held out.

    Also says whether the document begins, and ends, with them.
    """
    held: list[Text] = []
    begins, last, length = True, None, 0
    for example in part.examples:
        is_ours = part.split is None or part.split.holds_out(example) == part.is_held_out
        is_new = example.document != last
        if held and (is_new or not is_ours or length > LONGEST):
            yield held, begins, is_new
            held, length, begins = [], 0, False
        if is_ours:
            begins = is_new if not held else begins
            held.append(example)
            length += len(example.text)
        last = example.document
    if held:
        yield held, begins, True


def stem_of(data: Files) -> str:
    """A name for the data: that of the first file, and of its folder where the file's says little.

    >>> from pathlib import Path
    >>> stem_of((Path("corpora/train.en.gz"), Path("corpora/train.de.gz"))), stem_of((Path("reviews.csv"),))
    ('corpora-train', 'reviews')
    >>> stem_of((Path("corpora/poems/../train.en"),))
    'corpora-train'
    """
    first = data[0].resolve() if ".." in data[0].parts else data[0].absolute()  # a name of dots would say little
    stem = first.name.split(".")[0] or "data"
    says_little = stem.lower() in ("train", "data", "input", "text", "corpus", "all")
    return f"{first.parent.name}-{stem}" if says_little and first.parent.name else stem
