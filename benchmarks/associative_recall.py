"""`python -m benchmarks.associative_recall`: five sequence layers, trained to look up values by their keys.

A sequence holds n pairs of a key and a value, then each key again without its value, in another order. Ten minutes on
one CPU core, offline; writes the figure of docs/book/17-memory-and-selection.md and its numbers.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.recorded import Results, record
from benchmarks.sequence_layers import COLORS, DIM, LAYERS, SequenceModel
from softlook.lens.figures.charts import Axis, Curve, line_chart
from softlook.lens.figures.figure import Figure

NAME = "associative_recall"
PAIRS = (4, 8, 16, 32, 64)
KEYS, VALUES = 96, 16
STEPS, BATCH, RATE, SEEDS = 500, 32, 5e-3, 2


def make_batch(pairs: int, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Ids of keys and values at each position (B, 2n, 2), and the values to answer with in the second half (B, n)."""
    keys = torch.rand(rows, KEYS, generator=generator).argsort(1)[:, :pairs]
    values = torch.randint(VALUES, (rows, pairs), generator=generator)
    order = torch.rand(rows, pairs, generator=generator).argsort(1)
    questions = torch.stack([keys.gather(1, order), torch.full_like(keys, KEYS + VALUES)], -1)
    return torch.cat([torch.stack([keys, KEYS + values], -1), questions], 1), values.gather(1, order)


def train(name: str, pairs: int, seed: int, steps: int = STEPS) -> float:
    """Train a model; returns the share of right answers on new sequences."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = SequenceModel(LAYERS[name](2 * pairs), KEYS + VALUES + 1, VALUES, 2 * pairs, positions=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        ids, answers = make_batch(pairs, BATCH, generator)
        optimizer.zero_grad()
        F.cross_entropy(model(ids)[:, pairs:].flatten(0, 1), answers.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        ids, answers = make_batch(pairs, 256, generator)
        return (model(ids)[:, pairs:].argmax(-1) == answers).float().mean().item()


def run_all() -> Results:
    """The accuracy of every layer by number of pairs, for each seed."""
    accuracy: dict[str, list[list[float]]] = {name: [] for name in LAYERS}
    for name, rows in accuracy.items():
        for pairs in PAIRS:
            rows.append([round(train(name, pairs, seed), 3) for seed in range(SEEDS)])
            print(f"{name}, {pairs} pairs: {rows[-1]}", flush=True)
    settings = {"dim": DIM, "keys": KEYS, "values": VALUES, "steps": STEPS, "batch": BATCH, "rate": RATE}
    return {"settings": settings, "pairs": list(PAIRS), "accuracy": accuracy}


def draw(results: Results) -> Figure:
    """The mean accuracy over the number of pairs."""
    means = {name: [sum(one) / len(one) for one in rows] for name, rows in results["accuracy"].items()}
    pairs, chance = results["pairs"], 1 / results["settings"]["values"]
    lines = {name: Curve(pairs, values, COLORS[name], dots=True) for name, values in means.items()}
    lines["chance"] = Curve([pairs[0], pairs[-1]], [chance, chance], "soft", dash="2 4")
    last = ", ".join(f"{name} {values[-1]:.0%}" for name, values in means.items())
    settings = results["settings"]
    return Figure(
        "Associative recall as the number of pairs grows",
        f"The share of values that are looked up correctly by their keys. With {pairs[-1]} pairs: {last}.",
        line_chart(
            lines,
            x_axis=Axis(pairs[0], pairs[-1], True, tuple(pairs)),
            y_axis=Axis(0.0, 1.0, False, (0.0, 0.25, 0.5, 0.75, 1.0)),
            x_label="pairs in the sequence",
            y_label="values recalled",
            width=430,
            height=230,
        ),
        results,
        subtitle="Attention keeps every pair; a state of fixed size does not.",
        caption=f"One layer of width {settings['dim']}, one head, and a feed-forward layer, trained for "
        f"{settings['steps']} steps of {settings['batch']} sequences for each number of pairs; mean of "
        f"{len(results['accuracy']['attention'][0])} runs.",
    )


if __name__ == "__main__":
    record(NAME, run_all, draw)
