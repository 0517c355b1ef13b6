"""Accuracy and speed of int8 quantization on trained models: part of K.

The included date parser on held-out dates; with `--run RUN --pairs SOURCE TARGET`, a translation run on held-out
pairs.
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
from softlook.decode.cpu import Int8Linear
from softlook.recipes.demo.dates import held_out_dates, held_out_forms
from softlook.recipes.inference import Pipeline, load_pipeline, translate
from softlook.recipes.text.metrics import corpus_bleu
from softlook.tokens.tokenizer import MAX_TEXT_CHARS

N_DATES, N_ALONE, ROUNDS = 1000, 100, 3
"""Number of dates, of texts that are also translated alone, and of timing rounds."""


@dataclass(frozen=True)
class EvalData:
    """A model, its inputs and reference outputs."""

    name: str
    run: str
    texts: Sequence[str]
    expected: Sequence[str]


def dates(count: int = N_DATES) -> list[EvalData]:
    """Held-out dates, in known and in unknown formats."""
    samples = {"dates, held out": held_out_dates(count), "dates, held-out formats": held_out_forms(count)}
    return [
        EvalData(name, "dates", [one.text for one in some], [one.iso for one in some]) for name, some in samples.items()
    ]


def translation_data(run: Path, source: Path, target: Path) -> EvalData:
    """Source and target lines of two files, for a translation run."""
    texts, expected = ([line.text for line in read_lines(path, max_chars=MAX_TEXT_CHARS)] for path in (source, target))
    return EvalData(f"{run.name}, {source.name}", str(run), texts, expected)


def measure(report: Report, datasets: Sequence[EvalData]) -> None:
    report.section(
        "Cost of int8 quantization",
        "`softlook translate` with and without `--int8`, with each run's defaults. `exact match` is the fraction "
        "of outputs equal to the reference, `BLEU` sacreBLEU's, `same as float32` the fraction equal to the float32 "
        f"output; `same alone` the fraction of {N_ALONE} outputs that do not change when a text is translated alone. "
        f"Seconds are medians of {ROUNDS} rounds over all texts, with one thread; `MB` is the size of the weights.",
    )
    table = report.table(
        "model and texts", "texts", "weights", "exact match", "BLEU", "same as float32", "same alone", "seconds", "MB"
    )
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for data in datasets:
        _add_rows(table, data)
    torch.set_num_threads(before)


def _add_rows(table: Table, data: EvalData) -> None:
    models = {dtype: load_pipeline(data.run, device="cpu", int8=dtype == "int8") for dtype in ("float32", "int8")}
    outputs: dict[str, list[str]] = {}
    seconds: dict[str, list[float]] = {dtype: [] for dtype in models}
    for _ in range(ROUNDS):
        for dtype, model in models.items():
            start = time.perf_counter()
            outputs[dtype] = _translate_all(model, data.texts)
            seconds[dtype].append(time.perf_counter() - start)
    for dtype, model in models.items():
        alone = [_translate_all(model, [text])[0] for text in data.texts[:N_ALONE]]
        table.add(
            data.name,
            len(data.texts),
            dtype,
            _fraction(outputs[dtype], data.expected),
            corpus_bleu(outputs[dtype], data.expected),
            _fraction(outputs[dtype], outputs["float32"]),
            _fraction(outputs[dtype][:N_ALONE], alone),
            statistics.median(seconds[dtype]),
            megabytes(weight_bytes(model.model)),
        )


def weight_bytes(model: nn.Module) -> int:
    """Size of all weights in bytes."""
    rest = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return rest + sum(_packed_bytes(part) for part in model.modules() if isinstance(part, Int8Linear))


def _packed_bytes(layer: Int8Linear) -> int:
    """int8 weights and one scale per row; wide layers are packed twice."""
    weight, bias = torch.ops.quantized.linear_unpack(layer.packed)
    one = weight.numel() + 4 * len(weight) + (0 if bias is None else 4 * len(bias))
    return one if layer.packed_many is layer.packed else 2 * one


def _translate_all(model: Pipeline, texts: Sequence[str]) -> list[str]:
    return [one.text for one in translate(model, texts)]


def _fraction(some: Sequence[str], others: Sequence[str]) -> str:
    return f"{sum(one == other for one, other in zip(some, others, strict=True)) / len(some):.1%}"
