"""`python -m benchmarks.head_kinds`: kinds of attention heads of SmolLM2-135M, and what ablating induction heads costs.

The head table finds previous-token, duplicate-token, induction and sink heads. Then the heads with the highest
induction scores are ablated together, on other random tokens than those of the table, and compared with as many random
other heads. `make real` downloads the weights.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.report import FOLDER, Report
from softlook.lens import HeadTable, ablate, head_table
from softlook.lens.head_scores import repeat_random_tokens
from softlook.weights import from_gguf, tokenizer_from_gguf

WEIGHTS = Path("build/real/SmolLM2-135M-Instruct")
KINDS = ("previous", "duplicate", "induction", "sink", "copying")
TOP, COUNTS, DRAWS = 5, (1, 3, 10), 10
"""Heads of each kind that are listed, numbers of heads that are ablated together, and random draws of others."""
REPEAT_LENGTH, SEED = 50, 1
"""Random tokens before they repeat; the seed of the table is 0."""
TEXT = """Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once
or twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, "and what
is the use of a book," thought Alice, "without pictures or conversations?" So she was considering in her own mind, as
well as she could, for the hot day made her feel very sleepy and stupid, whether the pleasure of making a daisy-chain
would be worth the trouble of getting up and picking the daisies, when suddenly a White Rabbit with pink eyes ran close
by her. There was nothing so very remarkable in that; nor did Alice think it so very much out of the way to hear the
Rabbit say to itself, "Oh dear! Oh dear! I shall be late!" """
"""The beginning of Alice's Adventures in Wonderland (Carroll 1865)."""

Heads = Sequence[tuple[str, int]]


def main() -> None:
    args = _parse_args()
    (path,) = args.weights.glob("*.gguf")
    model, tokenizer = from_gguf(path), tokenizer_from_gguf(path)
    text = torch.tensor([tokenizer.encode(" ".join(TEXT.split())).ids])
    report = Report("cpu", "python -m benchmarks.head_kinds", args.folder, "heads")
    table = head_table(model, text, repeat_length=REPEAT_LENGTH)
    list_kinds(report, table)
    generator = torch.Generator().manual_seed(SEED)
    repeated = repeat_random_tokens(model, REPEAT_LENGTH, generator=generator)
    compare_ablations(report, model, table, repeated, text)
    print(f"\nwritten: {report.path.parent.name}/{report.path.name}", flush=True)


def list_kinds(report: Report, table: HeadTable) -> None:
    """The heads with the highest scores of each kind."""
    report.section(
        "Kinds of heads",
        f"The {TOP} heads of SmolLM2-135M-Instruct (GGUF, Q4_1) with the highest scores of each kind, as layer.head. "
        f"Previous token and sink are measured on the first {len(TEXT.split())} words of Alice's Adventures in "
        f"Wonderland, duplicate and induction on {REPEAT_LENGTH} random tokens and their repetition, copying on the "
        "weights.",
    )
    rows = report.table("kind", *(f"{number}." for number in range(1, TOP + 1)), "median of all heads")
    for kind in KINDS:
        cells = [f"{short_name(layer, head)}: {value:.2f}" for layer, head, value in table.top(kind, TOP)]
        rows.add(kind, *cells, float(table[kind].median()))


def compare_ablations(report: Report, model: nn.Module, table: HeadTable, repeated: Tensor, text: Tensor) -> None:
    """The loss without induction heads and without as many random other heads."""
    report.section(
        "Ablation of induction heads",
        "Cross-entropy in nats on the second half of repeated random tokens, which only induction can predict, and on "
        f"the text, with heads set to zero. Random heads: the mean of {DRAWS} draws among all heads but the "
        f"{max(COUNTS)} with the highest induction scores, with the smallest and the largest loss; then the same with "
        "as many heads in each layer as the induction heads.",
    )
    ranked = [(layer, head) for layer, head, _ in table.top("induction", max(COUNTS))]
    others = [head for head in table.heads if head not in ranked]
    generator = torch.Generator().manual_seed(SEED)
    rows = report.table("ablated", "loss on repeated tokens", "loss on the text")
    rows.add("nothing", *(f"{loss(model, ids):.3f}" for ids in (repeated, text)))
    for count in COUNTS:
        without = [loss(model, ids, ranked[:count]) for ids in (repeated, text)]
        draws = [sample(others, count, generator) for _ in range(DRAWS)]
        neighbors = [sample_same_layers(others, ranked[:count], generator) for _ in range(DRAWS)]
        random, same_layers = (
            [[loss(model, ids, heads) for heads in some] for ids in (repeated, text)] for some in (draws, neighbors)
        )
        rows.add(f"{count} induction", *(f"{value:.3f}" for value in without))
        rows.add(f"{count} random", *map(summarize, random))
        rows.add(f"{count} random of the same layers", *map(summarize, same_layers))
        report.summarize(
            f"Loss on repeated tokens without {count} induction heads: {without[0]:.2f}; without {count} random other "
            f"heads: {mean(random[0]):.2f}, at most {max(random[0]):.2f}; of the same layers: {mean(same_layers[0]):.2f}, "
            f"at most {max(same_layers[0]):.2f}"
        )


def sample(heads: Heads, count: int, generator: torch.Generator) -> Heads:
    """Random heads, without replacement."""
    return [heads[int(index)] for index in torch.randperm(len(heads), generator=generator)[:count]]


def sample_same_layers(heads: Heads, like: Heads, generator: torch.Generator) -> Heads:
    """Random heads, as many in each layer as `like` has there."""
    return [
        head
        for layer, count in Counter(layer for layer, _ in like).items()
        for head in sample([head for head in heads if head[0] == layer], count, generator)
    ]


@torch.no_grad()
def loss(model: nn.Module, ids: Tensor, heads: Heads = ()) -> float:
    """The mean cross-entropy of the second half of the tokens without some heads."""
    with ExitStack() as ablations:
        for layer, head in heads:
            ablations.enter_context(ablate(model, layer, head))
        logits = model(ids)
    half = ids.shape[1] // 2
    return F.cross_entropy(logits[:, half:-1].flatten(0, 1), ids[:, half + 1 :].flatten()).item()


def short_name(layer: str, head: int) -> str:
    """layer.head, as in "5.3".

    >>> short_name("blocks.5.attn", 3)
    '5.3'
    """
    return f"{layer.split('.')[1]}.{head}"


def summarize(losses: Sequence[float]) -> str:
    return f"{mean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})"


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder of the GGUF file")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="directory of the Markdown file")
    args = parser.parse_args()
    if not list(args.weights.glob("*.gguf")):
        parser.error(f"{args.weights} has no GGUF file: run `make real`, or name the folder with --weights")
    return args


if __name__ == "__main__":
    main()
