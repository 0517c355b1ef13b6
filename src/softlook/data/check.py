"""Data checks before training: duplicates, leakage, labels, encoding."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from softlook.base.errors import escape_control
from softlook.data.data_report import MAX_TRACKED, QUALITY_ISSUES, DataReport, DataStats, Finding, quantile
from softlook.data.examples import UNREADABLE, Examples, LabeledText, ReadStats, TaggedText, TextExample, TextPair
from softlook.data.files import format_of
from softlook.data.labels import suggest_regression
from softlook.data.split import content_digest
from softlook.data.streams import detect_encoding

AnyExamples = Examples[TextPair] | Examples[TextExample] | Examples[LabeledText] | Examples[TaggedText]
SEVERITIES = ("error", "warning", "note")
MIN_EXAMPLES = 100
"""Examples below which a model learns little."""
MAX_LISTED_FILES = 5
MAX_LENGTH_RATIO = 3
"""A translation this many times longer or shorter than usual is likely wrong."""


def check_data(examples: AnyExamples, held_out: Mapping[str, AnyExamples] | None = None) -> DataReport:
    r"""Statistics of the data, and findings that may harm training. `held_out` sets are checked for leakage.

    >>> from pathlib import Path
    >>> from softlook.data.readers import read_labeled
    >>> _ = Path("a.csv").write_text("text,label\ngood,1\nbad,0\ngood,1\n")
    >>> report = check_data(read_labeled("a.csv"))
    >>> report.examples, report.duplicates, report.labels
    (3, 1, {'1': 2, '0': 1})
    >>> print(*report.findings, sep="\n")
    warning: 3 examples are few...
    """
    stats = DataStats()
    for example in examples:
        stats.add(example)
    files = [describe_file(path) for path in examples.files]
    leaks = {name: _count_leaks(stats.inputs, other) for name, other in (held_out or {}).items()}
    return DataReport(
        files=files,
        notes=examples.notes,
        examples=examples.read_stats.read,
        empty=examples.read_stats.empty,
        bad_rows=examples.read_stats.bad,
        duplicates=stats.duplicates,
        texts={name: stats.text_stats(name) for name in stats.characters},
        labels=dict((stats.labels or stats.entities).most_common()),
        leaks={name: count for name, (count, _) in leaks.items()},
        findings=tuple(collect_findings(stats, examples.read_stats, files, leaks)),
    )


def describe_file(path: Path) -> dict[str, Any]:
    """Path, size, format and encoding of a file, without reading all of it."""
    format = format_of(path)
    encoding = {} if format in ("parquet", "excel") else {"encoding": detect_encoding(path)}
    return {"path": str(path), "bytes": path.stat().st_size, "format": format, **encoding}


def _count_leaks(inputs: Mapping[int, int], held_out: AnyExamples) -> tuple[int, str]:
    """How many held-out inputs are in the training data, and where the first is."""
    count, first = 0, ""
    for example in held_out:
        if content_digest(example.key) in inputs:
            count += 1
            first = first or str(example.origin or "")
    return count, first


def collect_findings(
    stats: DataStats, read: ReadStats, files: list[dict[str, Any]], leaks: Mapping[str, tuple[int, str]]
) -> list[Finding]:
    """All findings, the most severe first."""
    findings = (
        *_size_findings(stats, read),
        *_duplicate_findings(stats, read, leaks),
        *_label_findings(stats, read),
        *_pair_findings(stats, read),
        *_character_findings(stats, read),
        *_length_findings(stats),
        *_encoding_findings(files),
    )
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _size_findings(stats: DataStats, read: ReadStats) -> Iterator[Finding]:
    if read.read < MIN_EXAMPLES and stats.longest < 10_000:
        yield Finding("warning", f"{read.read:,} examples are few", "collect more, or start from pretrained weights")
    if read.bad:
        first = read.first_errors[0].split("\n")[0]
        yield Finding("warning", f"{read.bad:,} bad rows were skipped, the first: {first}", "fix or remove them")
    for reason, count in read.skipped.items():
        if reason != UNREADABLE and count:
            total = read.read + read.skipped.total()
            yield Finding("note", f"{format_fraction(count, total)} rows are {reason} and are skipped")


def _duplicate_findings(stats: DataStats, read: ReadStats, leaks: Mapping[str, tuple[int, str]]) -> Iterator[Finding]:
    yield from duplicate_findings("examples", stats.duplicates, read.read, _first_seen(stats, "duplicates"))
    if len(stats.seen) >= MAX_TRACKED:
        yield Finding("note", f"duplicates were searched among the first {MAX_TRACKED:,} examples only")
    yield from leakage_findings("examples", {name: (count, escape_control(at)) for name, (count, at) in leaks.items()})


def duplicate_findings(noun: str, count: int, total: int, first: str) -> Iterator[Finding]:
    """The finding for duplicated examples or rows; `first` is where one is."""
    if count:
        severity = "warning" if count > 0.05 * total else "note"
        what = f"{format_fraction(count, total)} {noun} are duplicates"
        yield Finding(severity, what, "keep each once, unless it should weigh more", first)


def leakage_findings(noun: str, leaks: Mapping[str, tuple[int, str]]) -> Iterator[Finding]:
    """The findings for held-out examples or rows that are also in the training data."""
    for name, (count, first) in leaks.items():
        if count:
            what = f"{noun} of the {name} data that are also in the training data: {count:,}"
            yield Finding("warning", what, "remove them from one of the two, or the score will be too good", first)


def _label_findings(stats: DataStats, read: ReadStats) -> Iterator[Finding]:
    if not stats.labels:
        return
    count, ranked = len(stats.labels), stats.labels.most_common()
    if hint := suggest_regression(stats.labels):
        yield Finding("note", hint)
    if count == 1:
        what = f"all labels are {_shorten(ranked[0][0])}: there is nothing to learn"
        yield Finding("error", what, "name another column: --label")
    elif count > max(50, read.read / 4):
        yield Finding("error", f"{count:,} different labels for {read.read:,} examples", "name another column: --label")
    elif ranked[0][1] >= 20 * ranked[-1][1]:
        (common, common_count), (rare, rare_count) = ranked[0], ranked[-1]
        fraction = format_fraction(common_count, read.read)
        what = f"{fraction} labels are {_shorten(common)}, and {rare_count:,} {_shorten(rare)}"
        yield Finding("warning", what, "look at F1, not only at accuracy")
    if stats.conflicting_labels:
        what = f"{stats.conflicting_labels:,} texts have different labels in different rows"
        yield Finding("warning", what, "decide which is right", _first_seen(stats, "conflicting_labels"))


def _pair_findings(stats: DataStats, read: ReadStats) -> Iterator[Finding]:
    if stats.copies:
        severity = "warning" if stats.copies > 0.02 * read.read else "note"
        what = f"in {format_fraction(stats.copies, read.read)} pairs the target equals the source"
        yield Finding(severity, what, "remove them, or the model learns to copy", _first_seen(stats, "copies"))
    if read.read < MIN_EXAMPLES or not stats.length_ratios:
        return
    usual, limit = quantile(stats.length_ratios, 0.5), MAX_LENGTH_RATIO
    outliers = [ratio for ratio in stats.length_ratios if ratio > limit * usual or limit * ratio < usual]
    if outliers:
        count = sum(stats.length_ratios[ratio] for ratio in outliers)
        worst = max(outliers, key=lambda ratio: max(ratio / usual, usual / max(1, ratio)))
        what = (
            f"in {format_fraction(count, read.read)} pairs one side is over {limit} times longer or shorter than usual"
        )
        yield Finding("note", what, "check that they belong together", _first_seen(stats, f"ratio {worst}"))


def _character_findings(stats: DataStats, read: ReadStats) -> Iterator[Finding]:
    for name, counts in stats.quality_issues.items():
        for issue in QUALITY_ISSUES:
            if issue.name in counts:
                severity = "warning" if counts[issue.name] > 0.01 * read.read else "note"
                what = f"{format_fraction(counts[issue.name], read.read)} {_texts(name)} have {issue.name}"
                yield Finding(severity, what, issue.help, _first_seen(stats, f"{name} {issue.name}"))
    for name, scripts in stats.scripts.items():
        common = [script for script, count in scripts.items() if count > 0.02 * read.read and script != "none"]
        if len(common) > 1:
            top = scripts.most_common(4)
            listed = ", ".join(f"{script} {100 * count / read.read:.0f} %" for script, count in top)
            yield Finding("note", f"the {_texts(name)} are in several scripts: {listed}")


def _length_findings(stats: DataStats) -> Iterator[Finding]:
    p95 = max(quantile(lengths, 0.95) for lengths in stats.characters.values())
    if stats.longest > max(1000, 20 * p95):
        what = f"the longest text has {stats.longest:,} characters, while 95 % have at most {p95:,}"
        yield Finding("note", what, "check that it is one example", _first_seen(stats, "longest"))


def _encoding_findings(files: list[dict[str, Any]]) -> Iterator[Finding]:
    others = [file for file in files if file.get("encoding", "UTF-8") != "UTF-8"]
    for file in others[:MAX_LISTED_FILES]:
        yield Finding("note", f"{escape_control(file['path'])} is encoded in {file['encoding']}, which is supported")
    if len(others) > MAX_LISTED_FILES:
        yield Finding("note", f"{len(others) - MAX_LISTED_FILES:,} more files are not plain UTF-8, which is supported")


def format_fraction(count: int, total: int) -> str:
    """As in 3 of 1,000."""
    return f"{count:,} of {total:,}"


def _texts(name: str) -> str:
    return "texts" if name == "text" else f"{name} texts"


def _first_seen(stats: DataStats, name: str) -> str:
    return escape_control(str(stats.first_seen.get(name) or ""))


def _shorten(label: str) -> str:
    return f"{label!r:.40}"
