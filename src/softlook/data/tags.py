"""Tag schemes: the entities in BIO, IOB and BIOES tags."""

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"
BEGIN, INSIDE, END, SINGLE = "B", "I", "EL", "SU"
"""First letters of tags: BIO, BIOES and BILOU."""


class TagSpan(NamedTuple):
    """An entity: its label, its first token, and the token after its last."""

    label: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and label of a tag. A tag without a prefix, such as a part of speech, is an entity of one token.

    >>> split_tag("B-PER"), split_tag("O"), split_tag("NOUN")
    (('B', 'PER'), ('O', ''), ('S', 'NOUN'))
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, label = tag.partition("-")
    if dash and label and len(prefix) == 1 and prefix in BEGIN + INSIDE + END + SINGLE:
        return "E" if prefix in END else "S" if prefix in SINGLE else prefix, label
    return "S", tag


def find_entities(tags: Sequence[str]) -> list[TagSpan]:
    """The entities of a sentence, by the rules of conlleval, which are also the default of seqeval.

    An entity ends before O, before a tag of another label, before B or S, and after E or S. I or E without a
    beginning starts an entity.

    >>> find_entities(["B-PER", "I-PER", "O", "B-LOC", "B-LOC"])
    [TagSpan(label='PER', start=0, end=2), TagSpan(label='LOC', start=3, end=4), TagSpan(label='LOC', start=4, end=5)]
    """
    spans: list[TagSpan] = []
    start, last_prefix, last_label = 0, OUTSIDE, ""
    for index, tag in enumerate((*tags, OUTSIDE)):
        prefix, label = split_tag(tag)
        continues = prefix in "IE" and last_prefix in "BI" and label == last_label
        if not continues:
            if last_prefix != OUTSIDE:
                spans.append(TagSpan(last_label, start, index))
            start = index
        last_prefix, last_label = prefix, label
    return spans
