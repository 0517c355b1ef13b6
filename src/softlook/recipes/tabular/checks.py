"""Check of a table before training: findings, and the estimate of a run."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

from softlook.base.errors import DataError
from softlook.data.check import (
    MIN_EXAMPLES,
    SEVERITIES,
    describe_file,
    duplicate_findings,
    format_fraction,
    leakage_findings,
)
from softlook.data.data_report import MAX_TRACKED, QUALITY_ISSUES, Finding
from softlook.data.files import find_files
from softlook.recipes.config.autosize import format_duration
from softlook.recipes.config.resolve import load_overrides
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.profiling.estimate import Estimate, train_command
from softlook.recipes.tabular.checkpointing import format_size, list_columns
from softlook.recipes.tabular.data import (
    TableData,
    TableScan,
    locate_data_errors,
    parse_column_types,
    parse_ordinal_categories,
    scan_table,
)
from softlook.recipes.tabular.dry_run import estimate_run
from softlook.recipes.tabular.table_stats import ColumnStats, TableStats
from softlook.recipes.tabular.target import infer_target
from softlook.tabular.formatting import join_names, percent, plural
from softlook.tabular.io.files import read_table
from softlook.tabular.preprocessing.categorical import CategoricalEncoder
from softlook.tabular.preprocessing.column_types import ColumnEncoder
from softlook.tabular.preprocessing.numeric import NumericEncoder
from softlook.tabular.preprocessing.table_encoder import TableEncoder

MAX_IMBALANCE = 20
"""Ratio of the most to the least frequent class beyond which accuracy alone says little."""
MIN_VALUE_COUNT = 5
"""Mean frequency of a column's values at which it is suspicious that they determine the target."""
MOSTLY_MISSING = 0.9
"""Fraction of missing cells that is reported."""
MAX_NAMES = 5
"""Column names in a finding."""
CELL_HELP = {"a missing value in words": "leave such cells empty"}
"""Help about odd characters that differs from that for texts."""


@dataclass(frozen=True)
class TableReport:
    """The result of a check."""

    files: list[dict[str, Any]]
    description: list[str]
    rows: int
    unlabelled: int
    """Rows without a target, which are dropped."""
    columns: list[dict[str, Any]]
    """Name, type, fraction of missing cells and description of each column."""
    duplicates: int
    conflicts: int
    """Rows that differ from another in the target alone."""
    labels: dict[str, int]
    leaks: dict[str, int]
    """For validation and test files, how many of their rows are also in the training data."""
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """The report as text."""
        return [
            f"{plural(len(self.files), 'file')}, {sum(file['bytes'] for file in self.files):,} bytes",
            *self.description,
            f"{plural(self.rows, 'row')}, {self.unlabelled:,} without a target, {self.duplicates:,} duplicates",
            f"{plural(len(self.columns), 'column')}:",
            *list_columns([column["description"] for column in self.columns]),
            *(f"also in {name}: {number:,}" for name, number in self.leaks.items()),
            *map(str, self.findings),
        ]


def check_table(config: TabularConfig) -> tuple[TableReport, TableData | None]:
    """Check a table; also returns its data, unless the target cannot be learned.

    >>> from pathlib import Path
    >>> rows = "".join(f"{n},{'ab'[n % 2]},{'yes' if n % 2 else 'no'}\\n" for n in range(200))
    >>> _ = Path("people.csv").write_text(f"age,city,buys\\n{rows}")
    >>> report, _ = check_table(TabularConfig(data=(Path("people.csv"),), target=("buys",)))
    >>> report.rows, report.labels
    (200, {'no': 100, 'yes': 100})
    >>> print(*report.findings, sep="\\n")
    warning: every row has a unique value, as in an id: 'age'. Leave it out: --ignore age.
    warning: one column alone determines buys: 'city'. Check that it is known before buys...
    """
    scan = scan_table(config)
    stats = TableStats(config.target, config.ignore)
    chunks = stats.count(read_table(scan.files, string_columns=scan.string_columns))
    types: dict[str, Any] = parse_column_types(config)
    encoder = TableEncoder.fit_chunks(chunks, column_types=types, ordinal_categories=parse_ordinal_categories(config))
    errors = _target_errors(scan)
    data = None if errors else scan.data()
    leaks = {
        name: stats.count_leaks(read_table(find_files(files), string_columns=scan.string_columns))
        for name, files in (("valid", config.valid), ("test", config.test))
        if files
    }
    is_classification = data is not None and data.target.problem == "classification"
    labels = dict(scan.target_stats[0].counts.most_common()) if is_classification else {}
    report = TableReport(
        files=[describe_file(path) for path in scan.files],
        description=[] if data is None else data.description,
        rows=stats.rows,
        unlabelled=stats.unlabelled,
        columns=[
            {"name": one.name, "type": one.column_type, "missing": one.missing, "description": one.describe()}
            for one in encoder.columns
        ],
        duplicates=stats.duplicates,
        conflicts=stats.conflicts,
        labels=labels,
        leaks={name: number for name, (number, _) in leaks.items()},
        findings=[*errors, *collect_table_findings(stats, encoder, labels, leaks)],
    )
    return report, data


def _target_errors(scan: TableScan) -> list[Finding]:
    """Why the target cannot be learned, if so."""
    try:
        with locate_data_errors(scan.config):
            infer_target(scan.target_stats, scan.config.problem)
    except DataError as error:
        return [Finding("error", error.what, error.help or "choose another column: --target", error.location)]
    return []


def estimate_table(values: Mapping[str, Any], data: TableData) -> Estimate:
    """What a run on this table would choose on this machine, and what it would take."""
    config = TabularConfig.model_validate(values)
    with locate_data_errors(config):
        estimate = estimate_run(load_overrides(config, environ=os.environ), data)
    duration = estimate.duration
    seconds = duration.seconds
    total = "until early stopping" if seconds is None else f"at most {format_duration(seconds)}"
    steps = f"{duration.steps_per_epoch:,} per epoch" if duration.steps is None else f"{duration.steps:,}"
    return Estimate(
        train_command("table", values),
        estimate.measurements(),
        device=estimate.device,
        size=f"{format_size(**estimate.size)}: {estimate.parameters:,} parameters",
        steps=f"{steps} of {estimate.batch_size:,} rows, about {duration.step:.2g} s each",
        time=f"{total}; baselines take additional time",
        memory=estimate.memory,
    )


def collect_table_findings(
    stats: TableStats, encoder: TableEncoder, labels: Mapping[str, int], leaks: Mapping[str, tuple[int, int | None]]
) -> list[Finding]:
    """All findings; `labels` are the classes and their counts."""
    findings = (
        *_size_findings(stats),
        *_duplicate_findings(stats, leaks),
        *_label_findings(stats, labels),
        *_column_findings(stats, encoder.columns),
        *_character_findings(stats),
    )
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _size_findings(stats: TableStats) -> Iterator[Finding]:
    if stats.rows < MIN_EXAMPLES:
        yield Finding("warning", f"{plural(stats.rows, 'row')} are few", "collect more")
    if stats.unlabelled:
        total = stats.rows + stats.unlabelled
        names = " and ".join(stats.target)
        yield Finding("note", f"{format_fraction(stats.unlabelled, total)} rows have no {names} and are dropped")


def _duplicate_findings(stats: TableStats, leaks: Mapping[str, tuple[int, int | None]]) -> Iterator[Finding]:
    yield from duplicate_findings("rows", stats.duplicates, stats.rows, _row(stats.first_row.get("duplicates")))
    if len(stats.row_digests) >= MAX_TRACKED:
        yield Finding("note", f"duplicates were searched among the first {MAX_TRACKED:,} rows only")
    yield from leakage_findings("rows", {name: (number, _row(first)) for name, (number, first) in leaks.items()})


def _label_findings(stats: TableStats, labels: Mapping[str, int]) -> Iterator[Finding]:
    if len(labels) < 2:
        return
    (common, most), (rare, fewest) = (choose(labels.items(), key=itemgetter(1)) for choose in (max, min))
    if most >= MAX_IMBALANCE * fewest:
        what = f"{format_fraction(most, stats.rows)} rows are {common!r:.40}, and {fewest:,} {rare!r:.40}"
        yield Finding("warning", what, "look at AUC and not only at accuracy, or try --class-weights balanced")
    similar = [group for group in _group_by_spelling(labels) if len(group) > 1]
    if similar:
        groups = "; ".join(map(join_names, similar[:MAX_NAMES]))
        what = f"classes that differ in capitalization and whitespace only: {groups}"
        yield Finding("warning", what, "use one spelling for each class")
    if stats.conflicts:
        severity = "warning" if stats.conflicts > 0.05 * stats.rows else "note"
        what = f"rows that differ from another in {stats.target[0]!r:.80} only: {stats.conflicts:,}"
        yield Finding(severity, what, "no model can distinguish them", _row(stats.first_row["conflicts"]))


def _group_by_spelling(labels: Iterable[str]) -> list[list[str]]:
    """Labels grouped by their spelling without capitalization and whitespace."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault("".join(label.casefold().split()), []).append(label)
    return list(groups.values())


def _column_findings(stats: TableStats, columns: Sequence[ColumnEncoder]) -> Iterator[Finding]:
    constant = [column.name for column in columns if _is_constant(column)]
    if constant:
        what = f"all cells are equal, or all are missing: {join_names(constant, MAX_NAMES)}"
        yield Finding("note", what, _ignore_help(constant))
    sparse = [column.name for column in columns if MOSTLY_MISSING <= column.missing < 1]
    if sparse:
        yield Finding(
            "note", f"{percent(MOSTLY_MISSING)} of the cells or more are missing: {join_names(sparse, MAX_NAMES)}"
        )
    if stats.rows < MIN_EXAMPLES:
        return
    ids = [column.name for column in columns if _is_id(stats.columns[column.name], column)]
    if ids:
        yield Finding(
            "warning", f"every row has a unique value, as in an id: {join_names(ids, MAX_NAMES)}", _ignore_help(ids)
        )
    names = " and ".join(stats.target)
    revealing = [column.name for column in columns if _determines_target(stats.columns[column.name], stats.rows)]
    if revealing:
        help_ = f"check that it is known before {names} is; if not, {_ignore_help(revealing)}"
        yield Finding("warning", f"one column alone determines {names}: {join_names(revealing, MAX_NAMES)}", help_)


def _character_findings(stats: TableStats) -> Iterator[Finding]:
    for name, column in stats.columns.items():
        for issue in QUALITY_ISSUES:
            if count := column.issues.get(issue.name):
                severity = "warning" if count > 0.01 * stats.rows else "note"
                what = f"{format_fraction(count, stats.rows)} cells of {name!r:.80} hold {issue.name}"
                help_ = CELL_HELP.get(issue.name, issue.help)
                yield Finding(severity, what, help_, _row(column.first_issue_row[issue.name]))


def _is_constant(column: ColumnEncoder) -> bool:
    if column.missing:
        return column.missing == 1.0
    if isinstance(column, CategoricalEncoder):
        return len(column.values) == 1 and not column.n_rare
    return isinstance(column, NumericEncoder) and column.constant is not None


def _is_id(stats: ColumnStats, column: ColumnEncoder) -> bool:
    """Unique strings, or integers that number the rows; other numbers, and texts, may well be unique."""
    if isinstance(column, CategoricalEncoder):
        return column.is_id
    if not isinstance(column, NumericEncoder) or column.missing or not stats.unique_values or not stats.is_integer:
        return False
    return max(stats.unique_values) - min(stats.unique_values) < 2 * len(stats.unique_values)


def _determines_target(stats: ColumnStats, rows: int) -> bool:
    """Whether frequent values always have the same target."""
    targets = stats.value_targets or {}
    return len(targets) * MIN_VALUE_COUNT <= rows and len(set(targets.values())) > 1


def _ignore_help(names: Sequence[str]) -> str:
    return f"leave it out: --ignore {shlex.join(names)}" if len(names) <= MAX_NAMES else "leave them out: --ignore"


def _row(number: int | None) -> str:
    return "" if number is None else f"row {number:,}"
