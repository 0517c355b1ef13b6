"""Figures of decoding: the beam tree, and how a translation is trained and written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from softlook.lens.figures.color import role, tint
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.graph import arrow
from softlook.lens.figures.matrix import matrix
from softlook.lens.figures.picture import Picture, column, label, overlay, row
from softlook.lens.figures.shapes import Mark, Rect, Text
from softlook.lens.figures.text import shorten_label, text_width, visible_label

ROW, BOX = 42.0, 24.0


@dataclass(frozen=True)
class BeamNode:
    """A token in a beam search: its step from 1, the index of the node it continues, and what became of it."""

    text: str
    step: int
    parent: int | None
    score: float
    """The sum of log-probabilities up to this token."""
    status: Literal["kept", "finished", "dropped"]


def beam_tree_figure(
    nodes: Sequence[BeamNode], *, source: str = "", title: str = "Beam search", beams: int = 0
) -> Figure:
    """The tree of a beam search: candidates of each step below one another, the best hypothesis in color.

    >>> nodes = [BeamNode("a", 1, None, -0.1, "kept"), BeamNode("b", 1, None, -2.3, "dropped"),
    ...          BeamNode(".", 2, 0, -0.2, "finished")]
    >>> beam_tree_figure(nodes)
    Figure('Beam search', 760 x ...)
    """
    picture, path = beam_tree(nodes)
    finished = [node for node in nodes if node.status == "finished"]
    words = "".join(nodes[index].text for index in path)
    return Figure(
        title,
        f"A tree of {len(nodes)} candidates over {max(node.step for node in nodes)} steps; {len(finished)} of them "
        "end a "
        f"hypothesis. The best is {words} with a log-probability of {nodes[path[-1]].score:.2f}.",
        picture,
        {"nodes": list(nodes), "best": path},
        subtitle=(f"Input: {source}. " if source else "")
        + (f"{beams} beams: at each step the {beams} best candidates stay." if beams else ""),
        caption="Number: sum of log-probabilities. Dashed: dropped. Double frame: end of a hypothesis. Colored: the "
        "best one.",
    )


def beam_tree(nodes: Sequence[BeamNode]) -> tuple[Picture, list[int]]:
    """The tree, and the indices of the nodes of its best hypothesis."""
    path = _best(nodes)
    steps: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        steps.setdefault(node.step, []).append(index)
    widths = {step: max(_box_width(nodes[n]) for n in members) for step, members in steps.items()}
    points: dict[int, tuple[float, float]] = {}
    x = 0.0
    for step in sorted(steps):
        for slot, index in enumerate(steps[step]):
            points[index] = (x, slot * ROW)
        x += widths[step] + 30
    edges, boxes = [], []
    for index, (left, top) in points.items():
        node, is_best = nodes[index], index in path
        if node.parent is not None:
            px, py = points[node.parent]
            start = (px + widths[nodes[node.parent].step], py + BOX / 2)
            edge = arrow(
                start,
                (left - 1, top + BOX / 2),
                "output" if is_best else "line",
                width=2.5 if is_best else 1.0,
                shape="curve",
                dash="3 3" if node.status == "dropped" else "",
                head=False,
            )
            edges.append(edge)
        boxes.append(_node(node, widths[node.step], is_best).at(left, top))
    height = ROW * max(map(len, steps.values()))
    return overlay(*edges, *boxes).sized(x - 30, height), path


def translation_figure(
    source: str,
    target: Sequence[str],
    probabilities: Sequence[float],
    nodes: Sequence[BeamNode],
    *,
    beams: int = 0,
    title: str = "Training and decoding a translation",
) -> Figure:
    """How a translation is trained, with the whole target at once, and decoded, with a tree of candidates.

    `target` ends with the end-of-sequence token; `probabilities` are those that the model gives to each of its tokens
    after the correct tokens before it.
    """
    inputs = ["<bos>", *target[:-1]]
    side = 40.0
    columns = [
        column(
            label(visible_label(shorten_label(one, 6)), "input-ink", mono=True),
            Picture(12, 20, arrow((6, 0), (6, 20)).marks),
            matrix(torch.tensor([[chance]]), "weight", maximum=1.0, side=side, digits=2, name="probability"),
            Picture(12, 20, arrow((6, 0), (6, 20)).marks),
            label(visible_label(shorten_label(word, 6)), "output-ink", mono=True, bold=True),
            gap=3,
            align="middle",
        )
        for one, word, chance in zip(inputs, target, probabilities, strict=True)
    ]
    names = column(
        label("input", "input-ink"), label("probability", "weight-ink"), label("target", "output-ink"), gap=30
    )
    tree, path = beam_tree(nodes)
    found = "".join(nodes[index].text for index in path)
    loss = -sum(torch.tensor(probabilities).log().tolist()) / len(probabilities)
    return Figure(
        title,
        f"Above: the target {''.join(target)} shifted by one as the input of the decoder, and the probability of "
        "each correct "
        f"token. Below: the tree of a beam search, whose best hypothesis is {found}.",
        column(
            label("Training: the correct tokens go in, all positions at once", bold=True),
            row(names, row(*columns, gap=10), gap=18),
            label("Decoding: its own tokens go in, one after the other", bold=True),
            tree,
            gap=16,
        ),
        {"target": list(target), "probabilities": list(probabilities), "nodes": list(nodes), "best": path},
        subtitle=f"Input of the encoder: {visible_label(source)}",
        caption=f"Training minimizes the mean of −log p, here {loss:.3f}. "
        + (f"Beam search with {beams} beams; numbers are sums of log-probabilities; " if beams else "")
        + "dashed: dropped; double frame: end of a hypothesis.",
    )


def _best(nodes: Sequence[BeamNode]) -> list[int]:
    """The nodes of the finished hypothesis with the best mean log-probability; without one, of the best node."""
    ends = [n for n, node in enumerate(nodes) if node.status == "finished"] or range(len(nodes))
    index: int | None = max(ends, key=lambda n: nodes[n].score / nodes[n].step)
    path: list[int] = []
    while index is not None:
        path.insert(0, index)
        index = nodes[index].parent
    return path


def _words(node: BeamNode) -> str:
    return visible_label(shorten_label(node.text, 10))


def _box_width(node: BeamNode) -> float:
    return max(text_width(_words(node), 13, mono=True) + 14, 36.0)


def _node(node: BeamNode, width: float, is_best: bool) -> Picture:
    """A token in a box, with its score below."""
    color = "output" if is_best else "input"
    edge = {"stroke": role(f"{color}-ink"), "dash": "3 3" if node.status == "dropped" else ""}
    marks: list[Mark] = [
        Rect(x=0, y=0, width=width, height=BOX, radius=4, fill=tint(color, 0.5 if is_best else 0.1), **edge)
    ]
    if node.status == "finished":
        marks.append(Rect(x=2.5, y=2.5, width=width - 5, height=BOX - 5, radius=2, stroke=role(f"{color}-ink")))
    ink = role("soft") if node.status == "dropped" else role("ink")
    score = f"{node.score:z.1f}".replace("-", "−")
    marks.append(Text(x=width / 2, y=16.5, words=_words(node), size=13, mono=True, anchor="middle", fill=ink))
    marks.append(Text(x=width / 2, y=BOX + 11.5, words=score, size=11, anchor="middle", fill=role("soft")))
    return Picture(width, BOX + 12, tuple(marks))
