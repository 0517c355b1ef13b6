"""`python -m benchmarks.word_senses`: static and contextual vectors of words with two meanings.

A small masked language model reads generated sentences in which "bank", "bat" and "spring" each have two meanings. One
minute on one CPU core, offline; writes the figure of docs/book/22-embeddings.md and its numbers.
"""

import random
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.recorded import Results, record
from softlook.lens.figures.color import role
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.picture import Picture, column, label, row
from softlook.lens.figures.shapes import Circle, Mark, Rect
from softlook.models import Bert, BertConfig

NAME = "word_senses"
CONTEXTS = {
    "bank": (
        ["money", "loan", "account", "interest", "cash", "deposit"],
        ["river", "water", "boat", "fish", "reeds", "mud"],
    ),
    "bat": (["ball", "game", "pitch", "player", "score", "team"], ["wings", "cave", "night", "insects", "dark", "fly"]),
    "spring": (
        ["flowers", "march", "warm", "rain", "season", "green"],
        ["metal", "coil", "steel", "tension", "lever", "machine"],
    ),
}
FRAMES = ("the {a} near the {word} and the {b}", "a {word} with {a} and {b}", "{a} or {b} by this {word}")
STEPS, BATCH, DIM, DEPTH, EXAMPLES = 600, 64, 32, 2, 40
MASK = "<mask>"


def sentence(word: str, sense: int, rng: random.Random, frames: Sequence[str] = FRAMES) -> list[str]:
    """A sentence with the word in one of its senses."""
    a, b = rng.sample(CONTEXTS[word][sense], 2)
    return rng.choice(frames).format(word=word, a=a, b=b).split()


def vocabulary() -> dict[str, int]:
    words = {word for frame in FRAMES for word in frame.split() if "{" not in word} | set(CONTEXTS)
    words |= {word for senses in CONTEXTS.values() for sense in senses for word in sense}
    return {word: number for number, word in enumerate((MASK, *sorted(words)))}


def encode(sentences: list[list[str]], ids: dict[str, int]) -> tuple[Tensor, Tensor]:
    """Ids, padded with zeros on the right, and where there is a word."""
    length = max(map(len, sentences))
    rows = [[ids[word] for word in words] + [0] * (length - len(words)) for words in sentences]
    return torch.tensor(rows), torch.tensor([[n < len(words) for n in range(length)] for words in sentences])


def train(ids: dict[str, int]) -> Bert:
    """A masked language model: one word of each sentence is hidden."""
    torch.manual_seed(0)
    rng = random.Random(0)
    model = Bert(BertConfig(vocab_size=len(ids), context=16, dim=DIM, depth=DEPTH, heads=4, dropout=0.0, token_types=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        chosen = [sentence(rng.choice(list(CONTEXTS)), rng.randrange(2), rng) for _ in range(BATCH)]
        hidden = torch.tensor([rng.randrange(len(words)) for words in chosen])
        inputs, present = encode(chosen, ids)
        targets = inputs.gather(1, hidden[:, None])[:, 0]
        logits = model(inputs.scatter(1, hidden[:, None], 0), padding_mask=present)
        optimizer.zero_grad()
        F.cross_entropy(logits[torch.arange(BATCH), hidden], targets).backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def states_of(model: Bert, word: str, ids: dict[str, int]) -> tuple[list[Tensor], Tensor]:
    """The vectors of a word in new sentences: of the embedding and after each block; and the sense in each sentence.

    The word is at the same position in all of them, which its vectors would else show above all.
    """
    rng = random.Random(1)
    senses = torch.arange(2 * EXAMPLES) % 2
    chosen = [sentence(word, int(sense), rng, FRAMES[:1]) for sense in senses]
    inputs, present = encode(chosen, ids)
    where = torch.tensor([words.index(word) for words in chosen])
    found = [model.token_embedding(inputs)]
    hooks = [block.register_forward_hook(lambda m, args, output: found.append(output)) for block in model.blocks]
    model(inputs, padding_mask=present)
    for hook in hooks:
        hook.remove()
    return [states[torch.arange(len(chosen)), where] for states in found], senses


def separation(states: Tensor, senses: Tensor) -> float:
    """The share of sentences whose nearest other vector has the same sense; chance for equal vectors."""
    distance = torch.cdist(states, states).fill_diagonal_(torch.inf)
    if float(distance[0, 1]) < 1e-6:
        return 0.5
    return (senses[distance.argmin(1)] == senses).float().mean().item()


def plane(states: Tensor) -> Tensor:
    """The two directions of largest variance."""
    centered = states - states.mean(0)
    _, _, directions = torch.linalg.svd(centered, full_matrices=False)
    return centered @ directions[:2].T


def run_all() -> Results:
    """Coordinates and separation of every word at every layer."""
    ids = vocabulary()
    model = train(ids)
    words = {}
    for word in CONTEXTS:
        states, senses = states_of(model, word, ids)
        words[word] = {
            "points": [[[round(x, 3) for x in point] for point in plane(one).tolist()] for one in states],
            "separation": [round(separation(one, senses), 3) for one in states],
        }
    print({word: found["separation"] for word, found in words.items()})
    return {"settings": {"dim": DIM, "depth": DEPTH, "steps": STEPS, "sentences": 2 * EXAMPLES}, "words": words}


def scatter(points: list[list[float]], side: float = 150) -> Picture:
    """Points of two senses, alternating, in a square."""
    largest = max((abs(x) for point in points for x in point), default=0.0) or 1.0
    marks: list[Mark] = [Rect(x=0, y=0, width=side, height=side, fill=role("paper"), stroke=role("edge"))]
    for number, (x, y) in enumerate(points):
        left, top = side / 2 * (1 + 0.9 * x / largest), side / 2 * (1 - 0.9 * y / largest)
        marks.append(Circle(x=left, y=top, r=3.5, fill=role(("query", "key")[number % 2])))
    return Picture(side, side, tuple(marks))


def draw(results: Results) -> Figure:
    """The vectors of each word: one static vector, then one for each sentence after every block."""
    rows = []
    for word, found in results["words"].items():
        titles = ["word vector", *(f"after block {n + 1}" for n in range(results["settings"]["depth"]))]
        parts = [
            column(label(f"{word}: {title}", bold=True), scatter(points), gap=6)
            for title, points in zip(titles, found["points"], strict=True)
        ]
        rows.append(row(*parts, gap=36))
    last = ", ".join(f"{word} {found['separation'][-1]:.0%}" for word, found in results["words"].items())
    return Figure(
        "One word, two meanings: static and contextual vectors",
        "The vectors of three words in 80 sentences each, on the two directions of largest variance. The word vector "
        "is one point; after two blocks the meanings of bank and bat lie apart. Nearest vector of the same meaning: "
        f"{last}.",
        column(*rows, gap=18),
        results,
        subtitle="Blue and orange: the two meanings of a word, which the model has to find.",
        caption=f"Masked language model of {results['settings']['depth']} blocks of width "
        f"{results['settings']['dim']}, generated sentences.",
    )


if __name__ == "__main__":
    record(NAME, run_all, draw)
