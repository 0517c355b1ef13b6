"""What "it" refers to: two small Transformers, with one head and with two, learn it from generated sentences.

"The animal didn't cross the road because it was too tired" is about the animal, "... too wide" about the road. The
models read the sentence and answer at "it": which noun, and which property? Writes the attention of "it" as JSON, from
which `softlook figure pronoun` is drawn; less than a minute on one CPU core, offline:

    python examples/pronoun.py [FILE]
"""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from softlook import masks
from softlook.blocks import FeedForward, PreNormBlock, SelfAttention
from softlook.lens import attention_maps
from softlook.ops.positions import sinusoidal

FILE = Path(__file__).parents[1] / "src/softlook/lens/figures/gallery/pronoun.json"
CREATURES = ("animal", "dog", "horse", "cat", "child", "tourist", "cow", "fox")
LOCATIONS = ("road", "street", "river", "bridge", "field", "desert", "canal", "lake")
OF_CREATURES = ("tired", "scared", "old", "sick", "lazy", "hungry")
OF_LOCATIONS = ("wide", "busy", "long", "deep", "noisy", "narrow")
TEMPLATE = "The {creature} didn't cross the {place} because it was too {property}"
WORDS = sorted(set(TEMPLATE.format(creature="x", place="y", property="z").split()) - {"x", "y", "z"})
VOCABULARY = [*WORDS, *CREATURES, *LOCATIONS, *OF_CREATURES, *OF_LOCATIONS]
EXAMPLES = ("animal", "road", "tired"), ("animal", "road", "wide")
DIM, DEPTH, STEPS, BATCH, SEED = 32, 2, 400, 128, 0
Sentence = tuple[str, str, str]


@dataclass(frozen=True)
class Batch:
    """Tokens, and the answers at "it"."""

    ids: Tensor
    nouns: Tensor
    properties: Tensor


IT = TEMPLATE.split().index("it")
ONLY_IT = masks.from_function(lambda b, h, q, k: (q == k) | (q == IT))
"""Only "it" reads other words, so that all that it knows of them shows in its own attention."""


class PronounModel(nn.Module):
    """An encoder whose state at "it" answers two questions: which noun, and which property."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), DIM)
        self.blocks = nn.ModuleList(
            PreNormBlock(SelfAttention(DIM, heads=heads), FeedForward(DIM), lambda: nn.LayerNorm(DIM))
            for _ in range(DEPTH)
        )
        self.norm = nn.LayerNorm(DIM)
        self.to_noun, self.to_property = nn.Linear(DIM, len(VOCABULARY)), nn.Linear(DIM, len(VOCABULARY))

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(ids) + sinusoidal(ids.shape[1], DIM)
        for block in self.blocks:
            x = block(x, mask=ONLY_IT)
        it = self.norm(x[:, IT])
        return self.to_noun(it), self.to_property(it)


def tokens(sentence: Sentence) -> list[str]:
    creature, place, adjective = sentence
    return TEMPLATE.format(creature=creature, place=place, property=adjective).split()


def make_batch(sentences: Sequence[Sentence]) -> Batch:
    index = {word: number for number, word in enumerate(VOCABULARY)}
    ids = torch.tensor([[index[word] for word in tokens(one)] for one in sentences])
    nouns = torch.tensor(
        [index[creature if adjective in OF_CREATURES else place] for creature, place, adjective in sentences]
    )
    return Batch(ids, nouns, torch.tensor([index[adjective] for *_, adjective in sentences]))


def split() -> tuple[list[Sentence], list[Sentence]]:
    """All sentences, of which a fifth and the two examples are held out."""
    sentences = [(c, p, a) for c in CREATURES for p in LOCATIONS for a in (*OF_CREATURES, *OF_LOCATIONS)]
    random.Random(SEED).shuffle(sentences)
    held_out = [*EXAMPLES, *(one for one in sentences[: len(sentences) // 5] if one not in EXAMPLES)]
    return [one for one in sentences if one not in held_out], held_out


def train(heads: int, sentences: Sequence[Sentence]) -> PronounModel:
    torch.manual_seed(SEED)
    model, generator = PronounModel(heads), torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    whole = make_batch(sentences)
    for _ in range(STEPS):
        rows = torch.randint(len(sentences), (BATCH,), generator=generator)
        noun, adjective = model(whole.ids[rows])
        loss = nn.functional.cross_entropy(noun, whole.nouns[rows])
        loss = loss + nn.functional.cross_entropy(adjective, whole.properties[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def measure(model: PronounModel, held_out: Sequence[Sentence]) -> dict[str, Any]:
    """Accuracy on held-out sentences, and the attention of "it" in the two examples."""
    batch = make_batch(held_out)
    noun, adjective = model(batch.ids)
    right = (noun.argmax(-1) == batch.nouns) & (adjective.argmax(-1) == batch.properties)
    maps = attention_maps(model, make_batch(EXAMPLES).ids)
    weights = {
        path: [[[round(w, 4) for w in head[IT].tolist()] for head in one] for one in layer]
        for path, layer in maps.items()
    }
    answers = [VOCABULARY[number] for number in noun[: len(EXAMPLES)].argmax(-1).tolist()]
    return {"accuracy": round(float(right.double().mean()), 4), "answers": answers, "weights": weights}


def run_all() -> dict[str, Any]:
    training, held_out = split()
    results = {str(heads): measure(train(heads, training), held_out) for heads in (1, 2)}
    return {
        "sentences": [tokens(one) for one in EXAMPLES],
        "settings": {"dim": DIM, "depth": DEPTH, "steps": STEPS, "training": len(training), "held_out": len(held_out)},
        "heads": results,
    }


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    results = run_all()
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for heads, one in results["heads"].items():
        print(f"{heads} head(s): {one['accuracy']:.1%} of the held-out sentences; {one['answers']}")
