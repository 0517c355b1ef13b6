"""`python -m benchmarks.head_kinds`: kinds of attention heads of SmolLM2-135M and MiniLM, and induction heads ablated.

The head table finds previous-token, duplicate-token, induction and sink heads of SmolLM2, a decoder, and heads that
attend to the next token or to [SEP] of MiniLM, an encoder. Then the heads of SmolLM2 with the highest induction scores
are ablated together, on other random tokens than those of the table, and compared with as many random other heads.
`make real` downloads the weights.
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
from softlook.weights import from_gguf, from_hugging_face, read_tokenizer, tokenizer_from_gguf

WEIGHTS = Path("build/real")
DECODER, ENCODER = "SmolLM2-135M-Instruct", "all-MiniLM-L6-v2"
DECODER_KINDS = ("previous", "duplicate", "induction", "sink", "copying")
ENCODER_KINDS = ("previous", "next", "separator", "broad", "duplicate")
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
    report = Report("cpu", "python -m benchmarks.head_kinds", args.folder, "heads")
    (path,) = (args.weights / DECODER).glob("*.gguf")
    model, tokenizer = from_gguf(path), tokenizer_from_gguf(path)
    text = torch.tensor([tokenizer.encode(" ".join(TEXT.split())).ids])
    table = head_table(model, text, repeat_length=REPEAT_LENGTH)
    list_kinds(report, f"{DECODER} (GGUF, Q4_1)", table, DECODER_KINDS)
    list_kinds(report, ENCODER, encoder_table(args.weights / ENCODER), ENCODER_KINDS)
    generator = torch.Generator().manual_seed(SEED)
    repeated = repeat_random_tokens(model, REPEAT_LENGTH, generator=generator)
    compare_ablations(report, model, table, repeated, text)
    print(f"\nwritten: {report.path.parent.name}/{report.path.name}", flush=True)


def encoder_table(folder: Path) -> HeadTable:
    """The head table of a BERT on the text, as it is encoded with [CLS] and [SEP]."""
    tokenizer = read_tokenizer(folder)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = torch.tensor([tokenizer.encode(" ".join(TEXT.split())).ids])
    return head_table(from_hugging_face(folder), ids, separators=[int(ids[0, -1])], repeat_length=REPEAT_LENGTH)


def list_kinds(report: Report, name: str, table: HeadTable, kinds: Sequence[str]) -> None:
    """The heads with the highest scores of each kind."""
    report.section(
        f"Kinds of heads of {name}",
        f"The {TOP} of {len(table.heads)} heads with the highest scores of each kind, as layer.head. Duplicate and "
        f"induction are measured on {REPEAT_LENGTH} random tokens and their repetition, copying on the weights, the "
        f"others on the first {len(TEXT.split())} words of Alice's Adventures in Wonderland; separator is the weight "
        "on [SEP] at the end.",
    )
    rows = report.table("kind", *(f"{number}." for number in range(1, TOP + 1)), "median of all heads")
    for kind in kinds:
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
            f"heads: {summarize(random[0], 2)}; of the same layers: {summarize(same_layers[0], 2)}"
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


def summarize(losses: Sequence[float], digits: int = 3) -> str:
    return "{:.{n}f} ({:.{n}f} to {:.{n}f})".format(mean(losses), min(losses), max(losses), n=digits)


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder of the real weights")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="directory of the Markdown file")
    args = parser.parse_args()
    for name in (DECODER, ENCODER):
        if not (args.weights / name).is_dir():
            parser.error(f"{args.weights} has no {name}: run `make real`, or name the folder with --weights")
    return args


if __name__ == "__main__":
    main()
