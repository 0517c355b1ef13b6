"""Special-token templates of encoders: `[CLS] a [SEP] b [SEP]`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenizers import Encoding

from softlook.base.tensors import truncate_pair
from softlook.tokens.tokenizer import TextTokenizer, is_softlook_tokenizer

PROBES = ("a", "a few words", "Ünïcode, 漢字 🙂 12.5%")
"""Texts of which at least one has a token in every practical vocabulary."""


class TemplatedInput(NamedTuple):
    """Ids with special tokens, and token type ids."""

    ids: list[int]
    token_types: list[int]
    """0 for the first text, 1 for the second, if the tokenizer distinguishes them."""


TypedTokens = tuple[tuple[int, int], ...]
"""(id, token type) pairs."""


@dataclass(frozen=True)
class SequenceTemplate:
    """Special tokens before and after one text; before, between and after two. Used by training, inference and serving.

    >>> from softlook.tokens import train_tokenizer
    >>> template = template_from_tokenizer(TextTokenizer(train_tokenizer([], model_type="bytes")))
    >>> len(template.apply([7, 8]).ids), template.apply([7, 8], [9]).token_types
    (4, [0, 0, 0, 0, 1, 1])
    """

    single: tuple[TypedTokens, TypedTokens]
    pair: tuple[TypedTokens, TypedTokens, TypedTokens]
    second_type: int = 1
    """The token type of the second text."""

    def apply(self, first: Sequence[int], second: Sequence[int] = ()) -> TemplatedInput:
        """Add the special tokens around the ids of one text or two."""
        if not second:
            before, after = self.single
            return _concatenate(before, _with_type(first, 0), after)
        before, between, after = self.pair
        return _concatenate(before, _with_type(first, 0), between, _with_type(second, self.second_type), after)

    def truncate(
        self, first: Sequence[int], second: Sequence[int] = (), *, max_length: int, as_in_training: bool = False
    ) -> tuple[TemplatedInput, int]:
        """As `apply`, truncated to `max_length` tokens with special tokens; and the number of tokens removed.

        With `as_in_training`, one text leaves room for the special tokens of two and keeps its beginning and its end.

        >>> from softlook.tokens import train_tokenizer
        >>> template = template_from_tokenizer(TextTokenizer(train_tokenizer([], model_type="bytes")))
        >>> row, num_removed = template.truncate([7, 8, 9], max_length=4)
        >>> row.ids[1:-1], num_removed
        ([7, 8], 1)
        """
        num_special = self.num_special_pair if second or as_in_training else self.num_special_single
        kept = truncate_pair(first, second, max_length - num_special, keep_end=as_in_training)
        return self.apply(*kept), len(first) + len(second) - sum(map(len, kept))

    @property
    def num_special_single(self) -> int:
        """Number of special tokens added to one text."""
        return sum(map(len, self.single))

    @property
    def num_special_pair(self) -> int:
        """Number of special tokens added to two texts."""
        return sum(map(len, self.pair))


def template_from_tokenizer(tokenizer: TextTokenizer) -> SequenceTemplate:
    """The template of a tokenizer's post-processor; `[CLS] a [SEP] b [SEP]` for softlook's own and without one."""
    inner = tokenizer.tokenizer
    probe = next((text for text in PROBES if inner.encode(text, add_special_tokens=False).ids), None)
    if is_softlook_tokenizer(inner) or probe is None or not inner.num_special_tokens_to_add(is_pair=False):
        cls, sep_id = ((tokenizer.cls_id, 0),), tokenizer.sep_id
        return SequenceTemplate((cls, ((sep_id, 0),)), (cls, ((sep_id, 0),), ((sep_id, 1),)))
    single, pair = inner.encode(probe), inner.encode(probe, probe)
    before, after = _special_runs(single)
    second_type = pair.type_ids[pair.sequence_ids.index(1)]
    return SequenceTemplate((before, after), tuple(_special_runs(pair)), second_type)  # pyright: ignore[reportArgumentType]  (three)


def _special_runs(encoding: Encoding) -> list[TypedTokens]:
    """The special tokens before, between and after the texts."""
    runs: list[list[tuple[int, int]]] = [[]]
    previous: int | None = None
    for id, type_id, sequence in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True):
        if sequence is None:
            runs[-1].append((id, type_id))
        elif sequence != previous:
            runs.append([])
            previous = sequence
    return [tuple(run) for run in runs]


def _with_type(ids: Sequence[int], type_id: int) -> TypedTokens:
    return tuple((id, type_id) for id in ids)


def _concatenate(*runs: TypedTokens) -> TemplatedInput:
    return TemplatedInput([id for run in runs for id, _ in run], [type_id for run in runs for _, type_id in run])
