"""Pre-norm and post-norm, with and without warmup: a deep Transformer is trained to parse dates.

Eight runs of less than a minute each on one CPU core, offline. Writes `norms_and_warmup.svg`, the figure of
docs/guide/training.md, and its numbers as `norms_and_warmup.json`, to docs/figures or the given folder:

    python examples/norms_and_warmup.py [FOLDER]
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from softlook.lens.figures.color import DARK, LIGHT
from softlook.lens.figures.tokens import MONO as FONT
from softlook.models import Transformer, TransformerConfig
from softlook.recipes.demo.dates import WrittenDate, held_out_dates, training_dates
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train import OptimizerConfig, TrainingConfig, fit
from softlook.train.batching.batches import LengthBucketedBatches
from softlook.train.batching.collate import Ids, Seq2SeqBatch, collate_seq2seq
from softlook.train.events import Evaluated, Event
from softlook.train.objectives import make_loss_evaluator, translation

Norm = Literal["pre", "post"]
NORMS: tuple[Norm, ...] = ("pre", "post")
DEPTH, DIM, LR, STEPS, WARMUP, SEEDS = 6, 64, 3e-3, 400, 100, 2
NAME = "norms_and_warmup"
FIGURES = Path(__file__).parents[1] / "docs/figures"
Results = dict[str, Any]


@dataclass(frozen=True)
class Dates:
    """Tokenized dates for training and for evaluation."""

    tokenizer: TextTokenizer
    batches: LengthBucketedBatches[tuple[Ids, Ids], Seq2SeqBatch]
    held_out: Seq2SeqBatch


def make_dates(count: int = 20_000) -> Dates:
    training, held_out = list(islice(training_dates(0), count)), held_out_dates(200, 1)
    texts = [text for date in training for text in (date.text, date.iso)]
    tokenizer = TextTokenizer(train_tokenizer(texts, model_type="characters", vocab_size=1000))
    collate = partial(collate_seq2seq, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)
    batches = LengthBucketedBatches(
        encode(training, tokenizer), lambda pair: max(map(len, pair)) + 1, collate, max_tokens=1500, seed=0
    )
    return Dates(tokenizer, batches, collate(encode(held_out, tokenizer)))


def encode(dates: Sequence[WrittenDate], tokenizer: TextTokenizer) -> list[tuple[Ids, Ids]]:
    sides = (tokenizer.encode(side) for side in ([date.text for date in dates], [date.iso for date in dates]))
    return list(zip(*sides, strict=True))


def make_model(dates: Dates, norm: Norm, seed: int) -> Transformer:
    torch.manual_seed(seed)
    sizes = {"dim": DIM, "depth": DEPTH, "heads": 4, "hidden": 2 * DIM, "dropout": 0.0}
    return Transformer(TransformerConfig(vocab_size=dates.tokenizer.vocab_size, norm=norm, **sizes))


def train(dates: Dates, norm: Norm, warmup: int, seed: int, steps: int = STEPS) -> list[tuple[int, float]]:
    """Train a model; returns the held-out loss by step."""
    losses: list[tuple[int, float]] = []

    def record(event: Event) -> None:
        if isinstance(event, Evaluated):
            losses.append((event.step, round(event.scores["loss"], 4)))

    fit(
        make_model(dates, norm, seed),
        dates.batches,
        translation(0.0),
        evaluate=make_loss_evaluator([dates.held_out], translation(0.0), torch.device("cpu")),
        training=TrainingConfig(max_steps=steps, evaluate_every=max(steps // 20, 1), seed=seed, device="cpu"),
        optim=OptimizerConfig(lr=LR, schedule="cosine", warmup=warmup),
        callbacks=[record],
    )
    return losses


def gradients(dates: Dates, norm: Norm, seed: int) -> list[float]:
    """The gradient norm of each decoder block before the first step."""
    model = make_model(dates, norm, seed)
    loss = translation(0.0)(model, dates.held_out)
    (loss.total / loss.count).backward()
    blocks = [[weight.grad for weight in block.parameters()] for block in model.decoder.blocks]
    return [math.sqrt(sum(float(one.square().sum()) for one in block if one is not None)) for block in blocks]


def unigram_entropy(dates: Dates) -> float:
    """The loss of a model that predicts the frequency of each character, whatever the date."""
    counts = Counter(dates.held_out.labels[dates.held_out.labels >= 0].tolist())
    return -sum(count / counts.total() * math.log(count / counts.total()) for count in counts.values())


def run_all() -> Results:
    """All numbers of the figure."""
    dates = make_dates()
    runs: list[Results] = []
    for norm in NORMS:
        for warmup in (0, WARMUP):
            for seed in range(SEEDS):
                runs.append({"norm": norm, "warmup": warmup, "seed": seed, "loss": train(dates, norm, warmup, seed)})
                print(f"{norm}-norm, {warmup} warmup steps, seed {seed}: {runs[-1]['loss'][-1][1]:.3f}")
    norms = {norm: [gradients(dates, norm, seed) for seed in range(3)] for norm in NORMS}
    means = {norm: [round(sum(one) / len(one), 3) for one in zip(*rows, strict=True)] for norm, rows in norms.items()}
    settings = {"depth": DEPTH, "dim": DIM, "lr": LR, "steps": STEPS, "warmup": WARMUP}
    return {"settings": settings, "runs": runs, "gradients": means, "unigram_entropy": round(unigram_entropy(dates), 3)}


WIDTH, HEIGHT, TOP, BOTTOM = 760, 330, 78, 44
COLORS = {"pre": "query", "post": "key"}
SUBTITLE = f"{DEPTH} encoder and {DEPTH} decoder blocks, peak learning rate {LR:g}; every line is one run"


@dataclass(frozen=True)
class Panel:
    """Axes from 0 to `x_max` and from 0 to `y_max`."""

    left: float
    right: float
    x_max: float
    y_max: float

    def x(self, number: float) -> float:
        return self.left + (self.right - self.left) * number / self.x_max

    def y(self, number: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(number / self.y_max, 1.0)

    def line(self, points: Sequence[Sequence[float]], color: str, tooltip: str, dashes: str = "") -> str:
        path = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        style = f'fill="none" stroke="{LIGHT[color]}" stroke-width="1.8" stroke-dasharray="{dashes}"'
        return f'<path class="sl-{color}-line" d="M{path}" {style}><title>{escape(tooltip)}</title></path>'

    def axes(self, title: str, x_label: str, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> list[str]:
        lines = [write(self.left, TOP - 14, title, color="ink"), write(self.right, HEIGHT - 8, x_label, "end")]
        for number in y_ticks:
            y = self.y(number)
            lines.append(f'<path class="sl-edge-line" d="M{self.left} {y:.1f}H{self.right}" stroke="{LIGHT["edge"]}"/>')
            lines.append(write(self.left - 6, y + 4, f"{number:g}", "end"))
        return [*lines, *(write(self.x(number), HEIGHT - BOTTOM + 18, f"{number:g}", "middle") for number in x_ticks)]


def write(x: float, y: float, text: str, anchor: str = "start", color: str = "soft", attributes: str = "") -> str:
    position = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12"'
    return f'<text class="sl-{color}" {position} fill="{LIGHT[color]}" {attributes}>{escape(text)}</text>'


def draw(results: Results) -> str:
    """The figure: held-out losses, and gradient norms before the first step."""
    dark = "".join(f".sl-{name}{{fill:{tint}}}.sl-{name}-line{{stroke:{tint}}}" for name, tint in DARK.items())
    title = "Post-norm requires warmup, pre-norm does not"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}">',
        f"<title>{title}</title><style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
        f'<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>',
        write(52, 24, title, color="ink", attributes='style="font-size:15px;font-weight:600"'),
        write(52, 43, SUBTITLE),
        *draw_losses(results),
        *draw_gradients(results),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def draw_losses(results: Results) -> list[str]:
    steps, entropy = results["settings"]["steps"], results["unigram_entropy"]
    panel = Panel(52, 470, steps, 3.0)
    parts = panel.axes("held-out loss", "step", range(0, steps + 1, steps // 4), (0, 1, 2, 3))
    parts.append(panel.line([(0, entropy), (steps, entropy)], "soft", f"unigram entropy: {entropy}", "1 4"))
    parts.append(write(panel.right, panel.y(entropy) - 10, "entropy of the character frequencies", "end"))
    for run in results["runs"]:
        tooltip = f"{run['norm']}-norm, {run['warmup']} warmup steps, seed {run['seed']}: {run['loss'][-1][1]:.3f}"
        points = [point for point in run["loss"] if point[1] <= panel.y_max]
        parts.append(panel.line(points, COLORS[run["norm"]], tooltip, "" if run["warmup"] else "6 3"))
    return [*parts, *draw_legend(panel.left + 180, panel.y(1.9))]


def draw_legend(x: float, y: float) -> list[str]:
    parts = []
    for norm, color in COLORS.items():
        for prefix, dashes in (("with", ""), ("without", "6 3")):
            stroke = f'stroke="{LIGHT[color]}" stroke-width="1.8" stroke-dasharray="{dashes}"'
            parts.append(f'<path class="sl-{color}-line" d="M{x} {y - 4:.1f}h30" {stroke}/>')
            parts.append(write(x + 38, y, f"{norm}-norm, {prefix} warmup", color=color))
            y += 17
    return parts


def draw_gradients(results: Results) -> list[str]:
    largest = math.ceil(max(max(norms) for norms in results["gradients"].values()))
    panel = Panel(540, WIDTH - 20, results["settings"]["depth"], largest)
    count = results["settings"]["depth"]
    parts = panel.axes("gradient norm before step 1", "decoder block", range(1, count + 1), range(largest + 1))
    for norm, norms in results["gradients"].items():
        parts.append(panel.line(list(enumerate(norms, 1)), COLORS[norm], f"{norm}-norm: {norms}"))
        y = panel.y(norms[-1]) + (-10 if norm == "post" else 20)
        parts.append(write(panel.right, y, f"{norm}-norm", "end", COLORS[norm]))
    return parts


def main(folder: Path = FIGURES) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    results = run_all()
    (folder / f"{NAME}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / f"{NAME}.svg").write_text(draw(results), encoding="utf-8")
    print(f"The figure is {folder / f'{NAME}.svg'}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
