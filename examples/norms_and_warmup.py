"""Norms and warm-up: a deep Transformer learns to read dates, norms before or behind its layers, warmed up or not.

Eight runs of less than a minute each on one CPU core, offline. Writes `norms_and_warmup.svg`, the figure of
docs/guide/training.md, and its numbers as `norms_and_warmup.json`, into docs/figures or the folder that is named:

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

from softlook.lens.color import DARK, LIGHT
from softlook.lens.figure import FONT
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
DEPTH, DIM, RATE, STEPS, WARMUP, SEEDS = 6, 64, 3e-3, 400, 100, 2
NAME = "norms_and_warmup"
FIGURES = Path(__file__).parents[1] / "docs/figures"
Found = dict[str, Any]


@dataclass(frozen=True)
class Dates:
    """Dates to learn from and others to be asked about, as ids."""

    tokenizer: TextTokenizer
    batches: LengthBucketedBatches[tuple[Ids, Ids], Seq2SeqBatch]
    asked: Seq2SeqBatch


def make_dates(count: int = 20_000) -> Dates:
    learned, asked = list(islice(training_dates(0), count)), held_out_dates(200, 1)
    texts = [text for date in learned for text in (date.text, date.iso)]
    tokenizer = TextTokenizer(train_tokenizer(texts, model_type="characters", vocab_size=1000))
    collate = partial(collate_seq2seq, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)
    batches = LengthBucketedBatches(
        coded(learned, tokenizer), lambda pair: max(map(len, pair)) + 1, collate, max_tokens=1500, seed=0
    )
    return Dates(tokenizer, batches, collate(coded(asked, tokenizer)))


def coded(dates: Sequence[WrittenDate], tokenizer: TextTokenizer) -> list[tuple[Ids, Ids]]:
    sides = (tokenizer.encode(side) for side in ([date.text for date in dates], [date.iso for date in dates]))
    return list(zip(*sides, strict=True))


def make_model(dates: Dates, norm: Norm, seed: int) -> Transformer:
    torch.manual_seed(seed)
    sizes = {"dim": DIM, "depth": DEPTH, "heads": 4, "hidden": 2 * DIM, "dropout": 0.0}
    return Transformer(TransformerConfig(vocab_size=dates.tokenizer.vocab_size, norm=norm, **sizes))


def learn(dates: Dates, norm: Norm, warmup: int, seed: int, steps: int = STEPS) -> list[tuple[int, float]]:
    """The loss on held-out dates as training went on."""
    seen: list[tuple[int, float]] = []

    def hear(event: Event) -> None:
        if isinstance(event, Evaluated):
            seen.append((event.step, round(event.scores["loss"], 4)))

    fit(
        make_model(dates, norm, seed),
        dates.batches,
        translation(0.0),
        evaluate=make_loss_evaluator([dates.asked], translation(0.0), torch.device("cpu")),
        training=TrainingConfig(max_steps=steps, evaluate_every=max(steps // 20, 1), seed=seed, device="cpu"),
        optim=OptimizerConfig(lr=RATE, schedule="cosine", warmup=warmup),
        callbacks=[hear],
    )
    return seen


def gradients(dates: Dates, norm: Norm, seed: int) -> list[float]:
    """How long the gradient of each block of the decoder is before anything was learned."""
    model = make_model(dates, norm, seed)
    loss = translation(0.0)(model, dates.asked)
    (loss.total / loss.count).backward()
    blocks = [[weight.grad for weight in block.parameters()] for block in model.decoder.blocks]
    return [math.sqrt(sum(float(one.square().sum()) for one in block if one is not None)) for block in blocks]


def knowing_nothing(dates: Dates) -> float:
    """The loss of a model that knows how often each character is said, and not one thing about the date."""
    said = Counter(dates.asked.labels[dates.asked.labels >= 0].tolist())
    return -sum(count / said.total() * math.log(count / said.total()) for count in said.values())


def find_out() -> Found:
    """Every number of the figure."""
    dates = make_dates()
    runs: list[Found] = []
    for norm in NORMS:
        for warmup in (0, WARMUP):
            for seed in range(SEEDS):
                runs.append({"norm": norm, "warmup": warmup, "seed": seed, "loss": learn(dates, norm, warmup, seed)})
                print(f"{norm}-norm, {warmup} steps of warm-up, seed {seed}: {runs[-1]['loss'][-1][1]:.3f}")
    every = {norm: [gradients(dates, norm, seed) for seed in range(3)] for norm in NORMS}
    means = {norm: [round(sum(one) / len(one), 3) for one in zip(*rows, strict=True)] for norm, rows in every.items()}
    settings = {"depth": DEPTH, "dim": DIM, "lr": RATE, "steps": STEPS, "warmup": WARMUP}
    return {"settings": settings, "runs": runs, "gradients": means, "knowing_nothing": round(knowing_nothing(dates), 3)}


WIDTH, HEIGHT, TOP, FOOT = 760, 330, 78, 44
COLOURS = {"pre": "query", "post": "key"}
SAID = f"{DEPTH} blocks on each side, peak learning rate {RATE:g}; every line is one run"


@dataclass(frozen=True)
class Panel:
    """A place on the page for numbers from nought to `across` and to `up`."""

    left: float
    right: float
    across: float
    up: float

    def x(self, number: float) -> float:
        return self.left + (self.right - self.left) * number / self.across

    def y(self, number: float) -> float:
        return HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * min(number / self.up, 1.0)

    def line(self, points: Sequence[Sequence[float]], colour: str, told: str, dashes: str = "") -> str:
        path = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        look = f'fill="none" stroke="{LIGHT[colour]}" stroke-width="1.8" stroke-dasharray="{dashes}"'
        return f'<path class="sl-{colour}-line" d="M{path}" {look}><title>{escape(told)}</title></path>'

    def axes(self, title: str, below: str, across: Sequence[float], up: Sequence[float]) -> list[str]:
        lines = [write(self.left, TOP - 14, title, colour="ink"), write(self.right, HEIGHT - 8, below, "end")]
        for number in up:
            y = self.y(number)
            lines.append(f'<path class="sl-edge-line" d="M{self.left} {y:.1f}H{self.right}" stroke="{LIGHT["edge"]}"/>')
            lines.append(write(self.left - 6, y + 4, f"{number:g}", "end"))
        return [*lines, *(write(self.x(number), HEIGHT - FOOT + 18, f"{number:g}", "middle") for number in across)]


def write(x: float, y: float, words: str, anchor: str = "start", colour: str = "soft", more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12"'
    return f'<text class="sl-{colour}" {place} fill="{LIGHT[colour]}" {more}>{escape(words)}</text>'


def draw(found: Found) -> str:
    """The figure: how the held-out loss went, and how long gradients are at the start."""
    dark = "".join(f".sl-{name}{{fill:{tint}}}.sl-{name}-line{{stroke:{tint}}}" for name, tint in DARK.items())
    title = "Post-norm trains with warm-up, pre-norm without"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}">',
        f"<title>{title}</title><style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
        f'<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>',
        write(52, 24, title, colour="ink", more='style="font-size:15px;font-weight:600"'),
        write(52, 43, SAID),
        *draw_losses(found),
        *draw_gradients(found),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def draw_losses(found: Found) -> list[str]:
    steps, nothing = found["settings"]["steps"], found["knowing_nothing"]
    panel = Panel(52, 470, steps, 3.0)
    parts = panel.axes("held-out loss", "step", range(0, steps + 1, steps // 4), (0, 1, 2, 3))
    parts.append(panel.line([(0, nothing), (steps, nothing)], "soft", f"knowing nothing: {nothing}", "1 4"))
    parts.append(write(panel.right, panel.y(nothing) - 10, "knows how often each character comes", "end"))
    for run in found["runs"]:
        told = f"{run['norm']}-norm, {run['warmup']} steps of warm-up, seed {run['seed']}: {run['loss'][-1][1]:.3f}"
        points = [point for point in run["loss"] if point[1] <= panel.up]
        parts.append(panel.line(points, COLOURS[run["norm"]], told, "" if run["warmup"] else "6 3"))
    return [*parts, *draw_legend(panel.left + 180, panel.y(1.9))]


def draw_legend(x: float, y: float) -> list[str]:
    parts = []
    for norm, colour in COLOURS.items():
        for words, dashes in (("with", ""), ("without", "6 3")):
            stroke = f'stroke="{LIGHT[colour]}" stroke-width="1.8" stroke-dasharray="{dashes}"'
            parts.append(f'<path class="sl-{colour}-line" d="M{x} {y - 4:.1f}h30" {stroke}/>')
            parts.append(write(x + 38, y, f"{norm}-norm, {words} warm-up", colour=colour))
            y += 17
    return parts


def draw_gradients(found: Found) -> list[str]:
    longest = math.ceil(max(max(lengths) for lengths in found["gradients"].values()))
    panel = Panel(540, WIDTH - 20, found["settings"]["depth"], longest)
    count = found["settings"]["depth"]
    parts = panel.axes("gradient before step 1", "block of the decoder", range(1, count + 1), range(longest + 1))
    for norm, lengths in found["gradients"].items():
        parts.append(panel.line(list(enumerate(lengths, 1)), COLOURS[norm], f"{norm}-norm: {lengths}"))
        y = panel.y(lengths[-1]) + (-10 if norm == "post" else 20)
        parts.append(write(panel.right, y, f"{norm}-norm", "end", COLOURS[norm]))
    return parts


def main(folder: Path = FIGURES) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = find_out()
    (folder / f"{NAME}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (folder / f"{NAME}.svg").write_text(draw(found), encoding="utf-8")
    print(f"The picture is {folder / f'{NAME}.svg'}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
