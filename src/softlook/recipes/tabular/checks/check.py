"""Check of a table before training, and the estimate of a run."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from softlook.base.errors import DataError
from softlook.data.check import describe_file
from softlook.data.data_report import Finding
from softlook.data.files import find_files
from softlook.recipes.config.autosize import format_duration
from softlook.recipes.config.resolve import load_overrides
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.profiling.estimate import Estimate, train_command
from softlook.recipes.tabular.checkpointing import format_size, list_columns
from softlook.recipes.tabular.checks.counts import TableStats
from softlook.recipes.tabular.checks.findings import collect_table_findings
from softlook.recipes.tabular.data import (
    TableData,
    TableScan,
    locate_data_errors,
    parse_column_types,
    parse_ordinal_categories,
    scan_table,
)
from softlook.recipes.tabular.dry_run import estimate_run
from softlook.recipes.tabular.target import infer_target
from softlook.tabular.formatting import plural
from softlook.tabular.io.files import read_table
from softlook.tabular.preprocessing.table_encoder import TableEncoder


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
