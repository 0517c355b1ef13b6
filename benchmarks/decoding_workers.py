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
EOS = 0
IDLE_SECONDS = 0.25
"""Seconds to wait after a call until its threads are idle."""
TokenRows = list[list[int]]


@dataclass(frozen=True)
class Task:
    """A benchmark task."""

    implementation: str
    """"softlook int8", "CTranslate2 float32", "transformers", ..."""
    folder: Path
    vocab: int
    sentences: int
    threads: int


@dataclass(frozen=True)
class CallResult:
    """Wall and CPU seconds of a call, and its output ids."""

    wall: float
    cpu: float
    output: TokenRows


class Worker:
    """A process that translates on request."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self.process = context.Process(target=_serve_calls, args=(task, child_connection), daemon=True)
        self.process.start()

    def call(self) -> CallResult:
        self.connection.send("call")
        result = self.connection.recv()
        time.sleep(IDLE_SECONDS)
        return result

    def stop(self) -> None:
        self.connection.send(None)
        self.process.join()


def _serve_calls(task: Task, connection: Connection) -> None:
    torch.set_num_threads(task.threads)
    call = make_call(task)
    call()
    while connection.recv() is not None:
        wall, cpu = time.perf_counter(), time.process_time()
        output = call()
        connection.send(CallResult(time.perf_counter() - wall, time.process_time() - cpu, output))


def make_call(task: Task) -> Callable[[], TokenRows]:
    """A function that returns the best translations of random sentences, the same for all implementations."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, task.vocab - 1, (task.sentences, LENGTH), generator=generator)
    name, *dtype = task.implementation.split()
    if name == "transformers":
        return _transformers(task, source)
    return (_softlook if name == "softlook" else _ctranslate2)(task, source, dtype[0])


def _softlook(task: Task, source: torch.Tensor, dtype: str) -> Callable[[], TokenRows]:
    model = {"int8": quantize_dynamic_int8, "float32": prepack_for_cpu}[dtype](
        from_hugging_face(task.folder / "transformers").eval()
    )
    start = torch.full((task.sentences, 1), task.vocab - 1)
    options: dict[str, Any] = {"eos_ids": EOS, "max_new_tokens": LENGTH, "min_new_tokens": LENGTH, "num_beams": BEAMS}
    return lambda: [found[0].ids for found in beam_search(Seq2SeqSession(model, source), start, **options)]


def _transformers(task: Task, source: torch.Tensor) -> Callable[[], TokenRows]:
    from transformers import MarianMTModel  # noqa: PLC0415  (only needed in one process)

    model: Any = MarianMTModel.from_pretrained(task.folder / "transformers")
    options: dict[str, Any] = {"num_beams": BEAMS, "do_sample": False, "early_stopping": "never", "length_penalty": 1.0}
    options |= {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH, "attention_mask": torch.ones_like(source)}
    return lambda: model.generate(source, **options)[:, 1:].tolist()


def _ctranslate2(task: Task, source: torch.Tensor, dtype: str) -> Callable[[], TokenRows]:
    import ctranslate2  # noqa: PLC0415  (only needed in one process)

    tokens = vocabulary(task.vocab)
    texts, ids = [[tokens[id] for id in row] for row in source.tolist()], {token: id for id, token in enumerate(tokens)}
    translator: Any = ctranslate2.Translator(
        str(task.folder / dtype), compute_type=dtype, intra_threads=task.threads, inter_threads=1
    )
    options = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH, "max_batch_size": 0, "beam_size": BEAMS}
    return lambda: [[ids[token] for token in one.hypotheses[0]] for one in translator.translate_batch(texts, **options)]


def vocabulary(size: int) -> list[str]:
    return ["</s>", "<unk>", *(f"w{i}" for i in range(2, size - 1)), "<pad>"]
