"""`softlook check`: inspect data before training."""

import logging
import shlex
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from softlook.base.errors import ConfigError, DataError, TrainingError, escape_control, excerpt_with_caret
from softlook.cli.activity import activity
from softlook.cli.console import CommandResult
from softlook.cli.next_steps import next_steps
from softlook.cli.options import FLATTEN
from softlook.data import (
    DataReport,
    Examples,
    LabeledText,
    TaggedText,
    TextExample,
    TextPair,
    check_data,
    read_documents,
    read_labeled,
    read_pairs,
    read_sentences,
    read_tagged,
)
from softlook.data.class_folders import find_class_folders
from softlook.data.files import find_files, format_of
from softlook.data.split import StrideSampler
from softlook.recipes.config.tabular_schema import TabularConfig

if TYPE_CHECKING:
    from softlook.recipes.profiling.estimate import Estimate

log = logging.getLogger("softlook.cli")
TaskName = Literal["translate", "lm", "mlm", "classify", "tag", "word2vec", "table"]
AnyExamples = Examples[TextPair] | Examples[TextExample] | Examples[LabeledText] | Examples[TaggedText]
TAGGED_SUFFIXES = (".conll", ".bio", ".iob", ".iob2")
CATEGORY_WORDS = 3
"""Median number of words up to which texts may be the categories of a table."""
SAMPLE_CHARS = 2_000_000
"""Characters of the sample used to estimate the cost of training."""
DEFAULT_MAX_BAD_ROWS = 1000
MAX_LISTED_LABELS = 10


@dataclass(frozen=True)
class TableOptions:
    """Options for tables."""

    target: Annotated[
        tuple[str, ...], Parameter(help="target column of a table; checks the data for `train table`")
    ] = ()
    problem: Annotated[
        Literal["classification", "regression"] | None, Parameter(help="type of the target; default: detected")
    ] = None
    ignore: Annotated[tuple[str, ...], Parameter(help="columns of a table to ignore")] = ()
    column_types: Annotated[
        tuple[str, ...], Parameter(help="column types of a table: zip=category note=text; default: detected")
    ] = ()
    ordinal_categories: Annotated[
        tuple[str, ...], Parameter(help="categories of columns in their order: size=S,M,L")
    ] = ()

    def given(self) -> dict[str, Any]:
        """The options that were given."""
        return {name: value for name, value in asdict(self).items() if value}


NO_TABLE_OPTIONS = TableOptions()


def check(
    *data: Annotated[Path, Parameter(help="files or folders")],
    task: Annotated[
        TaskName | None, Parameter(help="task to check the data for; default: guessed from the data")
    ] = None,
    valid: Annotated[tuple[Path, ...], Parameter(help="validation files; overlaps with the data are reported")] = (),
    test: Annotated[tuple[Path, ...], Parameter(help="test files; overlaps with the data are reported")] = (),
    max_bad_rows: Annotated[
        int | None, Parameter(help="unreadable rows to skip before it is an error; default: 1000")
    ] = None,
    estimate: Annotated[
        bool, Parameter(help="estimate model size, training time and memory", negative="--no-estimate")
    ] = True,
    table: Annotated[TableOptions, FLATTEN] = NO_TABLE_OPTIONS,
) -> CommandResult:
    """Report counts, lengths, duplicates, leaks, unusual characters, class imbalance and useless columns, and estimate
    the cost of training.
    """
    if task == "table" or (task is None and table.given()):
        if max_bad_rows is not None:
            raise ConfigError("--max-bad-rows is for texts; all rows of a table must be readable")
        files = {name: given for name, given in (("data", data), ("valid", valid), ("test", test)) if given}
        return _check_table({**files, **table.given()}, estimate=estimate)
    if table.given():
        flag = next(iter(table.given())).replace("_", "-")
        raise ConfigError(f"--{flag} is for tables, not for --task {task}")
    is_guessed, bad_rows = task is None, DEFAULT_MAX_BAD_ROWS if max_bad_rows is None else max_bad_rows
    task = task or guess_task(data)
    hint = "" if is_text(data[0]) else ", --target COLUMN checks it as a table"
    log.info(f"Checking data for `softlook train {task}`; --task selects another task{hint}.")
    with activity("reading the data"):
        return _check_text(task, data, valid, test, bad_rows, estimate=estimate, is_guessed=is_guessed)


def _check_text(
    task: TaskName,
    data: tuple[Path, ...],
    valid: tuple[Path, ...],
    test: tuple[Path, ...],
    bad_rows: int,
    *,
    estimate: bool,
    is_guessed: bool,
) -> CommandResult:
    others = {name: _read(task, files, bad_rows) for name, files in (("valid", valid), ("test", test)) if files}
    sampler = StrideSampler(_read(task, data, bad_rows), SAMPLE_CHARS)  # pyright: ignore[reportArgumentType]
    report = check_data(sampler.iterate(), others)
    cost, lines = _estimate_text(task, data, valid, report, sampler) if estimate else (None, [])
    details = {"task": task, **report.to_json(), "estimate": cost}
    table_hint = _table_hint(data, report) if is_guessed and task == "classify" else []
    files = [flag for name, paths in (("data", data), ("valid", valid), ("test", test)) for flag in _flags(name, paths)]
    command = f"softlook train {task} {' '.join(files)}"
    text = "\n".join((*_report_lines(report), *lines, *table_hint))
    return CommandResult(data[0], details, text, "" if lines else next_steps((command, "train a model")))


def _flags(name: str, values: Iterable[object]) -> list[str]:
    """An option with its values, as typed.

    >>> _flags("data", ["a.csv", "b c.csv"]), _flags("test", [])
    (['--data', 'a.csv', "'b c.csv'"], [])
    """
    words = [shlex.quote(str(value)) for value in values]
    return [f"--{name.replace('_', '-')}", *words] if words else []


def guess_task(data: tuple[Path, ...]) -> TaskName:
    """Tables with a column of few values: classify; two columns or two files: translate; otherwise lm."""
    if not data:
        raise DataError("no data given", help="name a file or a folder: softlook check corpus.txt")
    find_files(list(data))  # raises if one of them does not exist
    if find_class_folders(data):
        return "classify"
    if data[0].suffix.lower() in TAGGED_SUFFIXES:
        return "tag"
    if is_text(data[0]):
        return "translate" if len(data) == 2 else "lm"
    for task in ("classify", "translate"):
        try:
            _read(task, data, DEFAULT_MAX_BAD_ROWS)
        except DataError:
            continue
        return task
    return "lm"


def _table_hint(data: tuple[Path, ...], report: DataReport) -> list[str]:
    """Suggest --target if the texts are as short as the cells of a table."""
    words = report.texts["text"].words.median
    if words > CATEGORY_WORDS:
        return []
    command = f"softlook check {shlex.join(map(str, data))} --target COLUMN"
    return [
        f"The median text has {words} word{'s' * (words != 1)}. If this is a table, name its target:",
        f"  {command}",
    ]


def is_text(path: Path) -> bool:
    """Whether a file is plain text, or a folder, which may hold anything."""
    return path.is_dir() or format_of(path) == "text"


def _check_table(values: dict[str, Any], *, estimate: bool) -> CommandResult:
    from softlook.recipes.tabular.checks import check_table, estimate_table  # noqa: PLC0415  (imports torch)
    from softlook.recipes.tabular.data import locate_data_errors  # noqa: PLC0415

    if "data" not in values:
        raise DataError("no data given", help="name a file: softlook check people.csv --target income")
    config = TabularConfig.model_validate(values)
    cost, lines = None, list[str]()
    with activity("reading the table"), locate_data_errors(config):
        report, data = check_table(config)
        if estimate and data is not None:
            cost, lines = _estimate(partial(estimate_table, values, data))
    details = {"task": "table", **report.to_json(), "estimate": cost}
    text = "\n".join((*map(escape_control, report.lines()), *lines))
    given = ((name, [one] if isinstance(one, str) else one) for name, one in values.items())
    command = " ".join(("softlook train table", *(flag for name, one in given for flag in _flags(name, one))))
    hint = "" if lines else next_steps((command, "train a model"))  # an estimate names the command
    return CommandResult(values["data"][0], details, text, hint)


def _estimate_text(
    task: str, data: tuple[Path, ...], valid: tuple[Path, ...], report: DataReport, sampler: StrideSampler[Any]
) -> tuple[dict[str, Any] | None, list[str]]:
    from softlook.recipes.profiling.estimate import CorpusStats, estimate  # noqa: PLC0415  (imports torch)

    characters = sum(side.characters.total for side in report.texts.values())
    stats = CorpusStats(characters, report.bad_rows)
    if sampler.stride > 1:
        stats = CorpusStats(characters, report.bad_rows, sample=sampler.sample(), sample_characters=sampler.characters)
    return _estimate(partial(estimate, task, data, stats, valid=valid))


def _estimate(estimate: Callable[[], "Estimate"]) -> tuple[dict[str, Any] | None, list[str]]:
    """The cost of training as JSON and as lines; nothing if the data cannot be trained on."""
    log.info("Running a few steps to estimate the cost of training; --no-estimate skips this.")
    try:
        result = estimate()
    except (ConfigError, DataError, TrainingError) as error:
        log.warning(f"The cost of training cannot be estimated: {error}")
        return None, []
    return result.to_json(), result.lines()


def _read(task: str, files: tuple[Path, ...], max_bad_rows: int) -> AnyExamples:
    readers = {"translate": read_pairs, "classify": read_labeled, "tag": read_tagged, "lm": read_documents}
    return readers.get(task, read_sentences)(files, max_bad_rows=max_bad_rows)


def _report_lines(report: DataReport) -> list[str]:
    count, size = len(report.files), sum(file["bytes"] for file in report.files)
    lines = [f"{count:,} file{'s' * (count != 1)}, {size:,} bytes", *report.notes]
    counts = f"{report.empty:,} empty, {report.bad_rows:,} bad, {report.duplicates:,} duplicates"
    lines.append(f"{report.examples:,} examples, {counts}")
    for name, side in report.texts.items():
        words = side.words
        lines.append(f"{name}: {words.total:,} words; median {words.median} per text, maximum {words.max:,}")
    if report.labels:
        labels = list(report.labels.items())[:MAX_LISTED_LABELS]
        lines.append("labels: " + ", ".join(f"{excerpt_with_caret(label)} {count:,}" for label, count in labels))
    lines += [f"also in {name}: {count:,}" for name, count in report.leaks.items()]
    return [*map(escape_control, lines), *(escape_control(str(finding)) for finding in report.findings)]
