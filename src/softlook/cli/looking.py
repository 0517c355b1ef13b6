"""`softlook check`, `eval`, `runs`, `info` and `doctor`: looking before, after and around training."""

import logging
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from softlook.base.errors import ConfigError, DataError, TrainingError
from softlook.base.excerpt import escaped, pointed
from softlook.cli.talk import Result
from softlook.data import Examples, Facts, Labelled, Pair, Text, documents, labelled, pairs, sentences
from softlook.data import check as count
from softlook.data.files import format_of
from softlook.data.sampling import Sampling
from softlook.recipes.settings import Table

if TYPE_CHECKING:
    from softlook.recipes.estimate import Estimate

log = logging.getLogger("softlook.cli")
TaskName = Literal["translate", "lm", "fill", "classify", "vectors", "table"]
SHORT = 3
"""Words of a text, as a rule, up to which it may be a category."""
AnyExamples = Examples[Pair] | Examples[Text] | Examples[Labelled]
ENOUGH = 2_000_000
"""Characters of data from which a sample is taken to estimate what training would take."""
BAD_ROWS = 1000
"""Rows that are left out as unreadable, at most, where nobody says how many."""


@dataclass(frozen=True)
class OfTable:
    """What is told of a table."""

    target: Annotated[tuple[str, ...], Parameter(help="the column of a table that is to be predicted")] = ()
    answers: Annotated[
        Literal["classes", "numbers"] | None, Parameter(help="what the target holds; seen where not told")
    ] = None
    ignore: Annotated[tuple[str, ...], Parameter(help="columns of a table to leave out")] = ()
    kinds: Annotated[tuple[str, ...], Parameter(help="what its columns are: zip=category note=text")] = ()
    ordinal: Annotated[tuple[str, ...], Parameter(help="values of a column in their order: size=S,M,L")] = ()

    def given(self) -> dict[str, Any]:
        """What was really told."""
        return {name: value for name, value in asdict(self).items() if value}


OF_TABLE = OfTable()


def check(
    *data: Path,
    task: Annotated[TaskName | None, Parameter(help="what the data are for; guessed where not told")] = None,
    valid: Annotated[tuple[Path, ...], Parameter(help="held-out files: nothing of them should be in the data")] = (),
    test: Annotated[tuple[Path, ...], Parameter(help="test files, likewise")] = (),
    max_bad_rows: Annotated[
        int | None, Parameter(help="rows of text that may be left out as unreadable; 1000 where not told")
    ] = None,
    estimate: Annotated[
        bool, Parameter(help="how large a model, how long, how much memory", negative="--no-estimate")
    ] = True,
    table: Annotated[OfTable, Parameter(name="*")] = OF_TABLE,
) -> Result:
    """Look at data before training: counts, lengths, repeats, leaks, odd characters, uneven classes, columns that carry
    nothing or tell too much; and what training would take.
    """
    if task == "table" or (task is None and table.given()):
        if max_bad_rows is not None:
            raise ConfigError(
                "--max-bad-rows is for texts: of a table every row is read, or it is said which cannot be"
            )
        files = {name: given for name, given in (("data", data), ("valid", valid), ("test", test)) if given}
        return _check_table({**files, **table.given()}, estimate=estimate)
    if table.given():
        raise ConfigError(f"--{next(iter(table.given()))} is for tables, and --task {task} is not")
    is_guessed, bad_rows = task is None, BAD_ROWS if max_bad_rows is None else max_bad_rows
    task = task or _guess(data)
    other = "" if _is_text(data[0]) else ", and --target COLUMN looks at it as a table"
    log.info(f"Looking at it as data for `softlook train {task}`; --task says otherwise{other}.")
    others = {name: _read(task, files, bad_rows) for name, files in (("valid", valid), ("test", test)) if files}
    sampling = Sampling(_read(task, data, bad_rows), ENOUGH)  # pyright: ignore[reportArgumentType]
    facts = count(sampling.all(), others)
    found, lines = _estimate(task, data, valid, facts, sampling) if estimate else (None, [])
    content = {"task": task, **facts.to_json(), "estimate": found}
    hint = _as_table(data, facts) if is_guessed and task == "classify" else []
    return Result(data[0], content, "\n".join((*_told(facts), *lines, *hint)))


def evaluate(
    run: Path,
    *,
    data: Annotated[tuple[Path, ...], Parameter(help="files or folders to test on")],
    device: Annotated[str, Parameter(help="auto: cuda, then mps, then cpu")] = "auto",
) -> Result:
    """What a run is worth on other data."""
    from softlook.recipes.evaluation import evaluate as scores_of  # noqa: PLC0415  (torch is loaded only now)
    from softlook.recipes.report import score_name, shown  # noqa: PLC0415  (the same)

    scores = scores_of(run, data, device=device)
    lines = [
        f"{score_name(name):22} {shown(value, name) if isinstance(value, float) else value}"
        for name, value in scores.items()
    ]
    return Result(run, {"scores": scores}, "\n".join(lines))


def runs(folder: Annotated[Path, Parameter(help="where to look for them")] = Path("runs")) -> Result:
    """The runs there are, the newest first."""
    from softlook.recipes.listing import runs_in  # noqa: PLC0415

    found = runs_in(folder) if folder.is_dir() else []
    if not found:
        log.info(f"There are no runs in {folder}. `softlook train --help` says how to begin one.")
    rows = [
        (
            str(run.path),
            run.task,
            f"{run.step:,} of {run.steps:,}" if run.steps else f"{run.step:,}",
            "" if run.best is None else f"{run.best:.4f}",
            run.state,
        )
        for run in found
    ]
    listed = [{**asdict(run), "path": str(run.path)} for run in found]
    return Result(folder, {"runs": listed}, "\n".join(_table(rows)))


def info(
    *, markdown: Annotated[bool, Parameter(help="as a list to paste into a bug report", negative=())] = False
) -> Result:
    """Versions, devices, room."""
    from softlook.recipes.machine import info as facts_of  # noqa: PLC0415

    facts = facts_of()
    lines = [f"- **{name}**: {value}" if markdown else f"{name:12} {value}" for name, value in facts.items()]
    return Result(Path(), facts, "\n".join(lines))


def doctor() -> Result:
    """Try what a run needs, and say what does not work."""
    from softlook.recipes.machine import doctor as trials  # noqa: PLC0415

    found = trials()
    lines = [f"{'ok ' if one.works else 'NOT'}  {one.name}: {one.said}" for one in found]
    broken = [one.name for one in found if not one.works]
    if broken:
        log.warning(f"This does not work: {', '.join(broken)}. `softlook info --markdown` says what to report.")
    return Result(Path(), {"checks": [asdict(one) for one in found]}, "\n".join(lines))


def _guess(data: tuple[Path, ...]) -> TaskName:
    """A table with a column of few values is to classify; two columns or two files are to translate; else text."""
    if not data:
        raise DataError("no data were given", help="name a file or a folder: softlook check corpus.txt")
    if _is_text(data[0]):
        return "translate" if len(data) == 2 else "lm"
    for task in ("classify", "translate"):
        try:
            _read(task, data, BAD_ROWS)
        except DataError:
            continue
        return task
    return "lm"


def _as_table(data: tuple[Path, ...], facts: Facts) -> list[str]:
    """What to type instead, where texts are so short that they may well be cells of a table."""
    words = facts.sides["text"].words.median
    if words > SHORT:
        return []
    command = f"softlook check {shlex.join(map(str, data))} --target COLUMN"
    return [
        f"Texts have {words} word{'s' * (words != 1)} as a rule. If this is a table, say what is to be predicted:",
        f"  {command}",
    ]


def _is_text(path: Path) -> bool:
    return path.is_dir() or format_of(path) == "text"


def _check_table(given: dict[str, Any], *, estimate: bool) -> Result:
    """The same for a table: what is known of it as facts and in lines, and what training would take."""
    from softlook.recipes.tables_checking import check_table, estimate_table  # noqa: PLC0415  (torch is loaded only now)
    from softlook.recipes.tables_data import told_of  # noqa: PLC0415

    if "data" not in given:
        raise DataError("no data were given", help="name a file: softlook check people.csv --target income")
    settings = Table.model_validate(given)
    with told_of(settings):
        facts, data = check_table(settings)
    found, lines = None, list[str]()
    if estimate and data is not None:
        found, lines = _estimated(partial(estimate_table, given, data))
    told = map(escaped, facts.lines())
    return Result(given["data"][0], {"task": "table", **facts.to_json(), "estimate": found}, "\n".join((*told, *lines)))


def _estimate(
    task: str, data: tuple[Path, ...], valid: tuple[Path, ...], facts: Facts, sampling: Sampling[Any]
) -> tuple[dict[str, Any] | None, list[str]]:
    from softlook.recipes.estimate import Known, estimate  # noqa: PLC0415  (torch is loaded only now)

    characters = sum(side.characters.total for side in facts.sides.values())
    some = {"sample": sampling.kept(), "sampled": sampling.characters} if sampling.stride > 1 else {}
    return _estimated(partial(estimate, task, data, Known(characters, facts.bad, **some), valid=valid))


def _estimated(estimate: Callable[[], "Estimate"]) -> tuple[dict[str, Any] | None, list[str]]:
    """What training would take, as facts and in lines. Data that cannot be trained on were counted all the same."""
    log.info("A few steps are tried, to see what training would take; --no-estimate leaves that out.")
    try:
        found = estimate()
    except (ConfigError, DataError, TrainingError) as fault:
        log.warning(f"What training would take cannot be said: {fault}")
        return None, []
    return found.to_json(), found.lines()


def _read(task: str, files: tuple[Path, ...], bad_rows: int) -> AnyExamples:
    if task == "translate":
        return pairs(files, bad_rows=bad_rows)
    if task == "classify":
        return labelled(files, bad_rows=bad_rows)
    return documents(files, bad_rows=bad_rows) if task == "lm" else sentences(files, bad_rows=bad_rows)


def _told(facts: Facts) -> list[str]:
    lines = [f"{len(facts.files)} file(s), {sum(file['bytes'] for file in facts.files):,} bytes", *facts.said]
    lines.append(
        f"{facts.examples:,} examples, {facts.empty:,} empty, {facts.bad:,} bad, {facts.duplicates:,} repeated"
    )
    for name, side in facts.sides.items():
        words = side.words
        lines.append(f"{name}: {words.total:,} words; {words.median} to a text as a rule, at most {words.longest:,}")
    if facts.labels:
        shown = list(facts.labels.items())[:10]
        lines.append("labels: " + ", ".join(f"{pointed(label)} {often:,}" for label, often in shown))
    lines += [f"also in {name}: {number:,}" for name, number in facts.leaks.items()]
    return [*map(escaped, lines), *(escaped(str(finding)) for finding in facts.findings)]


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(escaped(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
