"""I. Whole models against Hugging Face's, with the same weights: forward, training step, ragged batches."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel
from transformers.utils import logging

from benchmarks.report import Report, ms
from benchmarks.timing import CpuWatch, Deadline, Entry, median, race, ratio_noise
from softlook.losses import cross_entropy
from softlook.ops.packing import pack
from softlook.weights import from_hugging_face

LENGTHS = (512, 176, 96, 72, 56, 48, 40, 24)
"""A ragged batch: 128 tokens on average, 512 in the longest."""
BATCH, LENGTH = 2, 512
ENOUGH = 1e-4
"""Relative distance within which two answers are the same."""


@dataclass(frozen=True)
class Pair:
    """One model twice: Hugging Face's and ours, with equal weights."""

    name: str
    theirs: Any
    ours: Any


@dataclass(frozen=True)
class Cell:
    """Two calls that answer the same; each gives a tensor to compare."""

    name: str
    theirs: Callable[[], Tensor]
    ours: Callable[[], Tensor]
    goal: float
    """How many times as fast as theirs we want to be."""


def measure(report: Report, deadline: Deadline, quick: bool) -> None:
    report.section(
        "I. whole models",
        f"Milliseconds, float32, random weights read from a folder that Hugging Face wrote; their attention is sdpa. "
        f"`forward` and `training` are a batch of {BATCH} x {LENGTH} tokens; training is forward, loss and backward. "
        f"A ragged batch has the lengths {', '.join(map(str, LENGTHS))}: padded for theirs, packed for ours; only the "
        "places that hold a token are compared. The ratio is theirs over ours: above 1 is faster.",
    )
    table = report.table("model", "cell", "Hugging Face", "softlook", "ratio", "±", "goal", "apart")
    for make in (gpt, bert):
        pair = make(quick)
        for cell in cells(pair, quick):
            if deadline.passed():
                report.say(f"The time was up before {pair.name}, {cell.name}.")
                return
            _add(table, pair, cell, quick)


def _add(table: Any, pair: Pair, cell: Cell, quick: bool) -> None:
    theirs, ours = cell.theirs(), cell.ours()
    apart = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    if not apart <= ENOUGH:
        table.add(pair.name, cell.name, "–", "–", None, None, cell.goal, f"{apart:.1e}: NOT THE SAME")
        return
    entries = [Entry("theirs", cell.theirs), Entry("ours", cell.ours)]
    samples = race(entries, CpuWatch(), budget=1 if quick else 30, least=2 if quick else 5)
    ratio = median(samples["theirs"]) / median(samples["ours"])
    noise = ratio_noise(samples["theirs"], samples["ours"])
    times = (ms(median(samples[name])) for name in ("theirs", "ours"))
    table.add(pair.name, cell.name, *times, ratio, noise, cell.goal, f"{apart:.1e}")


def gpt(quick: bool) -> Pair:
    """GPT-2's smallest, 124 million weights."""
    sizes: dict[str, Any] = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100} if quick else {}
    config = GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return paired("GPT-2 124M", GPT2LMHeadModel, config)


def bert(quick: bool) -> Pair:
    """BERT-base with its masked-language head."""
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4} if quick else {}
    small: dict[str, Any] = {"intermediate_size": 128, "vocab_size": 100} if quick else {}
    config = BertConfig(**sizes, **small, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return paired("BERT-base", BertForMaskedLM, config)


def paired(name: str, kind: type[PreTrainedModel], config: Any) -> Pair:
    """A model of Hugging Face's with random weights, and ours with the same."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    theirs = kind._from_config(config, attn_implementation="sdpa").eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return Pair(name, theirs, from_hugging_face(Path(folder)))


def cells(pair: Pair, quick: bool) -> list[Cell]:
    length = 64 if quick else LENGTH
    vocab = pair.theirs.config.vocab_size
    ids = torch.randint(0, vocab, (BATCH, length), generator=torch.Generator().manual_seed(1))
    return [
        Cell("forward", _quietly(lambda: pair.theirs(ids).logits), _quietly(lambda: pair.ours(ids)), 1.0),
        Cell(
            "training",
            lambda: _step(pair.theirs, lambda: pair.theirs(ids, use_cache=False).logits, ids),
            lambda: _step(pair.ours, lambda: pair.ours(ids), ids),
            1.0,
        ),
        _ragged(pair, vocab),
    ]


def _ragged(pair: Pair, vocab: int) -> Cell:
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(0, vocab, (length,), generator=generator) for length in LENGTHS]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    present = torch.arange(padded.shape[1]) < torch.tensor(LENGTHS)[:, None]

    def ours() -> Tensor:
        packed = pack(rows)
        return pair.ours(packed.ids, mask=packed.mask, positions=packed.positions)[0]

    return Cell(
        "ragged forward",
        _quietly(lambda: pair.theirs(padded, attention_mask=present.long()).logits[present]),
        _quietly(ours),
        1.5,
    )


def _quietly(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def quiet() -> Tensor:
        with torch.no_grad():
            return call()

    return quiet


def _step(model: torch.nn.Module, forward: Callable[[], Tensor], ids: Tensor) -> Tensor:
    """Forward, loss, backward; the gradient of the word vectors is what is compared."""
    model.zero_grad(set_to_none=True)
    logits = forward()
    cross_entropy(logits[:, :-1], ids[:, 1:]).backward()
    table = next(parameter for parameter in model.parameters() if parameter.shape[0] == logits.shape[-1])
    assert table.grad is not None
    return table.grad
