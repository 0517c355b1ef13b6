"""Which column means what: guessed from names and from a sample of records, and said."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.headers import NUMBER
from softlook.data.names import LABELS, PAIRS, SOURCES, TARGETS, TEXTS, is_language
from softlook.data.records import Record

ASKED, NAME, PLACE = "as asked for", "by name", "by place"


@dataclass(frozen=True)
class Columns:
    """Roles and the columns that play them. Prints itself as a sentence.

    >>> print(Columns({"text": "review", "label": "stars"}, {"text": "by name", "label": "as asked for"}, ("id",)))
    text is 'review' (by name) and label is 'stars' (as asked for); left out: 'id'
    """

    roles: dict[str, str]
    signs: dict[str, str]
    """By what each was found."""
    left: tuple[str, ...] = ()
    """Columns that are not used."""

    def __getitem__(self, role: str) -> str:
        return self.roles[role]

    def __str__(self) -> str:
        shared = next(iter(self.signs.values())) if len(set(self.signs.values())) == 1 else ""
        *first, last = (
            f"{role} is {name!r}" + ("" if shared else f" ({self.signs[role]})") for role, name in self.roles.items()
        )
        left = ", ".join(repr(name) for name in self.left[:8]) + ", ..." * (len(self.left) > 8)
        played = f"{', '.join(first)} and {last}" if first else last
        return played + (f", {shared}" if shared else "") + (f"; left out: {left}" if left else "")


@dataclass(frozen=True)
class Table:
    """What is known of a table before it is read: its columns, and some of its records."""

    path: Path
    columns: tuple[str, ...]
    sample: Sequence[Record] = ()
    others: tuple[str, ...] = ()
    """Columns that hold neither text nor numbers, with their types."""

    def values(self, column: str) -> list[Any]:
        """What the sample holds in a column."""
        found = (record.values.get(column) for record in self.sample)
        return [value for value in found if value is not None and value != ""]


def pair_columns(table: Table, *, source: str | None = None, target: str | None = None) -> Columns:
    """The two columns of a translation: those asked for, else by their names, else the first two that hold text.

    >>> print(pair_columns(Table(Path("a.csv"), ("id", "en", "de"))))
    source is 'en' and target is 'de', by name; left out: 'id'
    """
    cast = _Cast(table, {"source": source, "target": target})
    known = {"source": _first(SOURCES, cast.free), "target": _first(TARGETS, cast.free)}
    if all(known[role] for role in cast.open):
        return cast.done({role: known[role] for role in cast.open}, NAME)
    spoken = [name for name in cast.free if is_language(name) and name.casefold() != "id"]  # seldom Indonesian
    if len(spoken) == len(cast.open):
        return cast.done(dict(zip(cast.open, spoken, strict=True)), NAME)
    texts = [name for name in cast.free if _is_text(table, name)]
    if len(texts) < len(cast.open):
        raise _unknown(table, "two columns of text, one for each language", "--source NAME --target NAME")
    return cast.done(dict(zip(cast.open, texts, strict=False)), PLACE)


def text_column(table: Table, *, text: str | None = None) -> Columns:
    """The column of text to learn from: the one asked for, else by its name, else the one with the longest texts.

    >>> print(text_column(Table(Path("a.csv"), ("url", "content"))))
    text is 'content', by name; left out: 'url'
    """
    cast = _Cast(table, {"text": text})
    return cast.done({}, ASKED) if text is not None else cast.done(*_text(table, cast.free))


def labelled_columns(
    table: Table, *, text: str | None = None, pair: str | None = None, label: str | None = None
) -> Columns:
    """The columns of a classification: text, perhaps a second text it goes with, and a label of few values.

    >>> print(labelled_columns(Table(Path("a.csv"), ("review", "stars"))))
    text is 'review' and label is 'stars', by name
    """
    cast = _Cast(table, {"text": text, "text pair": pair, "label": label})
    if text is None and _first(TEXTS, cast.free):
        cast.take(*_text(table, cast.free))  # before a text of few values is taken for a label
    if label is None:
        cast.take(*_label(table, cast.free))
    if "text" in cast.open:
        cast.take(*_text(table, cast.free))
    second = None if pair else _beside(cast.roles["text"], cast.free)
    return cast.done({"text pair": second} if second else {}, NAME)


def named(table: Table, name: str) -> str:
    """The column that a person means by a name, in whatever case, or by a number.

    >>> named(Table(Path("a.csv"), ("Review", "Stars")), "2")
    'Stars'
    """
    if name in table.columns:
        return name
    folded = {column.casefold(): column for column in table.columns}
    if name.casefold() in folded:
        return folded[name.casefold()]
    if name.isdecimal() and 1 <= int(name[:6]) <= len(table.columns):
        return table.columns[int(name[:6]) - 1]
    close = get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    raise DataError(
        f"there is no column {name!r:.80}; there are {_listed(table)}",
        file=table.path,
        help=f"did you mean {folded[close[0]]!r:.80}?" if close else "",
    )


class _Cast:
    """Who plays which part, as far as it is settled."""

    def __init__(self, table: Table, asked: dict[str, str | None]) -> None:
        self.table, self.order = table, tuple(asked)
        self.roles = {role: named(table, name) for role, name in asked.items() if name is not None}
        self.signs = dict.fromkeys(self.roles, ASKED)
        if len(set(self.roles.values())) < len(self.roles):
            raise DataError(f"one column cannot play two parts: {self.roles}", file=table.path)

    @property
    def free(self) -> list[str]:
        return [name for name in self.table.columns if name not in self.roles.values()]

    @property
    def open(self) -> list[str]:
        return [role for role in self.order if role not in self.roles]

    def take(self, roles: dict[str, str], sign: str) -> None:
        self.roles |= roles
        self.signs |= dict.fromkeys(roles, sign)

    def done(self, roles: dict[str, str], sign: str) -> Columns:
        self.take(roles, sign)
        settled = [role for role in self.order if role in self.roles]
        played, signs = ({role: held[role] for role in settled} for held in (self.roles, self.signs))
        return Columns(played, signs, tuple(self.free))


def _text(table: Table, free: list[str]) -> tuple[dict[str, str], str]:
    known = _first(TEXTS, free)
    if known:
        return {"text": known}, NAME
    texts = [name for name in free if _is_text(table, name)]
    if not texts:
        raise _unknown(table, "a column of text", "--text NAME")
    return {"text": max(texts, key=lambda name: _length(table, name))}, "as it holds the longest texts"


def _label(table: Table, free: list[str]) -> tuple[dict[str, str], str]:
    known = _first(LABELS, free)
    if known:
        return {"label": known}, NAME
    few = {name: len(set(map(str, table.values(name)))) for name in free}
    most = max(2, min(100, len(table.sample) // 5))
    fit = [name for name in free if 2 <= few[name] <= most and _length(table, name) < 40]
    if not fit:
        raise _unknown(table, "a column of labels, with a few values that repeat", "--text NAME --label NAME")
    return {"label": min(fit, key=lambda name: few[name])}, "as it has few values"


def _beside(text: str, free: list[str]) -> str | None:
    """The second text of a pair, if the names say that there is one: premise and hypothesis, text 1 and text 2."""
    folded = {name.casefold(): name for name in free}
    second = next((folded[b] for a, b in PAIRS if a == text.casefold() and b in folded), None)
    return second or (folded.get(text.casefold().replace("1", "2", 1)) if "1" in text else None)


def _first(known: Iterable[str], free: list[str]) -> str:
    folded = {name.casefold(): name for name in reversed(free)}
    return next((folded[name] for name in known if name in folded), "")


def _is_text(table: Table, name: str) -> bool:
    values = table.values(name)
    words = [value for value in values if isinstance(value, str) and not NUMBER.fullmatch(value)]
    return not table.sample or len(words) > len(values) / 2


def _length(table: Table, name: str) -> float:
    values = table.values(name)
    return sum(len(str(value)) for value in values) / max(1, len(values))


def _unknown(table: Table, wanted: str, help: str) -> DataError:
    what = f"this file should have {wanted}; it has {_listed(table)}"
    one = "put a tab or a comma between what belongs to different columns"
    return DataError(what, file=table.path, help=f"name them: {help}" if len(table.columns) > 1 else one)


def _listed(table: Table) -> str:
    shown = []
    for name in table.columns[:20]:
        example = next((str(value) for value in table.values(name)), None)
        shown.append(f"{name!r:.80}" + (f" (such as {example[:30]!r})" if example else ""))
    more = [f"and {len(table.columns) - 20:,} more"] * (len(table.columns) > 20)
    others = [f"and {', '.join(table.others[:5])}, which hold neither text nor numbers"] * bool(table.others)
    return ", ".join(shown + more + others) or "no columns"
