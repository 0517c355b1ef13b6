"""Picture of one head and two: what "it" attends to in a model that was trained on its meaning."""

import json
from pathlib import Path
from typing import Any

import torch

from softlook.lens.figures.figure import Figure
from softlook.lens.figures.matrix import matrix
from softlook.lens.figures.picture import Picture, column, label, row
from softlook.lens.figures.tokens import SIZES

RESULTS = Path(__file__).with_name("pronoun.json")
"""Written by `examples/pronoun.py`, which trains the two models."""


def pronoun() -> Figure:
    """One head and two heads on "The animal didn't cross the road because it was too tired / wide"."""
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    one, two = results["heads"]["1"], results["heads"]["2"]
    numbers, drawings = {}, []
    for index, words in enumerate(results["sentences"]):
        weights = {
            f"{heads}/{path}": torch.tensor(layer[index])
            for heads, model in results["heads"].items()
            for path, layer in model["weights"].items()
        }
        numbers[words[-1]] = weights
        drawings.append(_sentence(words, weights, has_names=index == 0))
    settings = results["settings"]
    return Figure(
        "One head and two heads",
        "Two sentences that end in “tired” and in “wide”, with what “it” attends to in each layer of two models. "
        "With two "
        "heads, one head of the last layer looks at the noun that “it” stands for, the other at the property.",
        row(*drawings, gap=30, align="end"),
        numbers,
        subtitle="What “it” attends to. With “tired” it is the animal, with “wide” the road. Two heads look at two "
        "words at "
        "once; one head must share its weight, or take turns over the layers.",
        caption=f"Two models of {settings['depth']} layers, trained on {settings['training']} generated sentences to "
        "name the "
        "noun and the property at “it”; only “it” may read other words. Right in "
        f"{one['accuracy']:.0%} (one head) and {two['accuracy']:.0%} (two heads) of {settings['held_out']} other "
        "sentences. "
        "By examples/pronoun.py.",
    )


def _sentence(words: list[str], weights: dict[str, torch.Tensor], *, has_names: bool) -> Picture:
    """A column for each word, a row for each head; the names of the rows only at the first sentence."""
    side, parts = 25.0, []
    for heads, title in (("1", "one head"), ("2", "two heads")):
        for layer in (0, 1):
            values = weights[f"{heads}/blocks.{layer}.attn"]
            names = [
                f"layer {layer + 1}" if heads == "1" else f"layer {layer + 1} head {n + 1}" for n in range(len(values))
            ]
            columns = () if parts else words
            squares = matrix(
                values, "weight", maximum=1.0, side=side, columns=columns, column_color="key-ink", name="weight"
            )
            labels = column(
                *(row(Picture(0, side), label(name, "soft", size=SIZES["small"]), gap=0) for name in names), gap=0
            )
            parts += [] if layer else [label(title if has_names else "", bold=True)]
            parts.append(row(labels.pad(left=92 - labels.width), squares, gap=8, align="end") if has_names else squares)
    return column(*parts, gap=6)
