"""What there is to know about data before a model learns from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softlook.data.counts import Counts, side
from softlook.data.digest import content_digest
from softlook.data.encoding import encoding_of
from softlook.data.examples import Examples, Labelled, Pair, Text
from softlook.data.facts import Facts
from softlook.data.files import format_of
from softlook.data.findings import findings

AnyExamples = Examples[Pair] | Examples[Text] | Examples[Labelled]


def check(examples: AnyExamples, others: Mapping[str, AnyExamples] | None = None) -> Facts:
    r"""Count what is in the data, and find what of it is likely to do harm. `others` are held-out sets: nothing of
    them should be in the data.

    >>> from pathlib import Path
    >>> from softlook.data.tasks import labelled
    >>> _ = Path("a.csv").write_text("text,label\ngood,1\nbad,0\ngood,1\n")
    >>> facts = check(labelled("a.csv"))
    >>> facts.examples, facts.duplicates, facts.labels
    (3, 1, {'1': 2, '0': 1})
    >>> print(*facts.findings, sep="\n")
    warning: 3 examples are few...
    """
    counts = Counts()
    for example in examples:
        counts.add(example)
    files = [file_facts(path) for path in examples.files]
    shared = {name: _shared(counts.keys, other) for name, other in (others or {}).items()}
    return Facts(
        files=files,
        said=examples.said,
        examples=examples.tally.read,
        empty=examples.tally.empty,
        bad=examples.tally.bad,
        duplicates=counts.duplicates,
        sides={name: side(counts, name) for name in counts.characters},
        labels=dict(counts.labels.most_common()),
        leaks={name: number for name, (number, _) in shared.items()},
        findings=tuple(findings(counts, examples.tally, files, shared)),
    )


def file_facts(path: Path) -> dict[str, Any]:
    """What is known of a file without reading all of it."""
    format = format_of(path)
    written = {} if format == "parquet" else {"encoding": encoding_of(path)}
    return {"path": str(path), "bytes": path.stat().st_size, "format": format, **written}


def _shared(keys: Mapping[int, int], other: AnyExamples) -> tuple[int, str]:
    """How many examples of another set ask what is asked here too, and where the first is."""
    number, first = 0, ""
    for example in other:
        if content_digest(example.key) in keys:
            number += 1
            first = first or str(example.origin or "")
    return number, first
