"""Looking at a table before a model learns from it: what is in it, what of that is likely to do harm, and what
training would take.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from softlook.base.errors import DataError
from softlook.data.check import file_facts
from softlook.data.facts import Finding
from softlook.data.files import find
from softlook.recipes.estimate import Estimate, command_of
from softlook.recipes.settings import Table
from softlook.recipes.sizing import spoken
from softlook.recipes.tables_counts import TableCounts
from softlook.recipes.tables_data import FirstPass, TableData, first_pass, kinds_of, orders_of, told_of
from softlook.recipes.tables_findings import findings
from softlook.recipes.tables_foreseeing import rehearsed
from softlook.recipes.tables_learning import listed, sized
from softlook.recipes.tables_target import decided
from softlook.recipes.told import gather
from softlook.tabular.encoding.columns import Columns
from softlook.tabular.sources.files import read_table
from softlook.tabular.wording import many


@dataclass(frozen=True)
class TableFacts:
    """What was counted in one way through a table."""

    files: list[dict[str, Any]]
    said: list[str]
    rows: int
    unlabelled: int
    """Rows without a target, which are left out."""
    columns: list[dict[str, Any]]
    """Of each its name, its kind, the share that is missing, and a line for people."""
    duplicates: int
    disputed: int
    """Rows that differ from another in nothing but the target."""
    labels: dict[str, int]
    leaks: dict[str, int]
    """For each other set, how many of its rows are also in this one."""
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The same for people."""
        return [
            f"{many(len(self.files), 'file')}, {sum(file['bytes'] for file in self.files):,} bytes",
            *self.said,
            f"{many(self.rows, 'row')}, {self.unlabelled:,} without a target, {self.duplicates:,} repeated",
            f"{many(len(self.columns), 'column')}:",
            *listed([column["told"] for column in self.columns]),
            *(f"also in {name}: {number:,}" for name, number in self.leaks.items()),
            *map(str, self.findings),
        ]


def check_table(settings: Table) -> tuple[TableFacts, TableData | None]:
    """What there is to know about a table, and the table itself, where it can be learned from.

    >>> from pathlib import Path
    >>> rows = "".join(f"{n},{'ab'[n % 2]},{'yes' if n % 2 else 'no'}\\n" for n in range(200))
    >>> _ = Path("people.csv").write_text(f"age,city,buys\\n{rows}")
    >>> facts, _ = check_table(Table(data=(Path("people.csv"),), target=("buys",)))
    >>> facts.rows, facts.labels
    (200, {'no': 100, 'yes': 100})
    >>> print(*facts.findings, sep="\\n")
    warning: every row has a value of its own, as in an id: 'age'. Leave it out: --ignore age.
    warning: one column alone tells buys without fail: 'city'. Ask whether that is known before buys is...
    """
    passed = first_pass(settings)
    counts = TableCounts(settings.target, settings.ignore)
    pieces = read_table(passed.files, words=passed.words)
    kinds: dict[str, Any] = kinds_of(settings)
    columns = Columns.fit_many(counts.passing(pieces), kinds=kinds, ordinal=orders_of(settings))
    fault = _fault_of(passed)
    data = None if fault else passed.data()
    shared = {
        name: counts.shared(read_table(find(files), words=passed.words))
        for name, files in (("valid", settings.valid), ("test", settings.test))
        if files
    }
    is_classes = data is not None and data.target.answers == "classes"
    labels = dict(passed.seen[0].counts.most_common()) if is_classes else {}
    facts = TableFacts(
        files=[file_facts(path) for path in passed.files],
        said=[] if data is None else data.said,
        rows=counts.rows,
        unlabelled=counts.unlabelled,
        columns=[
            {"name": one.name, "kind": one.kind, "missing": one.missing, "told": one.told()} for one in columns.learned
        ],
        duplicates=counts.duplicates,
        disputed=counts.disputed,
        labels=labels,
        leaks={name: number for name, (number, _) in shared.items()},
        findings=[*fault, *findings(counts, columns, labels, shared)],
    )
    return facts, data


def _fault_of(passed: FirstPass) -> list[Finding]:
    """Why the target is none that can be learned, where it is none."""
    try:
        with told_of(passed.settings):
            decided(passed.seen, passed.settings.answers)
    except DataError as fault:
        return [Finding("error", fault.what, fault.help or "name another column: --target", fault.place)]
    return []


def estimate_table(given: Mapping[str, Any], data: TableData) -> Estimate:
    """What a run on this table would choose on this machine, and what it would take; `given` is what it is told."""
    settings = Table.model_validate(given)
    with told_of(settings):
        found = rehearsed(gather(settings, environ=os.environ), data)
    duration = found.duration
    known = "until patience ends it" if duration.seconds is None else f"about {spoken(duration.seconds)}, or less"
    steps = f"{duration.epoch:,} an epoch" if duration.steps is None else f"{duration.steps:,}"
    return Estimate(
        command_of("table", given),
        found.facts(),
        device=found.device,
        size=f"{sized(**found.size)}: {found.weights:,} weights",
        steps=f"{steps} of {found.batch:,} rows, about {duration.step:.2g} s each",
        time=f"{known}; models to compare with come on top",
        memory=found.memory,
    )
