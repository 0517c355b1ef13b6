"""Column roles, inferred from known names and a sample of records."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.records import Record

SOURCES = ("source", "src", "input", "original", "from", "source_text", "src_text")
TARGETS = ("target", "tgt", "trg", "output", "translation", "to", "target_text", "tgt_text")
TEXT_WORDS = """
    text sentence review content body comment tweet message document utterance question query phrase article review_text
    reviewtext sentence1 text1 text_a sentence_a premise question1 prompt headline description title
"""
LABEL_WORDS = """
    label labels class sentiment category stars rating polarity emotion intent topic gold_label is_duplicate quality
    toxic score target y class_index
"""
TEXTS, LABELS = tuple(TEXT_WORDS.split()), tuple(LABEL_WORDS.split())
PAIRS = (
    ("premise", "hypothesis"),
    ("question", "answer"),
    ("question", "sentence"),
    ("question", "context"),
    ("query", "document"),
    ("query", "passage"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    ("text", "text_pair"),
)
KNOWN = frozenset((*SOURCES[:3], *TARGETS[:4], *TEXTS, *LABELS, "id", "index", "idx"))
"""Names that mark a first row as a header."""

LANGUAGE_WORDS = """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka
    kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl
    nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw
    ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    ara bul cat ces dan deu ell eng est eus fas fin fra gle glg heb hin hrv hun ind isl ita jpn kat kor lav lit mkd nld
    nor pol por ron rus slk slv spa srp swe tha tur ukr vie zho cmn ger fre dut
    arabic basque bulgarian catalan chinese croatian czech danish dutch english estonian finnish french georgian german
    greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian norwegian
    persian polish portuguese romanian russian serbian slovak slovenian spanish swedish thai turkish ukrainian
    vietnamese
"""
LANGUAGES = frozenset(LANGUAGE_WORDS.split())
LANGUAGE = re.compile(r"(?:.*\.)?([a-z]{2,12})(?:[_-][a-z]{2,4})?")
NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?\s*")


class FoundBy(StrEnum):
    """How a column was found. The value is for messages."""

    REQUEST = "as requested"
    NAME = "by name"
    POSITION = "by position"
    LONGEST_TEXT = "longest texts"
    FEW_VALUES = "few values"


@dataclass(frozen=True)
class ColumnRoles:
    """The column of each role.

    >>> found_by = {"text": FoundBy.NAME, "label": FoundBy.REQUEST}
    >>> print(ColumnRoles({"text": "review", "label": "stars"}, found_by, ("id",)))
    text is 'review' (by name) and label is 'stars' (as requested); unused: 'id'
    """

    roles: dict[str, str]
    found_by: dict[str, FoundBy]
    unused: tuple[str, ...] = ()

    def __getitem__(self, role: str) -> str:
        return self.roles[role]

    def __str__(self) -> str:
        shared = next(iter(self.found_by.values())) if len(set(self.found_by.values())) == 1 else ""
        *first, last = (
            f"{role} is {name!r}" + ("" if shared else f" ({self.found_by[role]})") for role, name in self.roles.items()
        )
        unused = ", ".join(repr(name) for name in self.unused[:8]) + ", ..." * (len(self.unused) > 8)
        roles = f"{', '.join(first)} and {last}" if first else last
        return roles + (f", {shared}" if shared else "") + (f"; unused: {unused}" if unused else "")


@dataclass(frozen=True)
class TableSample:
    """The columns of a table and some of its records."""

    path: Path
    columns: tuple[str, ...]
    sample: Sequence[Record] = ()
    unsupported: tuple[str, ...] = ()
    """Columns that are neither text nor numbers, with their types."""

    def values(self, column: str) -> list[Any]:
        """The sample's values in a column, without missing ones."""
        values = (record.values.get(column) for record in self.sample)
        return [value for value in values if value is not None and value != ""]


def infer_pair_columns(table: TableSample, *, source: str | None = None, target: str | None = None) -> ColumnRoles:
    """Source and target columns: as requested, else by name, else the first two with text.

    >>> print(infer_pair_columns(TableSample(Path("a.csv"), ("id", "en", "de"))))
    source is 'en' and target is 'de', by name; unused: 'id'
    """
    assigned = _RoleAssignment(table, {"source": source, "target": target})
    known = {"source": _first_known(SOURCES, assigned.free), "target": _first_known(TARGETS, assigned.free)}
    if all(known[role] for role in assigned.open):
        return assigned.finish({role: known[role] for role in assigned.open}, FoundBy.NAME)
    languages = [name for name in assigned.free if is_language(name) and name.casefold() != "id"]  # rarely Indonesian
    if len(languages) == len(assigned.open):
        return assigned.finish(dict(zip(assigned.open, languages, strict=True)), FoundBy.NAME)
    texts = [name for name in assigned.free if _is_text(table, name)]
    if len(texts) < len(assigned.open):
        raise _not_found_error(table, "two columns of text, one per language", "--source NAME --target NAME")
    return assigned.finish(dict(zip(assigned.open, texts, strict=False)), FoundBy.POSITION)


def infer_text_column(table: TableSample, *, text: str | None = None, label: str | None = None) -> ColumnRoles:
    """The text column: as requested, else by name, else the one with the longest texts; a label column on request.

    >>> print(infer_text_column(TableSample(Path("a.csv"), ("url", "content"))))
    text is 'content', by name; unused: 'url'
    """
    assigned = _RoleAssignment(table, {"text": text, **({} if label is None else {"label": label})})
    if text is not None:
        return assigned.finish({}, FoundBy.REQUEST)
    return assigned.finish(*_find_text(table, assigned.free))


def infer_labeled_columns(
    table: TableSample, *, text: str | None = None, pair: str | None = None, label: str | None = None
) -> ColumnRoles:
    """Text, optional second text, and label columns of a classification.

    >>> print(infer_labeled_columns(TableSample(Path("a.csv"), ("review", "stars"))))
    text is 'review' and label is 'stars', by name
    """
    assigned = _RoleAssignment(table, {"text": text, "text pair": pair, "label": label})
    if text is None and _first_known(TEXTS, assigned.free):
        assigned.assign(*_find_text(table, assigned.free))  # before a text of few values is taken for a label
    if label is None:
        assigned.assign(*_find_label(table, assigned.free))
    if "text" in assigned.open:
        assigned.assign(*_find_text(table, assigned.free))
    second = None if pair else _find_second_text(assigned.roles["text"], assigned.free)
    return assigned.finish({"text pair": second} if second else {}, FoundBy.NAME)


def resolve_column(table: TableSample, name: str) -> str:
    """The column with this name, ignoring case, or with this number.

    >>> resolve_column(TableSample(Path("a.csv"), ("Review", "Stars")), "2")
    'Stars'
    """
    if name in table.columns:
        return name
    folded = {column.casefold(): column for column in table.columns}
    if name.casefold() in folded:
        return folded[name.casefold()]
    if name.isdecimal() and 1 <= int(name[:6]) <= len(table.columns):
        return table.columns[int(name[:6]) - 1]
    similar = get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    raise DataError(
        f"there is no column {name!r:.80}; columns: {_describe_columns(table)}",
        file=table.path,
        help=f"did you mean {folded[similar[0]]!r:.80}?" if similar else "",
    )


def is_language(name: str) -> bool:
    """Whether a name is a language: en, eng, english, en_US, translation.en.

    >>> [is_language(name) for name in ("en", "pt-BR", "translation.de", "text")]
    [True, True, True, False]
    """
    found = LANGUAGE.fullmatch(name.casefold())
    return found is not None and found[1] in LANGUAGES


class _RoleAssignment:
    """Roles assigned so far, the open roles and the free columns."""

    def __init__(self, table: TableSample, requested: dict[str, str | None]) -> None:
        self.table, self.order = table, tuple(requested)
        self.roles = {role: resolve_column(table, name) for role, name in requested.items() if name is not None}
        self.found_by = dict.fromkeys(self.roles, FoundBy.REQUEST)
        if len(set(self.roles.values())) < len(self.roles):
            raise DataError(f"one column cannot have two roles: {self.roles}", file=table.path)

    @property
    def free(self) -> list[str]:
        return [name for name in self.table.columns if name not in self.roles.values()]

    @property
    def open(self) -> list[str]:
        return [role for role in self.order if role not in self.roles]

    def assign(self, roles: dict[str, str], found_by: FoundBy) -> None:
        self.roles |= roles
        self.found_by |= dict.fromkeys(roles, found_by)

    def finish(self, roles: dict[str, str], found_by: FoundBy) -> ColumnRoles:
        self.assign(roles, found_by)
        order = [role for role in self.order if role in self.roles]
        return ColumnRoles(
            {role: self.roles[role] for role in order}, {role: self.found_by[role] for role in order}, tuple(self.free)
        )


def _find_text(table: TableSample, free: list[str]) -> tuple[dict[str, str], FoundBy]:
    known = _first_known(TEXTS, free)
    if known:
        return {"text": known}, FoundBy.NAME
    texts = [name for name in free if _is_text(table, name)]
    if not texts:
        raise _not_found_error(table, "a column of text", "--text NAME")
    return {"text": max(texts, key=lambda name: _mean_length(table, name))}, FoundBy.LONGEST_TEXT


def _find_label(table: TableSample, free: list[str]) -> tuple[dict[str, str], FoundBy]:
    known = _first_known(LABELS, free)
    if known:
        return {"label": known}, FoundBy.NAME
    distinct = {name: len(set(map(str, table.values(name)))) for name in free}
    max_labels = max(2, min(100, len(table.sample) // 5))
    candidates = [name for name in free if 2 <= distinct[name] <= max_labels and _mean_length(table, name) < 40]
    if not candidates:
        raise _not_found_error(table, "a column of labels, with few repeated values", "--text NAME --label NAME")
    return {"label": min(candidates, key=lambda name: distinct[name])}, FoundBy.FEW_VALUES


def _find_second_text(text: str, free: list[str]) -> str | None:
    """The second text of a pair, if names suggest one: premise and hypothesis, text1 and text2."""
    folded = {name.casefold(): name for name in free}
    second = next((folded[b] for a, b in PAIRS if a == text.casefold() and b in folded), None)
    return second or (folded.get(text.casefold().replace("1", "2", 1)) if "1" in text else None)


def _first_known(known: Iterable[str], free: list[str]) -> str:
    folded = {name.casefold(): name for name in reversed(free)}
    return next((folded[name] for name in known if name in folded), "")


def _is_text(table: TableSample, name: str) -> bool:
    values = table.values(name)
    texts = [value for value in values if isinstance(value, str) and not NUMBER.fullmatch(value)]
    return not table.sample or len(texts) > len(values) / 2


def _mean_length(table: TableSample, name: str) -> float:
    values = table.values(name)
    return sum(len(str(value)) for value in values) / max(1, len(values))


def _not_found_error(table: TableSample, expected: str, flags: str) -> DataError:
    what = f"expected {expected}; columns: {_describe_columns(table)}"
    one_column = "put a tab or a comma between columns"
    return DataError(what, file=table.path, help=f"name them: {flags}" if len(table.columns) > 1 else one_column)


def _describe_columns(table: TableSample) -> str:
    shown = []
    for name in table.columns[:20]:
        example = next((str(value) for value in table.values(name)), None)
        shown.append(f"{name!r:.80}" + (f" (such as {example[:30]!r})" if example else ""))
    more = [f"and {len(table.columns) - 20:,} more"] * (len(table.columns) > 20)
    others = [f"and {', '.join(table.unsupported[:5])}, neither text nor numbers"] * bool(table.unsupported)
    return ", ".join(shown + more + others) or "none"
