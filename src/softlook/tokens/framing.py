"""Special tokens around the texts that encoders read: `[CLS] a [SEP]`, and `[CLS] a [SEP] b [SEP]` for a pair."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenizers import Encoding

from softlook.tokens.special import is_own
from softlook.tokens.text import TextTokenizer

PROBES = ("a", "a few words", "Ünïcode, 漢字 🙂 12.5%")
"""Texts of which one has a token in every vocabulary of use."""


class Framed(NamedTuple):
    """What an encoder reads."""

    ids: list[int]
    segments: list[int]
    """Token type ids: 0 for the first text, 1 for the second, as far as the tokenizer tells them apart."""


Part = tuple[tuple[int, int], ...]
"""Special tokens with their token type ids."""


@dataclass(frozen=True)
class Frame:
    """Special tokens before and after a text; before, between and after a pair. Training, inference and serving all
    put them around texts by `join`.

    >>> from softlook.tokens import train_tokenizer
    >>> frame = frame_of(TextTokenizer(train_tokenizer([], kind="bytes")))
    >>> len(frame.join([7, 8]).ids), frame.join([7, 8], [9]).segments
    (4, [0, 0, 0, 0, 1, 1])
    """

    single: tuple[Part, Part]
    pair: tuple[Part, Part, Part]
    second: int = 1
    """The token type id of a second text."""

    def join(self, one: Sequence[int], other: Sequence[int] = ()) -> Framed:
        """Ids of one text, or of two, with what stands around them."""
        if not other:
            before, after = self.single
            return _framed(before, _typed(one, 0), after)
        before, between, after = self.pair
        return _framed(before, _typed(one, 0), between, _typed(other, self.second), after)

    @property
    def around(self) -> int:
        """Special tokens around one text."""
        return sum(map(len, self.single))

    @property
    def around_pair(self) -> int:
        """Special tokens around a pair of texts."""
        return sum(map(len, self.pair))


def frame_of(tokenizer: TextTokenizer) -> Frame:
    """As the template of other people's tokenizers has it; `[CLS] a [SEP] b [SEP]` for softlook's own, and for those
    without a template."""
    words = tokenizer.tokenizer
    probe = next((text for text in PROBES if words.encode(text, add_special_tokens=False).ids), None)
    if is_own(words) or probe is None or not words.num_special_tokens_to_add(is_pair=False):
        first, separator = ((tokenizer.first, 0),), tokenizer.separator
        return Frame((first, ((separator, 0),)), (first, ((separator, 0),), ((separator, 1),)))
    single, pair = words.encode(probe), words.encode(probe, probe)
    before, after = _parts(single)
    return Frame((before, after), tuple(_parts(pair)), pair.type_ids[pair.sequence_ids.index(1)])  # pyright: ignore[reportArgumentType]  (three)


def _parts(coded: Encoding) -> list[Part]:
    """The special tokens before, between and after texts."""
    parts: list[list[tuple[int, int]]] = [[]]
    before: int | None = None
    for id, type_id, text in zip(coded.ids, coded.type_ids, coded.sequence_ids, strict=True):
        if text is None:
            parts[-1].append((id, type_id))
        elif text != before:
            parts.append([])
            before = text
    return [tuple(part) for part in parts]


def _typed(ids: Sequence[int], type_id: int) -> Part:
    return tuple((id, type_id) for id in ids)


def _framed(*parts: Part) -> Framed:
    return Framed([id for part in parts for id, _ in part], [type_id for part in parts for _, type_id in part])
