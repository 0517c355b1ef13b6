"""Those who translate, each in a process of its own: threads that spin while they wait get in nobody's way."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from softlook.decode import Translating, beam, int8, packed
from softlook.weights import from_hugging_face

BEAMS, LENGTH, THREADS = 4, 24, (1, 2)
END = 0
REST = 0.25
"""Seconds after a call in which its threads go to sleep."""
Said = list[list[int]]


@dataclass(frozen=True)
class Task:
    """What is to be translated, by whom, from which folder."""

    who: str
    """"softlook int8", "CTranslate2 float32", "Hugging Face", ..."""
    folder: Path
    vocab: int
    sentences: int
    threads: int


@dataclass(frozen=True)
class Lap:
    """One call: seconds by the clock and by the processor, and what was said, as ids."""

    wall: float
    cpu: float
    said: Said


class Lane:
    """One of those who take turns."""

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
        said = call()
        connection.send(Lap(time.perf_counter() - wall, time.process_time() - cpu, said))


def caller(task: Task) -> Callable[[], Said]:
    """The best translations of sentences that are the same for everyone."""
    dice = torch.Generator().manual_seed(1)
    source = torch.randint(2, task.vocab - 1, (task.sentences, LENGTH), generator=dice)
    name, *kind = task.who.split()
    if name == "Hugging":
        return _hugging_face(task, source)
    return (_ours if name == "softlook" else _ctranslate2)(task, source, kind[0])


def _ours(task: Task, source: torch.Tensor, kind: str) -> Callable[[], Said]:
    model = {"int8": int8, "float32": packed}[kind](from_hugging_face(task.folder / "theirs").eval())
    start = torch.full((task.sentences, 1), task.vocab - 1)
    how: dict[str, Any] = {"end": END, "longest": LENGTH, "shortest": LENGTH, "beams": BEAMS}
    return lambda: [found[0].ids for found in beam(Translating(model, source), start, **how)]


def _hugging_face(task: Task, source: torch.Tensor) -> Callable[[], Said]:
    from transformers import MarianMTModel  # noqa: PLC0415  (only one of the processes wants it)

    model: Any = MarianMTModel.from_pretrained(task.folder / "theirs")
    how: dict[str, Any] = {"num_beams": BEAMS, "do_sample": False, "early_stopping": "never", "length_penalty": 1.0}
    how |= {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH, "attention_mask": torch.ones_like(source)}
    return lambda: model.generate(source, **how)[:, 1:].tolist()


def _ctranslate2(task: Task, source: torch.Tensor, kind: str) -> Callable[[], Said]:
    import ctranslate2  # noqa: PLC0415  (only one of the processes wants it)

    words = vocabulary(task.vocab)
    texts, known = [[words[id] for id in row] for row in source.tolist()], {word: id for id, word in enumerate(words)}
    translator: Any = ctranslate2.Translator(
        str(task.folder / kind), compute_type=kind, intra_threads=task.threads, inter_threads=1
    )
    how = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH, "max_batch_size": 0, "beam_size": BEAMS}
    return lambda: [[known[word] for word in one.hypotheses[0]] for one in translator.translate_batch(texts, **how)]


def vocabulary(size: int) -> list[str]:
    return ["</s>", "<unk>", *(f"w{i}" for i in range(2, size - 1)), "<pad>"]
