"""K. Beam search translation on a CPU against transformers and CTranslate2, with the same weights."""

import itertools
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel
from transformers.utils import logging

from benchmarks.decoding_lanes import BEAMS, END, LENGTH, THREADS, Lane, Lap, Task, TokenRows, vocabulary
from benchmarks.report import Report, Table, ms
from benchmarks.timing import Deadline
from softlook.weights import from_hugging_face
from softlook.weights.formats.ctranslate2 import to_ctranslate2

REFERENCE = "Hugging Face"
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
        "process, and they take turns; times are medians in milliseconds, ratios are medians of per-round ratios, "
        "theirs over ours: above 1 is faster. `CPU` is the ratio of CPU times, which other load affects less. Without "
        "a spare core several threads wait for each other and one is faster. The goals are for two threads. The last "
        "column is the fraction of sentences identical to those of transformers.",
    )
    with tempfile.TemporaryDirectory() as made:
        vocab = 1000 if quick else 32000
        write(Path(made), vocab, width=64 if quick else 512, depth=2 if quick else 6)
        heads = "threads", "sentences", "ours", "ms", "against", "ms", "ratio", "CPU", "goal", "identical"
        table = report.table(*heads)
        for cell in itertools.product(threads, (1, 2 if quick else 32)):
            if deadline.passed():
                report.say(f"Out of time before {cell[1]} sentences with {cell[0]} threads.")
                return
            _cell(
                table,
                [
                    Task(implementation, Path(made), vocab, sentences=cell[1], threads=cell[0])
                    for implementation in IMPLEMENTATIONS
                ],
                quick,
            )


def write(folder: Path, vocab: int, width: int, depth: int) -> None:
    """Write one model in all formats."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": vocab, "max_position_embeddings": 512, "d_model": width}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": depth, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 4 * width}
    sizes |= {"pad_token_id": vocab - 1, "decoder_start_token_id": vocab - 1, "eos_token_id": END}
    sizes |= {"scale_embedding": True, "activation_function": "swish", "forced_eos_token_id": None}
    model: Any = MarianMTModel(MarianConfig(**sizes))
    with torch.no_grad():  # outputs depend on the source, and scores are distinct
        model.get_input_embeddings().weight.mul_(4.0)
    model.save_pretrained(folder / "theirs")
    ours, words = from_hugging_face(folder / "theirs"), vocabulary(vocab)
    to_ctranslate2(ours, folder / "int8", vocabulary=words, start="<pad>", quantization="int8")
    to_ctranslate2(ours, folder / "float32", vocabulary=words, start="<pad>", quantization="float32")


def _cell(table: Table, tasks: list[Task], quick: bool) -> None:
    sentences, threads = tasks[0].sentences, tasks[0].threads
    lanes = {task.implementation: Lane(task) for task in tasks}
    laps: dict[str, list[Lap]] = {implementation: [] for implementation in lanes}
    for number in range(2 if quick else ROUNDS[sentences]):
        first = number % len(IMPLEMENTATIONS)
        for implementation in IMPLEMENTATIONS[first:] + IMPLEMENTATIONS[:first]:
            laps[implementation].append(lanes[implementation].lap())
    for lane in lanes.values():
        lane.end()
    for kind in ("int8", "float32"):
        ours = laps[f"softlook {kind}"]
        for other in (REFERENCE, f"CTranslate2 {kind}"):
            row = kind, _median(ours), other, _median(laps[other]), *_ratios(laps[other], ours)
            table.add(
                threads,
                sentences,
                *row,
                GOALS.get((sentences, kind, other)),
                _same(ours[0].output, laps[REFERENCE][0].output),
            )


def _median(laps: list[Lap]) -> str:
    return ms(statistics.median(lap.wall for lap in laps))


def _ratios(theirs: list[Lap], ours: list[Lap]) -> tuple[float, float]:
    pairs = list(zip(theirs, ours, strict=True))
    walls, cpus = ([getattr(a, by) / getattr(b, by) for a, b in pairs] for by in ("wall", "cpu"))
    return statistics.median(walls), statistics.median(cpus)


def _same(ours: TokenRows, theirs: TokenRows) -> str:
    return f"{sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(theirs):.0%}"
