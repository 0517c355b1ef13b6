"""K. Translating by beam search on a CPU against Hugging Face's `generate` and CTranslate2, with the same weights."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from transformers import MarianConfig, MarianMTModel
from transformers.utils import logging

from benchmarks.report import Report, Table, ms
from benchmarks.timing import Deadline
from softlook.decode import Translating, beam, int8, packed
from softlook.weights import from_hugging_face
from softlook.weights.ctranslate2 import to_ctranslate2

BEAMS, LENGTH, THREADS = 4, 24, 2
END, UNKNOWN = 0, 1
ROUNDS = {1: 15, 32: 5}
"""By how many sentences there are at once."""
GOALS = {
    (1, "int8"): {"Hugging Face": 6.0, "CTranslate2 int8": 1.5},
    (32, "int8"): {"Hugging Face": 2.0, "CTranslate2 int8": 1.1},
    (1, "float32"): {"CTranslate2 float32": 0.95},
    (32, "float32"): {"CTranslate2 float32": 0.95},
}
"""How many times as fast as others we want to be."""


@dataclass(frozen=True)
class Timed:
    """Seconds of one round, by the clock and by the processor: on a busy machine only the second means something."""

    wall: float
    cpu: float


def measure(report: Report, deadline: Deadline, quick: bool) -> None:
    report.section(
        "K. translating by beam search",
        f"A Transformer of Marian's base size (6 + 6 blocks, 512 wide, 2048 inside, 32000 words), random weights, "
        f"{LENGTH} words in and exactly {LENGTH} out, {BEAMS} beams, {THREADS} threads. Everyone takes turns; times "
        "are medians in milliseconds, ratios are medians of the rounds' ratios, theirs over ours: above 1 is faster. "
        "`CPU` is the ratio of processor time, which a busy machine changes less.",
    )
    with _threads(), tempfile.TemporaryDirectory() as made:
        models = Models(Path(made), quick)
        table = report.table("sentences", "ours", "ms", "against", "ms", "ratio", "CPU", "goal", "the same words")
        for sentences in (1, 2 if quick else 32):
            if deadline.passed():
                report.say(f"The time was up before {sentences} sentences.")
                return
            _cell(table, models, sentences, 2 if quick else ROUNDS[sentences])


class Models:
    """One model in all the ways that are compared."""

    def __init__(self, folder: Path, quick: bool) -> None:
        logging.disable_progress_bar()
        torch.manual_seed(0)
        self.vocab = 1000 if quick else 32000
        width, depth = (64, 2) if quick else (512, 6)
        sizes: dict[str, Any] = {
            "vocab_size": self.vocab, "max_position_embeddings": 512, "d_model": width, "scale_embedding": True,
            "encoder_layers": depth, "decoder_layers": depth, "encoder_attention_heads": 8,
            "decoder_attention_heads": 8, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width,
            "activation_function": "swish", "pad_token_id": self.vocab - 1, "decoder_start_token_id": self.vocab - 1,
            "eos_token_id": END, "forced_eos_token_id": None,
        }  # fmt: skip
        theirs: Any = MarianMTModel(MarianConfig(**sizes)).eval()
        with torch.no_grad():  # so that what is said depends on what is read, and scores lie apart
            theirs.get_input_embeddings().weight.mul_(4.0)
        theirs.save_pretrained(folder / "theirs")
        self.theirs = theirs
        plain = from_hugging_face(folder / "theirs").eval()
        self.words = ["</s>", "<unk>", *(f"w{i}" for i in range(2, self.vocab - 1)), "<pad>"]
        self.ours = {"float32": packed(plain), "int8": int8(plain)}
        self.others = {
            f"CTranslate2 {kind}": ctranslate2.Translator(
                str(
                    to_ctranslate2(
                        plain, folder / kind, vocabulary=self.words, start="<pad>", quantization=kind  # pyright: ignore[reportArgumentType]
                    )
                ),
                compute_type=kind,
                intra_threads=THREADS,
                inter_threads=1,
            )
            for kind in ("float32", "int8")
        }  # fmt: skip

    def calls(self, sentences: int) -> dict[str, Callable[[], list[list[int]]]]:
        """Everyone's best translations of the same sentences, as ids."""
        dice = torch.Generator().manual_seed(1)
        source = torch.randint(2, self.vocab - 1, (sentences, LENGTH), generator=dice)
        texts = [[self.words[id] for id in row] for row in source.tolist()]
        known = {word: id for id, word in enumerate(self.words)}

        def hugging_face() -> list[list[int]]:
            with torch.no_grad():
                said = self.theirs.generate(
                    source, attention_mask=torch.ones_like(source), num_beams=BEAMS, do_sample=False,
                    min_new_tokens=LENGTH, max_new_tokens=LENGTH, early_stopping="never", length_penalty=1.0,
                )  # fmt: skip
            return said[:, 1:].tolist()

        def other(translator: Any) -> Callable[[], list[list[int]]]:
            limits = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH, "max_batch_size": 0}
            return lambda: [
                [known[word] for word in one.hypotheses[0]]
                for one in translator.translate_batch(texts, beam_size=BEAMS, **limits)
            ]

        def ours(model: Any) -> Callable[[], list[list[int]]]:
            start = torch.full((sentences, 1), self.vocab - 1)
            how: dict[str, Any] = {"end": END, "longest": LENGTH, "shortest": LENGTH, "beams": BEAMS}
            return lambda: [found[0].ids for found in beam(Translating(model, source), start, **how)]

        made = {f"softlook {kind}": ours(model) for kind, model in self.ours.items()}
        made |= {name: other(translator) for name, translator in self.others.items()}
        return made | {"Hugging Face": hugging_face}


def _cell(table: Table, models: Models, sentences: int, rounds: int) -> None:
    calls = models.calls(sentences)
    said = {name: call() for name, call in calls.items()}
    times: dict[str, list[Timed]] = {name: [] for name in calls}
    for number in range(rounds):
        order = list(calls)
        for name in order[number % len(order) :] + order[: number % len(order)]:
            times[name].append(_timed(calls[name]))
    for kind in ("int8", "float32"):
        ours = f"softlook {kind}"
        same = _share(said[ours], said["Hugging Face"])
        for other in ("Hugging Face", f"CTranslate2 {kind}"):
            goal = GOALS.get((sentences, kind), {}).get(other)
            table.add(
                sentences, kind, ms(_median(times[ours])), other, ms(_median(times[other])),
                *_ratios(times[other], times[ours]), goal, f"{same:.0%}",
            )  # fmt: skip


def _timed(call: Callable[[], object]) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Timed(time.perf_counter() - wall, time.process_time() - cpu)


def _median(times: list[Timed]) -> float:
    return statistics.median(one.wall for one in times)


def _ratios(theirs: list[Timed], ours: list[Timed]) -> tuple[float, float]:
    pairs = list(zip(theirs, ours, strict=True))
    return (
        statistics.median(one.wall / other.wall for one, other in pairs),
        statistics.median(one.cpu / other.cpu for one, other in pairs),
    )


def _share(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """Of sentences that are the same to the last word as Hugging Face's; bytes may choose otherwise."""
    return sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(theirs)


@contextmanager
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)
