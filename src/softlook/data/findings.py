"""From what was counted to what a person should know, the gravest first."""

from collections.abc import Iterator, Mapping
from typing import Any

from softlook.base.excerpt import escaped
from softlook.data.counts import REMEMBERED, Counts, quantile
from softlook.data.facts import Finding
from softlook.data.odd import ODDITIES
from softlook.data.tally import Tally

ORDER = ("error", "warning", "note")
FEW = 100
"""Examples below which a model learns little."""
FAR = 3
"""Times longer or shorter than usual that a translation is when it is likely wrong."""


def findings(
    counts: Counts, tally: Tally, files: list[dict[str, Any]], shared: Mapping[str, tuple[int, str]]
) -> list[Finding]:
    """All that is worth saying."""
    found = (
        *_amount(counts, tally),
        *_repeats(counts, tally, shared),
        *_labels(counts, tally),
        *_pairs(counts, tally),
        *_characters(counts, tally),
        *_long(counts),
        *_encodings(files),
    )
    return sorted(found, key=lambda finding: ORDER.index(finding.severity))


def _amount(counts: Counts, tally: Tally) -> Iterator[Finding]:
    if tally.read < FEW and counts.longest < 10_000:
        yield Finding("warning", f"{tally.read:,} examples are few", "gather more, or start from trained weights")
    if tally.bad:
        first = tally.first[0].split("\n")[0]
        yield Finding("warning", f"{tally.bad:,} bad rows were left out, the first: {first}", "mend or remove them")
    if tally.empty:
        yield Finding(
            "note", f"{out_of(tally.empty, tally.read + tally.empty)} examples have an empty side and are left out"
        )


def _repeats(counts: Counts, tally: Tally, shared: Mapping[str, tuple[int, str]]) -> Iterator[Finding]:
    yield from repeats("examples", counts.duplicates, tally.read, _at(counts, "duplicates"))
    if len(counts.seen) >= REMEMBERED:
        yield Finding("note", f"repeats were looked for among the first {REMEMBERED:,} examples only")
    yield from in_both("examples", {name: (number, escaped(first)) for name, (number, first) in shared.items()})


def repeats(noun: str, number: int, whole: int, first: str) -> Iterator[Finding]:
    """What to know of rows, or whatever they are called, that come more than once; `first` is where one lies."""
    if number:
        grave = "warning" if number > 0.05 * whole else "note"
        what = f"{out_of(number, whole)} {noun} are there twice or more often"
        yield Finding(grave, what, "keep each once, unless it should weigh more", first)


def in_both(noun: str, shared: Mapping[str, tuple[int, str]]) -> Iterator[Finding]:
    """The same of those of other data that are in the training data: how many, and where the first lies."""
    for name, (number, first) in shared.items():
        if number:
            what = f"{noun} of the {name} data that are also in the training data: {number:,}"
            yield Finding("warning", what, "remove them from one of the two, or the score will flatter", first)


def _labels(counts: Counts, tally: Tally) -> Iterator[Finding]:
    if not counts.labels:
        return
    kinds, ranked = len(counts.labels), counts.labels.most_common()
    if kinds == 1:
        yield Finding(
            "error",
            f"all labels are {_shown(ranked[0][0])}: there is nothing to tell apart",
            "name another column: --label",
        )
    elif kinds > max(50, tally.read / 4):
        yield Finding(
            "error", f"{kinds:,} different labels for {tally.read:,} examples", "name another column: --label"
        )
    elif ranked[0][1] >= 20 * ranked[-1][1]:
        (most, many), (least, few) = ranked[0], ranked[-1]
        what = f"{out_of(many, tally.read)} labels are {_shown(most)}, and {few:,} {_shown(least)}"
        yield Finding("warning", what, "look at F1 and not only at accuracy")
    if counts.disputed:
        what = f"{counts.disputed:,} texts have different labels in different places"
        yield Finding("warning", what, "decide which is right", _at(counts, "disputed"))


def _pairs(counts: Counts, tally: Tally) -> Iterator[Finding]:
    if counts.copies:
        grave = "warning" if counts.copies > 0.02 * tally.read else "note"
        what = f"in {out_of(counts.copies, tally.read)} pairs the target is the source"
        yield Finding(grave, what, "remove them, or the model learns to copy", _at(counts, "copies"))
    if tally.read < FEW or not counts.ratios:
        return
    usual = quantile(counts.ratios, 0.5)
    far = [ratio for ratio in counts.ratios if ratio > FAR * usual or FAR * ratio < usual]
    if far:
        number = sum(counts.ratios[ratio] for ratio in far)
        worst = max(far, key=lambda ratio: max(ratio / usual, usual / max(1, ratio)))
        what = f"in {out_of(number, tally.read)} pairs one side is over {FAR} times longer or shorter than usual"
        yield Finding("note", what, "look whether they belong together", _at(counts, f"ratio {worst}"))


def _characters(counts: Counts, tally: Tally) -> Iterator[Finding]:
    for name, kinds in counts.odd.items():
        for kind in ODDITIES:
            if kind.name in kinds:
                grave = "warning" if kinds[kind.name] > 0.01 * tally.read else "note"
                what = f"{out_of(kinds[kind.name], tally.read)} {_texts(name)} hold {kind.name}"
                yield Finding(grave, what, kind.help, _at(counts, f"{name} {kind.name}"))
    for name, scripts in counts.scripts.items():
        common = [script for script, often in scripts.items() if often > 0.02 * tally.read and script != "none"]
        if len(common) > 1:
            told = ", ".join(
                f"{script} {100 * scripts[script] / tally.read:.0f} %" for script, _ in scripts.most_common(4)
            )
            yield Finding("note", f"the {_texts(name)} are in several scripts: {told}")


def _long(counts: Counts) -> Iterator[Finding]:
    usual = max(quantile(sizes, 0.95) for sizes in counts.characters.values())
    if counts.longest > max(1000, 20 * usual):
        what = f"the longest text has {counts.longest:,} characters, while nineteen of twenty have at most {usual:,}"
        yield Finding("note", what, "look whether it is one example", _at(counts, "longest"))


def _encodings(files: list[dict[str, Any]]) -> Iterator[Finding]:
    for file in files:
        if file.get("encoding", "UTF-8") != "UTF-8":
            yield Finding("note", f"{escaped(file['path'])} is written in {file['encoding']}, which is read too")


def out_of(number: int, whole: int) -> str:
    """As in 3 of 1,000."""
    return f"{number:,} of {whole:,}"


def _texts(name: str) -> str:
    return "texts" if name == "text" else f"{name} texts"


def _at(counts: Counts, name: str) -> str:
    return escaped(str(counts.places.get(name) or ""))


def _shown(label: str) -> str:
    return f"{label!r:.40}"
