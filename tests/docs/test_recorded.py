"""Recorded figures of the book are drawn from their stored numbers, and their pages quote those numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import associative_recall, image_attention, norm_axes, path_length, word_senses
from benchmarks.recorded import FIGURES, load
from softlook.lens.figures.figure import Figure

DOCS = Path(__file__).parents[2] / "docs"
DRAW: dict[str, Callable[[dict[str, Any]], Figure]] = {
    one.NAME: one.draw for one in (associative_recall, image_attention, norm_axes, path_length, word_senses)
}


@pytest.mark.parametrize("name", DRAW)
def test_the_figure_is_drawn_from_its_stored_numbers(name: str) -> None:
    svg = DRAW[name](load(name)).svg()
    assert svg == (FIGURES / f"{name}.svg").read_text(encoding="utf-8"), f"run: python -m benchmarks.{name} --draw"
    ElementTree.fromstring(svg)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def row_of(text: str, *cells: str) -> bool:
    """Whether a page has a table row with these cells."""
    return f"| {' | '.join(cells)} |" in text


def test_attention_recalls_every_pair_and_fixed_states_do_not() -> None:
    results = load("associative_recall")
    means = {name: [sum(one) / len(one) for one in rows] for name, rows in results["accuracy"].items()}
    assert min(means["attention"]) > 0.99
    for better, worse in (("attention", "delta rule"), ("delta rule", "sum"), ("sum", "GRU"), ("sum", "convolution")):
        assert means[better][-1] > means[worse][-1] + 0.1
    text = page("book/17-memory-and-selection.md")
    for name, values in means.items():
        assert row_of(text, name, *(f"{values[results['pairs'].index(n)]:.0%}" for n in (4, 16, 64)))


def test_only_attention_learns_at_every_distance() -> None:
    results, text = load("path_length"), page("book/15-gradients-and-paths.md")
    names = {"RNN": "RNN", "GRU": "GRU", "dilated convolutions": "convolution", "attention": "attention"}
    final = {name: path_length.final_accuracy(results, name) for name in names.values()}
    assert min(final["attention"]) > 0.99
    assert all(final[name][0] > 0.99 and max(final[name][2:]) < 0.25 for name in ("RNN", "GRU", "convolution"))
    for shown, name in names.items():
        cells = [f"{final[name][results['lengths'].index(n)]:.0%}" for n in (4, 8, 16, 64)]
        assert row_of(text, shown, *cells, f"{results['operations'][name][-1] / 1e6:.2g} million")


def test_the_page_on_images_quotes_the_recorded_scores() -> None:
    results, text = load("image_attention"), page("guide/images.md")
    scores, linear = results["scores"], results["baselines"]["linear model of pixels"]
    assert row_of(text, "ViT, defaults", f"{scores['validation']:.1%}", f"{scores['test']:.1%}")
    assert f"| linear model of the pixels | {linear:.1%} | |" in text


def test_every_norm_learns_and_the_page_quotes_the_losses() -> None:
    results, text = load("norm_axes"), page("book/21-norms.md")
    for norm in norm_axes.NORMS:
        large, small = (norm_axes.final_loss(results, norm, batch) for batch in (64, 4))
        assert large < 0.4 and row_of(text, norm, f"{large:.2f}", f"{small:.2f}")


def test_meanings_are_apart_in_context_only_and_the_page_says_how_far() -> None:
    results, text = load("word_senses"), page("book/22-embeddings.md")
    for word, found in results["words"].items():
        first, *_, last = found["separation"]
        assert first == 0.5 and last > 0.8
        assert row_of(text, word, *(f"{share:.0%}" for share in found["separation"]))


def test_the_chapter_on_memories_quotes_the_recorded_comparison() -> None:
    results, text = load("memories"), page("book/25-memories.md")
    models = results["models"]
    assert {round(one["parameters"], -3) for one in models.values()} == {487_000}
    keys, persistent = models["product keys"], models["all-attention"]
    assert f"| feed-forward | {models['feed-forward']['bits_per_byte']:.2f} | | | |" in text
    used = [f"{keys['bits_per_byte']:.2f}", f"{keys['memory_usage']:.0%}", f"{keys['memory_kl']:.2f}"]
    assert f"| product keys | {' | '.join(used)} | |" in text
    shared = f"{persistent['memory_attention']:.0%}"
    used = [f"{persistent['bits_per_byte']:.2f}", f"{persistent['memory_usage']:.0%}", f"{persistent['memory_kl']:.2f}"]
    assert row_of(text, "all-attention", *used, shared)
    assert row_of(text, "bits per byte", *(f"{value:.3f}" for value in results["transformer_xl"].values()))
