"""I. Whole models compared with transformers, with the same weights: forward, training step, ragged batches."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel
from transformers.utils import logging

from benchmarks.report import Report, Table, ms
from benchmarks.timing import CpuTimer, Deadline, Entry, median, ratio_noise, time_interleaved
from softlook.losses import cross_entropy
from softlook.ops.packing import pack
from softlook.weights import from_hugging_face

LENGTHS = (512, 176, 96, 72, 56, 48, 40, 24)
"""A ragged batch: 128 tokens on average, at most 512."""
BATCH, LENGTH = 2, 512
MAX_DIFFERENCE = 1e-4
"""Relative to the largest value."""


@dataclass(frozen=True)
class ModelPair:
    """The same model of transformers and of softlook, with equal weights."""

    name: str
    transformers: Any
    softlook: Any


@dataclass(frozen=True)
class Case:
    """The same computation in both libraries; each call returns a tensor to compare."""

    name: str
    transformers: Callable[[], Tensor]
    softlook: Callable[[], Tensor]
    goal: float
    """Target speed of softlook relative to transformers."""


def measure(report: Report, deadline: Deadline, quick: bool) -> None:
    report.section(
        "I. whole models",
        "Milliseconds, float32, random weights, loaded from a checkpoint of transformers, whose attention is sdpa. "
        f"`forward` and `training` are a batch of {BATCH} x {LENGTH} tokens; training is forward, loss and backward. "
        f"A ragged batch has the lengths {', '.join(map(str, LENGTHS))}: padded for transformers, packed for softlook; "
        "padding is not compared. The ratio is the time of transformers over that of softlook: above 1, softlook is "
        "faster. `difference` is the largest difference relative to the largest value.",
    )
    table = report.table("model", "case", "transformers", "softlook", "ratio", "±", "goal", "difference")
    for make in (gpt, bert):
        pair = make(quick)
        for case in cases(pair, quick):
            if deadline.passed():
                report.text(f"The time limit was reached before {pair.name}, {case.name}.")
                return
            _add_row(table, pair, case, quick)


def _add_row(table: Table, pair: ModelPair, case: Case, quick: bool) -> None:
    expected, actual = case.transformers(), case.softlook()
    difference = ((actual - expected).abs().max() / expected.abs().max()).item()
    if not difference <= MAX_DIFFERENCE:
        table.add(pair.name, case.name, "–", "–", None, None, case.goal, f"{difference:.1e}: NOT EQUAL")
        return
    entries = [Entry("transformers", case.transformers), Entry("softlook", case.softlook)]
    samples = time_interleaved(entries, CpuTimer(), budget=1 if quick else 30, min_rounds=2 if quick else 5)
    ratio = median(samples["transformers"]) / median(samples["softlook"])
    noise = ratio_noise(samples["transformers"], samples["softlook"])
    times = (ms(median(samples[name])) for name in ("transformers", "softlook"))
    table.add(pair.name, case.name, *times, ratio, noise, case.goal, f"{difference:.1e}")


def gpt(quick: bool) -> ModelPair:
    """The smallest GPT-2, with 124 million parameters."""
    sizes: dict[str, Any] = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100} if quick else {}
    config = GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return make_pair("GPT-2 124M", GPT2LMHeadModel, config)


def bert(quick: bool) -> ModelPair:
    """BERT-base with its masked-LM head."""
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4} if quick else {}
    small: dict[str, Any] = {"intermediate_size": 128, "vocab_size": 100} if quick else {}
    config = BertConfig(**sizes, **small, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return make_pair("BERT-base", BertForMaskedLM, config)


def make_pair(name: str, model_class: type[PreTrainedModel], config: Any) -> ModelPair:
    """A model of transformers with random weights, and softlook's with the same weights."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    model = model_class._from_config(config, attn_implementation="sdpa").eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return ModelPair(name, model, from_hugging_face(Path(folder)))


def cases(pair: ModelPair, quick: bool) -> list[Case]:
    length = 64 if quick else LENGTH
    vocab = pair.transformers.config.vocab_size
    ids = torch.randint(0, vocab, (BATCH, length), generator=torch.Generator().manual_seed(1))
    return [
        Case("forward", _no_grad(lambda: pair.transformers(ids).logits), _no_grad(lambda: pair.softlook(ids)), 1.0),
        Case(
            "training",
            lambda: _gradient(pair.transformers, lambda: pair.transformers(ids, use_cache=False).logits, ids),
            lambda: _gradient(pair.softlook, lambda: pair.softlook(ids), ids),
            1.0,
        ),
        _ragged_case(pair, vocab),
    ]


def _ragged_case(pair: ModelPair, vocab: int) -> Case:
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(0, vocab, (length,), generator=generator) for length in LENGTHS]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(padded.shape[1]) < torch.tensor(LENGTHS)[:, None]

    def packed_forward() -> Tensor:
        packed = pack(rows)
        return pair.softlook(packed.ids, mask=packed.mask, positions=packed.positions)[0]

    return Case(
        "ragged forward",
        _no_grad(lambda: pair.transformers(padded, attention_mask=mask.long()).logits[mask]),
        _no_grad(packed_forward),
        1.5,
    )


def _no_grad(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return torch.no_grad()(call)


def _gradient(model: torch.nn.Module, forward: Callable[[], Tensor], ids: Tensor) -> Tensor:
    """Forward, loss and backward; returns the gradient of the token embedding."""
    model.zero_grad(set_to_none=True)
    logits = forward()
    cross_entropy(logits[:, :-1], ids[:, 1:]).backward()
    embedding = next(parameter for parameter in model.parameters() if parameter.shape[0] == logits.shape[-1])
    assert embedding.grad is not None
    return embedding.grad
