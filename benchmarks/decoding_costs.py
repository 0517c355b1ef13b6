"""K. Beam search translation on a CPU compared with transformers and CTranslate2, with the same weights."""

import itertools
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel
from transformers.utils import logging

from benchmarks.decoding_workers import (
    BEAMS,
    EOS,
    LENGTH,
    THREADS,
    CallResult,
    Task,
    TokenRows,
    Worker,
    vocabulary,
)
from benchmarks.report import Report, Table, ms
from benchmarks.timing import Deadline
from softlook.weights import from_hugging_face
from softlook.weights.formats.ctranslate2 import to_ctranslate2

REFERENCE = "transformers"
IMPLEMENTATIONS = (REFERENCE, "CTranslate2 int8", "softlook int8", "CTranslate2 float32", "softlook float32")
ROUNDS = {1: 15, 2: 2, 32: 5}
"""By batch size."""
GOALS = {
    (1, "int8", REFERENCE): 6.0,
    (1, "int8", "CTranslate2 int8"): 1.5,
    (32, "int8", REFERENCE): 2.0,
    (32, "int8", "CTranslate2 int8"): 1.1,
    (1, "float32", "CTranslate2 float32"): 0.95,
    (32, "float32", "CTranslate2 float32"): 0.95,
}
"""Target speed relative to the others."""


def measure(report: Report, deadline: Deadline, quick: bool, threads: Sequence[int] = THREADS) -> None:
    report.section(
        "K. beam search translation",
        f"A Transformer of Marian's base size (6 + 6 layers, dim 512, FFN 2048, vocabulary 32000), random weights, "
        f"{LENGTH} source tokens and exactly {LENGTH} target tokens, {BEAMS} beams. Each implementation has its own "
        "process, and they take turns; times are medians in milliseconds, ratios are medians over the rounds of the "
        "other's time over that of softlook: above 1, softlook is faster. `CPU` is the ratio of CPU times, which other "
        "load affects less. Without a spare core several threads wait for each other and one is faster. The goals are "
        "for two threads. The last column is the fraction of sentences identical to those of transformers.",
    )
    with tempfile.TemporaryDirectory() as folder:
        vocab = 1000 if quick else 32000
        write_models(Path(folder), vocab, width=64 if quick else 512, depth=2 if quick else 6)
        header = "threads", "sentences", "softlook", "ms", "compared with", "ms", "ratio", "CPU", "goal", "identical"
        table = report.table(*header)
        for count, sentences in itertools.product(threads, (1, 2 if quick else 32)):
            if deadline.passed():
                report.text(f"The time limit was reached before {sentences} sentences with {count} threads.")
                return
            tasks = [Task(name, Path(folder), vocab, sentences, threads=count) for name in IMPLEMENTATIONS]
            _add_rows(table, tasks, quick)


def write_models(folder: Path, vocab: int, width: int, depth: int) -> None:
    """Write one model in all formats."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": vocab, "max_position_embeddings": 512, "d_model": width}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": depth, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 4 * width}
    sizes |= {"pad_token_id": vocab - 1, "decoder_start_token_id": vocab - 1, "eos_token_id": EOS}
    sizes |= {"scale_embedding": True, "activation_function": "swish", "forced_eos_token_id": None}
    model: Any = MarianMTModel(MarianConfig(**sizes))
    with torch.no_grad():  # outputs depend on the source, and scores are distinct
        model.get_input_embeddings().weight.mul_(4.0)
    model.save_pretrained(folder / "transformers")
    softlook, tokens = from_hugging_face(folder / "transformers"), vocabulary(vocab)
    for dtype in ("int8", "float32"):
        to_ctranslate2(softlook, folder / dtype, vocabulary=tokens, start="<pad>", quantization=dtype)


def _add_rows(table: Table, tasks: list[Task], quick: bool) -> None:
    sentences, threads = tasks[0].sentences, tasks[0].threads
    workers = {task.implementation: Worker(task) for task in tasks}
    calls: dict[str, list[CallResult]] = {name: [] for name in workers}
    for number in range(2 if quick else ROUNDS[sentences]):
        first = number % len(IMPLEMENTATIONS)
        for name in IMPLEMENTATIONS[first:] + IMPLEMENTATIONS[:first]:
            calls[name].append(workers[name].call())
    for worker in workers.values():
        worker.stop()
    for dtype in ("int8", "float32"):
        own = calls[f"softlook {dtype}"]
        identical = _fraction_identical(own[0].output, calls[REFERENCE][0].output)
        for other in (REFERENCE, f"CTranslate2 {dtype}"):
            times = dtype, _median(own), other, _median(calls[other])
            goal = GOALS.get((sentences, dtype, other))
            table.add(threads, sentences, *times, *_ratios(calls[other], own), goal, identical)


def _median(calls: list[CallResult]) -> str:
    return ms(statistics.median(call.wall for call in calls))


def _ratios(numerators: list[CallResult], denominators: list[CallResult]) -> tuple[float, float]:
    """Median ratios of wall and of CPU time."""
    pairs = list(zip(numerators, denominators, strict=True))
    walls, cpus = ([getattr(a, by) / getattr(b, by) for a, b in pairs] for by in ("wall", "cpu"))
    return statistics.median(walls), statistics.median(cpus)


def _fraction_identical(rows: TokenRows, references: TokenRows) -> str:
    return f"{sum(one == other for one, other in zip(rows, references, strict=True)) / len(references):.0%}"
