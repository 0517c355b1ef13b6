"""Sizes for the data, the device and the time there is, each with a sentence that says why.

The rule behind it: a run can afford so many operations; a model of P weights takes 6 P of them for each token it
learns from. The largest model is taken that still reads enough tokens, and that the data are enough for.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from softlook.train.device import choose_precision

LADDER = (
    (64, 2, 2),
    (128, 2, 4),
    (128, 4, 4),
    (192, 4, 6),
    (256, 4, 4),
    (256, 6, 8),
    (384, 6, 6),
    (512, 6, 8),
    (512, 8, 8),
)
"""(dim, depth, heads), each about twice as large as the one before."""
ENOUGH = 2.0
"""Tokens that a model has to read for each weight, or it is too large for the time."""
MOST_WEIGHTS = 12
"""Weights for each token of the data, beyond which a model only learns them by heart."""
USUAL_MINUTES = {"cpu": 5.0, "mps": 10.0, "cuda": 10.0}
"""How long a run may take where nobody says."""
SHARE = {"cpu": 0.5, "mps": 0.2, "cuda": 0.08}
"""Of the operations that a device can do, how many small models use."""
MOST_READ = {"cpu": 40e6, "mps": 100e6, "cuda": 600e6}
"""Tokens that are read, over and over where need be; larger data are read three times."""

FEW_CHARACTERS = 100_000
"""Characters of text below which pieces of words cannot be learned."""


@dataclass(frozen=True)
class Room:
    """What there is to work with."""

    device: torch.device
    speed: float
    """Operations a second that a model gets out of the device."""
    minutes: float
    is_told: bool
    """Did somebody say how many minutes?"""

    @property
    def operations(self) -> float:
        return self.speed * 60 * self.minutes


@dataclass
class Chosen:
    """Values by full name, and sentences."""

    values: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


def room_of(device: torch.device, minutes: float | None, precision: Any = "auto") -> Room:
    """How much can be worked out here, by trying."""
    speed = SHARE.get(device.type, 0.1) * _operations(device, choose_precision(precision, device))
    return Room(device, speed, minutes or USUAL_MINUTES.get(device.type, 5.0), minutes is not None)


@dataclass(frozen=True)
class Size:
    """A model's sizes, and how often it will see the data."""

    dim: int
    depth: int
    heads: int
    epochs: float


def size_of(tokens: float, room: Room, *, layer: int = 12, vocab: int = 0) -> Size:
    """The largest rung that there is time for and that the data are enough for. `layer`: weights of a block / dim²."""
    best: Size | None = None
    for dim, depth, heads in LADDER:
        weights = layer * depth * dim * dim
        read = min(room.operations / (6 * (weights + vocab * dim)), most_read(tokens, room.device))
        if best is not None and (weights > MOST_WEIGHTS * tokens or read < ENOUGH * weights):
            break
        best = Size(dim, depth, heads, read / max(tokens, 1))
    assert best is not None
    return best


def most_read(tokens: float, device: torch.device) -> float:
    """Tokens that are worth reading: the data 40 times where they are few, three times where they are many."""
    return max(3 * tokens, min(40 * tokens, MOST_READ.get(device.type, 40e6)))


def dropout_of(epochs: float, most: float) -> float:
    """The more often the data are seen, the more has to be dropped."""
    return next((share for limit, share in ((5, 0.0), (12, 0.1), (25, 0.2)) if epochs < limit), most)


def vocab_of(characters: int, room: Room) -> int:
    """A token for every 400 characters of text, fewer where time is short: each costs some at every word."""
    most = 4000 if room.device.type == "cpu" and room.minutes <= 10 else 32000
    return int(min(max(round(characters / 400, -2), 500), most))


def sized(corpus_characters: int, asked: Any, room: Room, *, layer: int, dropout: float) -> tuple[Chosen, float]:
    """What is the same in most tasks: tokenizer, size, batch, learning rate; and about how many tokens there are."""
    small = corpus_characters < FEW_CHARACTERS
    kind = asked.get("tokens.kind") or ("characters" if small else "bpe")
    vocab = asked.get("tokens.vocab") or vocab_of(corpus_characters, room)
    tokens = corpus_characters / {"characters": 1.0, "bytes": 1.0}.get(kind, 3.5)
    size = size_of(tokens, room, layer=layer, vocab=vocab if kind == "bpe" else 100)
    dim = asked.get("size.dim") or size.dim
    chosen = Chosen()
    chosen.values = {
        "tokens.kind": kind,
        "tokens.vocab": vocab,
        "size.dim": dim,
        "size.depth": size.depth,
        "size.heads": size.heads,
        "size.dropout": dropout_of(size.epochs, dropout),
        "batch.tokens": int(min(max(tokens / 40, 256), 4096 if room.device.type == "cuda" else 2048)),
        "optim.lr": rate_of(dim),
        "optim.schedule": "cosine",
    }
    depth = asked.get("size.depth") or size.depth
    chosen.said.append(
        f"About {tokens:,.0f} tokens ({kind}) to learn from, and {room.minutes:g} minutes on {room.device.type}: "
        f"{depth} blocks of width {dim}."
    )
    return chosen, tokens


def rate_of(dim: int) -> float:
    """Wide models want smaller steps."""
    return float(f"{1e-3 * min(math.sqrt(256 / dim), 2.0):.1g}")


def warmup_of(steps: int, norm: str | None = None) -> int:
    """A tenth of the way; a quarter with norms behind the layers, which learn little where they are hurried.

    >>> warmup_of(1000), warmup_of(1000, "post")
    (100, 250)
    """
    return max(min(steps // 4, 4000) if norm == "post" else min(steps // 10, 1000), 1)


def timed(pace: float, reads: float, batch: int, room: Room, told: Mapping[str, Any]) -> Chosen:
    """How many steps fit, and what follows from that; `pace` is seconds for each step, `reads` tokens worth reading."""
    wanted = max(int(reads / batch), 100)
    fitting = max(int(0.92 * 60 * room.minutes / pace), 20)
    limited = room.is_told or room.device.type == "cpu"
    steps = int(told.get("training.steps") or (min(wanted, fitting) if limited else wanted))
    looks = max(steps // 10, min(int(30 / pace), steps // 4), 1)
    chosen = Chosen()
    chosen.values = {
        "training.steps": steps,
        "training.evaluate_every": looks,
        "training.save_every": looks,
        "training.report_every": max(min(int(2 / pace), steps // 20), 1),
        "training.average": round(min(max(1 - 20 / steps, 0.0), 0.9995), 4),
        "optim.warmup": warmup_of(steps, told.get("size.norm")),
    }
    if limited and not room.is_told and fitting < wanted:
        chosen.values["training.minutes"] = room.minutes
        chosen.said.append(
            f"On this {room.device.type} a run is kept to {room.minutes:g} minutes; "
            "--training.minutes 60 gives it more time, and the model more size."
        )
    chosen.said.append(f"{steps:,} steps of about {pace:.2g} s: {spoken(steps * pace)}, or less.")
    return chosen


def spoken(seconds: float) -> str:
    """A time as one says it.

    >>> spoken(42), spoken(150), spoken(9000)
    ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _operations(device: torch.device, kind: torch.dtype) -> float:
    """Operations a second, in multiplying matrices: the best of many short tries, as others may be at work too."""
    size = 512 if device.type == "cpu" else 4096
    matrix = torch.randn(size, size, device=device).to(kind)
    quickest, over = math.inf, time.monotonic() + 0.15
    while time.monotonic() < over or not math.isfinite(quickest):
        began = time.monotonic()
        (matrix @ matrix)[0, 0].item()  # asking for a number waits for the device
        quickest = min(quickest, time.monotonic() - began)
    return 2 * size**3 / quickest
