"""Pictures of memories: fast weights, Transformer-XL's segments, and the look-up of product keys."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from softlook.blocks.product_key import ProductKeys
from softlook.blocks.segments import SegmentCache
from softlook.lens.figures.color import role, tint
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import random, seed
from softlook.lens.figures.matrix import matrix, vector
from softlook.lens.figures.picture import Picture, column, grid, label, overlay, row
from softlook.lens.figures.shapes import Path, Rect
from softlook.lens.figures.tokens import SIZES
from softlook.models.transformer_xl import TransformerXL, TransformerXLConfig
from softlook.ops.delta_rule import delta_rule
from softlook.ops.fast_weights import LinearAttentionState, fast_weights

SMALL = SIZES["small"]
SEGMENT, SEGMENTS, DEPTH = 4, 4, 2
WRITES = (("first key", 0), ("second key", 1), ("first key again", 0))
"""What the fast weights store, one after the other: the name of the write, and its key."""


def fast_weights_by_rule() -> Figure:
    """The matrix of fast weights after each of three writes, by summation and by the delta rule."""
    keys = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.5, -0.5, 0.5, -0.5]])  # orthogonal, of length 1
    values = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 1.0], [-1.0, 1.0, 0.0]])
    rules = {"sum": fast_weights, "delta rule": partial(delta_rule, rate=torch.ones(1, 1, 1))}
    states = {name: _write_all(rule, keys, values) for name, rule in rules.items()}
    largest = max(float(one.abs().max()) for one in states.values())
    read = {name: keys[0] @ matrices[-1] for name, matrices in states.items()}
    cells = [label("write"), *_writes(keys, values), label("first key × matrix")]
    for name, matrices in states.items():
        drawn = [matrix(one, "weight", maximum=largest, side=30, digits=1, name="weight") for one in matrices]
        result = vector(read[name], "output", maximum=2.0, side=30, digits=1, name="value read")
        cells += [label(name, bold=True), *drawn, result]
    found = "; ".join(f"{name}: {_numbers(value)}" for name, value in read.items())
    return Figure(
        "Fast weights: writing into a matrix",
        "Three values are written into a matrix of 4 by 3 weights, the third under the key of the first. Then the "
        f"first key, whose latest value is {_numbers(values[-1])}, is looked up. Found by {found}.",
        grid(cells, 5, gap=20),
        {"keys": keys, "values": values, **states, **{f"read by {name}": one for name, one in read.items()}},
        subtitle="Under a key that is used again, the sum adds the new value to the old one; the delta rule replaces "
        "it.",
    )


def _write_all(rule: Callable[..., Tensor], keys: Tensor, values: Tensor) -> Tensor:
    """The matrix after each write (writes, key width, value width)."""
    state, after = LinearAttentionState(), []
    for (_, key), value in zip(WRITES, values, strict=True):
        written = keys[key].view(1, 1, 1, -1)
        rule(written, key=written, value=value.view(1, 1, 1, -1), state=state)
        assert state.weights is not None
        after.append(state.weights[0, 0].clone())
    return torch.stack(after)


def _writes(keys: Tensor, values: Tensor) -> list[Picture]:
    """The key and the value of each write."""
    return [
        column(
            label(name),
            vector(keys[key], "key", maximum=2.0, side=30, digits=1, name="key"),
            vector(value, "value", maximum=2.0, side=30, digits=1, name="value"),
            gap=4,
        )
        for (name, key), value in zip(WRITES, values, strict=True)
    ]


def _numbers(values: Tensor) -> str:
    return ", ".join(str(round(value)) for value in values.tolist())


def transformer_xl() -> Figure:
    """Which inputs reach which outputs, with and without a memory of the segment before."""
    with seed(3):
        config = TransformerXLConfig(vocab_size=20, dim=32, depth=DEPTH, heads=2, hidden=64, dropout=0.0)
        model = TransformerXL(config).eval()
    reach = {
        "segments alone": _reach(model, memory=False),
        "with the states of the segment before": _reach(model, memory=True),
    }
    drawings = [
        column(
            label(name, bold=True),
            label("output ↓  input →", "soft", size=SMALL),
            _segments(cells),
            label(f"the last output reads {int(cells[-1].sum())} inputs", "soft", size=SMALL),
            gap=8,
        )
        for name, cells in reach.items()
    ]
    return Figure(
        "Transformer-XL reads over the borders of segments",
        f"Two grids of {SEGMENT * SEGMENTS} outputs and inputs, cut into segments of {SEGMENT}. Left, outputs depend "
        "on "
        f"inputs of their own segment only; right, on up to {DEPTH} segments before as well.",
        row(*drawings, gap=60),
        dict(reach.items()),
        subtitle=f"{DEPTH} layers, segments of {SEGMENT}, memory of {SEGMENT} states per layer. Each layer reaches "
        "one segment further.",
        caption="Measured: one input token is replaced at a time; filled are the outputs that change.",
    )


def _reach(model: TransformerXL, *, memory: bool) -> Tensor:
    """For each output, the inputs whose replacement changes it."""
    length = SEGMENT * SEGMENTS
    ids = torch.randint(20, (1, length), generator=torch.Generator().manual_seed(1))
    plain, cells = _run(model, ids, memory), torch.zeros(length, length, dtype=torch.bool)
    for position in range(length):
        changed = ids.clone()
        changed[0, position] = (ids[0, position] + 7) % 20
        cells[:, position] = (_run(model, changed, memory) != plain).any(-1)[0]
    return cells


@torch.no_grad()
def _run(model: TransformerXL, ids: Tensor, memory: bool) -> Tensor:
    cache = SegmentCache(SEGMENT) if memory else None
    return torch.cat([model(part, cache=cache) for part in ids.split(SEGMENT, 1)], 1)


def _segments(cells: Tensor) -> Picture:
    """Cells, with lines between the segments."""
    side, size = 16.0, 16.0 * SEGMENT * SEGMENTS
    marks: list[Rect | Path] = []
    for i, flags in enumerate(cells.tolist()):
        for j, flag in enumerate(flags):
            own = i // SEGMENT == j // SEGMENT
            fill = tint("query" if own else "output", 0.75) if flag else tint("input", 0.06)
            marks.append(Rect(x=j * side + 1, y=i * side + 1, width=side - 2, height=side - 2, radius=2, fill=fill))
    for n in range(1, SEGMENTS):
        at = n * SEGMENT * side
        marks.append(Path(commands=(("M", (at, 0.0)), ("L", (at, size))), stroke=role("ink"), dash="3 3"))
        marks.append(Path(commands=(("M", (0.0, at)), ("L", (size, at))), stroke=role("ink"), dash="3 3"))
    return Picture(size, size, tuple(marks))


SUBKEYS, TOP = 6, 3


def product_keys() -> Figure:
    """The look-up of product keys: two short lists of scores stand for all their sums."""
    with seed(12):
        keys = ProductKeys(1, 8, n_subkeys=SUBKEYS, top_k=TOP)
    query = random(1, 1, 8, number=13)
    with torch.no_grad():
        halves = query[0, 0].unflatten(0, (2, -1))
        scores = torch.einsum("ad,asd->as", halves, keys.subkeys[0])
        selected = keys(query)
    sums = scores[0][:, None] + scores[1][None]
    slots, weights = selected.slots[0, 0], selected.weights[0, 0]
    side, best = 36.0, [one.topk(TOP).indices.tolist() for one in scores]
    largest = float(sums.abs().max())
    compared = torch.ones(SUBKEYS, SUBKEYS, dtype=torch.bool)
    compared[torch.tensor(best[0])[:, None], torch.tensor(best[1])] = False
    grid = overlay(
        matrix(sums, "weight", maximum=largest, side=side, digits=2, hidden=compared, name="sum"),
        *(_frame(int(slot) // SUBKEYS, int(slot) % SUBKEYS, side) for slot in slots),
    )
    first = vector(
        scores[0], "query", maximum=largest, side=side, digits=1, vertical=True, name="score of a first subkey"
    )
    second = vector(scores[1], "key", maximum=largest, side=side, digits=1, name="score of a second subkey")
    table = overlay(second.at(side + 10, 0), first.at(0, side + 10), grid.at(side + 10, side + 10))
    slot_rows = [
        row(
            label(f"slot {slot}", mono=True),
            label(f"{weight:.2f}", "weight-ink", bold=True),
            label("× value", "value-ink"),
            gap=12,
        )
        for slot, weight in zip(slots.tolist(), weights.tolist(), strict=True)
    ]
    notes = column(
        label("one query, two halves", bold=True),
        label("first half · first subkeys (rows)", "query-ink"),
        label("second half · second subkeys (columns)", "key-ink"),
        label(f"{2 * SUBKEYS} comparisons instead of {SUBKEYS**2}", "soft"),
        label(f"{TOP} best of each: {TOP**2} sums", "soft"),
        label(f"{TOP} best slots, softmax", "soft"),
        *slot_rows,
        gap=8,
    )
    return Figure(
        "Product keys: the best of many keys from few comparisons",
        f"A grid of {SUBKEYS} by {SUBKEYS} slots. Each has the score of its row plus that of its column. Only the "
        f"{TOP**2} sums of the best rows and columns are computed; the {TOP} largest are framed: "
        + ", ".join(f"slot {s} with weight {w:.2f}" for s, w in zip(slots.tolist(), weights.tolist(), strict=True))
        + ".",
        row(table, notes, gap=44),
        {"scores": scores, "slots": slots, "weights": weights, "sums": sums},
        subtitle="A key is a pair of subkeys, and its score is the sum of two scores. Hatched sums are never computed.",
    )


def _frame(i: int, j: int, side: float) -> Picture:
    rect = Rect(x=j * side, y=i * side, width=side, height=side, radius=4, stroke=role("output-ink"), stroke_width=2.5)
    return Picture(0, 0, (rect,))
