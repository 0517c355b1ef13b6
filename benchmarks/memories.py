"""`python -m benchmarks.memories FOLDER`: language models with a memory, at equal parameters and steps.

A GPT over bytes of the largest file in FOLDER, such as enwik8.gz: plain, with a product-key memory in one block, and
with all-attention layers. The hidden width and the number of persistent vectors are chosen so that all have as many
weights. Then a Transformer-XL, evaluated with memories of several lengths. About four minutes on one CPU core, offline;
writes the numbers of docs/book/25-memories.md. The last tenth of the file is held out.
"""

import argparse
import gzip
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.recorded import FIGURES
from softlook.blocks import ProductKeyConfig, SegmentCache
from softlook.models import GPT, GPTConfig, TransformerXL, TransformerXLConfig
from softlook.recipes.text.memory_scores import memory_scores

NAME = "memories"
VOCAB, RATE = 256, 3e-3


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models and of their training."""

    steps: int = 240
    dim: int = 64
    depth: int = 4
    heads: int = 4
    context: int = 128
    rows: int = 16
    n_subkeys: int = 64
    valid_bytes: int = 32768
    device: str = "cpu"


def read_bytes(folder: Path) -> Tensor:
    """The largest file of a folder as byte ids; decompressed if it ends in .gz."""
    path = max((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def gpt(sizes: Sizes, **changes: Any) -> GPT:
    """A GPT over bytes; the same random numbers for each."""
    torch.manual_seed(0)
    shape = {"dim": sizes.dim, "depth": sizes.depth, "heads": sizes.heads, "context": sizes.context}
    return GPT(GPTConfig(vocab_size=VOCAB, dropout=0.0, **shape, **changes)).to(sizes.device)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def fit_size(build: Callable[[int], nn.Module], target: int) -> nn.Module:
    """The model whose number of weights, linear in its size, is closest to `target`."""
    first = parameters(build(1))
    return build(round(1 + (target - first) / (parameters(build(2)) - first)))


def models(sizes: Sizes) -> dict[str, nn.Module]:
    """Three models with as many weights."""
    keys = ProductKeyConfig(layer=sizes.depth // 2, n_subkeys=sizes.n_subkeys)
    memory = gpt(sizes, product_keys=keys)
    return {
        "feed-forward": fit_size(lambda hidden: gpt(sizes, hidden=hidden), parameters(memory)),
        "product keys": memory,
        "all-attention": fit_size(lambda persistent: gpt(sizes, persistent=persistent), parameters(memory)),
    }


def train(model: nn.Module, loss_of: Callable[[int], Tensor], sizes: Sizes) -> float:
    """Train with `loss_of(step)`; returns the seconds."""
    optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=sizes.steps, pct_start=0.1)
    started = time.monotonic()
    model.train()
    for step in range(sizes.steps):
        optimizer.zero_grad()
        loss_of(step).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    return time.monotonic() - started


def bits(logits: Tensor, target: Tensor) -> Tensor:
    """Mean bits per byte."""
    return F.cross_entropy(logits.float().flatten(0, 1), target.flatten()) / math.log(2)


def compare(name: str, model: nn.Module, text: Tensor, valid: Tensor, sizes: Sizes) -> dict[str, Any]:
    """Train a GPT on random rows; its held-out bits per byte and the use of its memory."""
    generator, span = torch.Generator().manual_seed(0), torch.arange(sizes.context + 1)

    def loss_of(step: int) -> Tensor:
        starts = torch.randint(len(text) - sizes.context, (sizes.rows, 1), generator=generator)
        rows = text[starts + span].long().to(sizes.device)
        return bits(model(rows[:, :-1]), rows[:, 1:])

    seconds = train(model, loss_of, sizes)
    rows = valid.unfold(0, sizes.context + 1, sizes.context).long().to(sizes.device)
    with torch.no_grad(), memory_scores(model) as memory:
        held_out = torch.stack([bits(model(part[:, :-1]), part[:, 1:]) for part in rows.split(sizes.rows)]).mean()
    scores = {"parameters": parameters(model), "bits_per_byte": round(held_out.item(), 3), "seconds": round(seconds)}
    scores |= {score: round(value, 3) for score, value in memory.items()}
    print(name, scores, flush=True)
    return scores


def compare_lengths(text: Tensor, valid: Tensor, sizes: Sizes) -> dict[str, float]:
    """Train a Transformer-XL with a memory of one segment; its held-out bits per byte by the length of its memory."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"dim": sizes.dim, "depth": sizes.depth, "heads": sizes.heads, "hidden": 4 * sizes.dim}
    config = TransformerXLConfig(vocab_size=VOCAB, dropout=0.0, pre_norm=True, **shape)
    model, segment = TransformerXL(config).to(sizes.device), sizes.context // 2
    cache, lanes = SegmentCache(segment), text[: len(text) // sizes.rows * sizes.rows].view(sizes.rows, -1)

    def predict(rows: Tensor, step: int, cache: SegmentCache | None) -> Tensor:
        part = rows[:, step * segment : (step + 1) * segment + 1].long().to(sizes.device)
        return bits(model(part[:, :-1], cache=cache), part[:, 1:])

    train(model, lambda step: predict(lanes, step, cache), sizes)
    rows, found = valid[: len(valid) // sizes.rows * sizes.rows].view(sizes.rows, -1), {}
    steps = (rows.shape[1] - 1) // segment
    for length in (0, segment // 2, segment, 2 * segment, 4 * segment):
        cache = SegmentCache(length) if length else None
        with torch.no_grad():
            parts = [predict(rows, step, cache) for step in range(steps)]
        found[str(length)] = round(torch.stack(parts).mean().item(), 3)
    print(f"Transformer-XL, segments of {segment}, by memory: {found}", flush=True)
    return found


def run_all(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """The scores of every model."""
    text = read_bytes(folder)
    text, valid = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :][: sizes.valid_bytes + 1]
    scores = {name: compare(name, model, text, valid, sizes) for name, model in models(sizes).items()}
    lengths = compare_lengths(text, valid, sizes)
    return {"settings": vars(sizes), "models": scores, "transformer_xl": lengths}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder of a large text, such as enwik8.gz")
    parser.add_argument("--output", type=Path, default=FIGURES / f"{NAME}.json")
    for name, value in vars(Sizes()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    args = vars(parser.parse_args())
    folder, output = args.pop("folder"), args.pop("output")
    output.write_text(json.dumps(run_all(folder, Sizes(**args)), indent=1) + "\n", encoding="utf-8")
    print(f"The numbers are in {output}")


if __name__ == "__main__":
    main()
