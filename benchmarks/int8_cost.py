"""What weights of one byte cost and bring on a model that has learned something: part of K.

The reader of dates that comes along, on dates it never saw; with `--run RUN --pairs SOURCE TARGET`, a run that
translates, on pairs it never saw.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks.report import Report, Table, megabytes
from softlook.data.lines import read_lines
from softlook.decode.int8 import Int8Linear
from softlook.recipes.answering import Opened, opened, translate
from softlook.recipes.bleu import bleu
from softlook.recipes.dates import unseen_dates, unseen_forms
from softlook.tokens.text import LONGEST

DATES, ALONE, LAPS = 1000, 100, 3
"""Dates that are read, texts that are asked about alone as well, and how often everything is timed, in turn."""


@dataclass(frozen=True)
class Subject:
    """A model and what it is asked."""

    name: str
    run: str
    texts: Sequence[str]
    wanted: Sequence[str]


def dates(count: int = DATES) -> list[Subject]:
    """Dates that were never learned from, in forms that were, and in forms that were not."""
    told = {"dates, unseen": unseen_dates(count), "dates, unseen forms": unseen_forms(count)}
    return [
        Subject(name, "dates", [one.text for one in some], [one.iso for one in some]) for name, some in told.items()
    ]


def pairs(run: Path, source: Path, target: Path) -> Subject:
    """Lines of two files."""
    texts, wanted = ([line.text for line in read_lines(path, longest=LONGEST)] for path in (source, target))
    return Subject(f"{run.name}, {source.name}", str(run), texts, wanted)


def measure(report: Report, subjects: Sequence[Subject]) -> None:
    report.section(
        "What weights of one byte cost",
        "`softlook translate` with and without `--int8`, as each run does it by default. `right` is the share of "
        "answers that are those wanted to the last letter, `BLEU` sacreBLEU's, `the same` the share of answers that "
        f"are those of float32; `alone` the share of {ALONE} answers that a text also gets when nothing else is asked "
        f"with it. Seconds are medians of {LAPS} turns over all texts, with one thread; `MB` is what the weights take.",
    )
    table = report.table("model and texts", "texts", "weights", "right", "BLEU", "the same", "alone", "seconds", "MB")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for subject in subjects:
        _rows(table, subject)
    torch.set_num_threads(before)


def _rows(table: Table, subject: Subject) -> None:
    models = {kind: opened(subject.run, device="cpu", int8=kind == "int8") for kind in ("float32", "int8")}
    said: dict[str, list[str]] = {}
    seconds: dict[str, list[float]] = {kind: [] for kind in models}
    for _ in range(LAPS):
        for kind, model in models.items():
            begun = time.perf_counter()
            said[kind] = _said(model, subject.texts)
            seconds[kind].append(time.perf_counter() - begun)
    for kind, model in models.items():
        alone = [_said(model, [text])[0] for text in subject.texts[:ALONE]]
        table.add(
            subject.name, len(subject.texts), kind, _share(said[kind], subject.wanted),
            bleu(said[kind], subject.wanted), _share(said[kind], said["float32"]), _share(said[kind][:ALONE], alone),
            statistics.median(seconds[kind]), megabytes(held(model.model)),
        )  # fmt: skip


def held(model: nn.Module) -> int:
    """Bytes of all weights."""
    rest = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return rest + sum(_packed(part) for part in model.modules() if isinstance(part, Int8Linear))


def _packed(layer: Int8Linear) -> int:
    """Bytes and, for each row, a scale; wide layers are there twice."""
    weight, bias = torch.ops.quantized.linear_unpack(layer.packed)
    one = weight.numel() + 4 * len(weight) + (0 if bias is None else 4 * len(bias))
    return one if layer.many is layer.packed else 2 * one


def _said(model: Opened, texts: Sequence[str]) -> list[str]:
    return [one.text for one in translate(model, texts)]


def _share(some: Sequence[str], others: Sequence[str]) -> str:
    return f"{sum(one == other for one, other in zip(some, others, strict=True)) / len(some):.1%}"
