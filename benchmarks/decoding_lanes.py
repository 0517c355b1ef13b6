"""Translation benchmark workers, one process per implementation, so that spinning threads do not interfere."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from softlook.decode import Seq2SeqSession, beam_search, prepack_for_cpu, quantize_dynamic_int8
from softlook.weights import from_hugging_face

BEAMS, LENGTH, THREADS = 4, 24, (1, 2)
END = 0
REST = 0.25
"""Seconds to wait after a call until its threads are idle."""
TokenRows = list[list[int]]


@dataclass(frozen=True)
class Task:
    """A benchmark task."""

    implementation: str
    """"softlook int8", "CTranslate2 float32", "Hugging Face", ..."""
    folder: Path
    vocab: int
    sentences: int
    threads: int


@dataclass(frozen=True)
class Lap:
    """One call: wall and CPU seconds, and the output ids."""

    wall: float
    cpu: float
    output: TokenRows


class Lane:
    """A worker process."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.ours, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(task, theirs), daemon=True)
        self.process.start()

    def lap(self) -> Lap:
        self.ours.send("go")
        lap = self.ours.recv()
        time.sleep(REST)
        return lap

    def end(self) -> None:
        self.ours.send(None)
        self.process.join()


def _work(task: Task, connection: Connection) -> None:
    torch.set_num_threads(task.threads)
    call = caller(task)
    call()
    while connection.recv() is not None:
        wall, cpu = time.perf_counter(), time.process_time()
        output = call()
        connection.send(Lap(time.perf_counter() - wall, time.process_time() - cpu, output))


def caller(task: Task) -> Callable[[], TokenRows]:
    """A function that returns the best translations of random sentences, the same for all implementations."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, task.vocab - 1, (task.sentences, LENGTH), generator=generator)
    name, *kind = task.implementation.split()
    if name == "Hugging":
        return _hugging_face(task, source)
    return (_ours if name == "softlook" else _ctranslate2)(task, source, kind[0])


def _ours(task: Task, source: torch.Tensor, kind: str) -> Callable[[], TokenRows]:
    model = {"int8": quantize_dynamic_int8, "float32": prepack_for_cpu}[kind](
        from_hugging_face(task.folder / "theirs").eval()
    )
    start = torch.full((task.sentences, 1), task.vocab - 1)
    how: dict[str, Any] = {"eos_ids": END, "max_new_tokens": LENGTH, "min_new_tokens": LENGTH, "num_beams": BEAMS}
    return lambda: [found[0].ids for found in beam_search(Seq2SeqSession(model, source), start, **how)]


def _hugging_face(task: Task, source: torch.Tensor) -> Callable[[], TokenRows]:
    from transformers import MarianMTModel  # noqa: PLC0415  (only needed in one process)

    model: Any = MarianMTModel.from_pretrained(task.folder / "theirs")
    how: dict[str, Any] = {"num_beams": BEAMS, "do_sample": False, "early_stopping": "never", "length_penalty": 1.0}
    how |= {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH, "attention_mask": torch.ones_like(source)}
    return lambda: model.generate(source, **how)[:, 1:].tolist()


def _ctranslate2(task: Task, source: torch.Tensor, kind: str) -> Callable[[], TokenRows]:
    import ctranslate2  # noqa: PLC0415  (only needed in one process)

    words = vocabulary(task.vocab)
    texts, known = [[words[id] for id in row] for row in source.tolist()], {word: id for id, word in enumerate(words)}
    translator: Any = ctranslate2.Translator(
        str(task.folder / kind), compute_type=kind, intra_threads=task.threads, inter_threads=1
    )
    how = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH, "max_batch_size": 0, "beam_size": BEAMS}
    return lambda: [[known[word] for word in one.hypotheses[0]] for one in translator.translate_batch(texts, **how)]


def vocabulary(size: int) -> list[str]:
    return ["</s>", "<unk>", *(f"w{i}" for i in range(2, size - 1)), "<pad>"]
