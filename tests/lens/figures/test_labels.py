"""Labels never overlap and stay on the page, for any number and kind of tokens."""

import pytest
import torch

from softlook.lens import attention_figure, heads_figure
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.maps import alignment_figure, head_map_figure, twins_figure
from softlook.lens.figures.picture import overlay
from softlook.lens.figures.scores import contributions_figure, head_scores_figure
from softlook.lens.figures.shapes import Text, overlap

KINDS = {
    "short": ["it", "a", "."],
    "long": ["incomprehensibilities", "internationalization", "counterrevolutionary"],
    "CJK": ["注意力", "変換器の注意機構は長い", "주의"],
    "right-to-left": ["שלום", "עולם", "مرحبا بالعالم"],
    "emoji": ["😀", "👩‍👩‍👧‍👦", "🇩🇪 🎉🎉🎉"],
    "hostile": ["<script>alert(1)</script>", "\x1b[31m\u202e", " \n\t"],
}
COUNTS = (3, 16, 64)


def colliding(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes overlap."""
    texts = [text for text in figure.texts if text.words]
    boxes = [_bounds(text) for text in texts]
    found = []
    for i, one in enumerate(texts):
        for j in range(i + 1, len(texts)):
            (a, b, c, d), (e, f, g, h) = boxes[i], boxes[j]
            if a < g and e < c and b < h and f < d and overlap(one, texts[j]):
                found.append((one.words, texts[j].words))
    return found


def outside(figure: Figure) -> list[str]:
    """Texts that reach beyond the page."""
    page = figure.page
    return [
        text.words
        for text in page.texts
        for left, top, right, bottom in [_bounds(text)]
        if left < 0 or top < 0 or right > page.width or bottom > page.height
    ]


def _bounds(text: Text) -> tuple[float, float, float, float]:
    xs, ys = zip(*text.corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def tokens(kind: str, count: int) -> list[str]:
    return (KINDS[kind] * count)[:count]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", COUNTS)
def test_labels_of_a_map_do_not_overlap(kind: str, count: int) -> None:
    words, weights = tokens(kind, count), torch.rand(count, count).softmax(-1)
    figure = attention_figure(weights, queries=words, keys=words, title=words[0], lanes={words[1]: torch.rand(count)})
    assert not colliding(figure) and not outside(figure)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", COUNTS[:2])
def test_labels_of_twins_and_alignments_do_not_overlap(kind: str, count: int) -> None:
    words, weights = tokens(kind, count), torch.rand(count, count).softmax(-1)
    for figure in (
        twins_figure(weights, weights.flip(0), first_tokens=words, second_tokens=[*words[:-1], "x"]),
        alignment_figure(weights[:2], source=words, target=words[:2], title="t"),
        heads_figure({words[0]: weights, words[1]: weights}, queries=words, keys=words, title=words[2]),
    ):
        assert not colliding(figure) and not outside(figure)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_head_maps_do_not_overlap(kind: str) -> None:
    words = tokens(kind, 16)
    layers = {name: torch.rand(12, 16, 16) for name in words[:3]}
    figure = head_map_figure(layers, queries=words, keys=words, title=words[0])
    assert not colliding(figure) and not outside(figure)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", COUNTS)
def test_labels_of_contributions_and_scores_do_not_overlap(kind: str, count: int) -> None:
    words = tokens(kind, count)
    layers = {f"{name} {n}": 1.0 for n, name in enumerate(words[:20])}
    for figure in (
        contributions_figure(layers, torch.randn(3, 12), torch.randn(count), tokens=words),
        head_scores_figure({f"{name} {n}": torch.randn(2, 4) for n, name in enumerate(words[:6])}),
    ):
        assert not colliding(figure) and not outside(figure)


def test_crowded_and_cut_labels_are_found() -> None:
    picture = attention_figure(torch.eye(2), queries=["a", "b"], keys=["a", "b"], title="t").picture
    doubled = overlay(picture, picture.at(3, 0))
    assert colliding(Figure("t", "d", doubled, {}))
    assert outside(Figure("t", "d", picture.at(-400, 0).sized(picture.width, picture.height), {}))
