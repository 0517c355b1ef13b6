"""Alignment: Bahdanau's attention learns which source word each target word translates, without supervision.

An RNNsearch model is trained on an artificial language whose alignment is known. Each word is spelled backwards;
adjectives follow their noun, an adverb follows the first noun phrase, and the verb is last: "today red house meets
small dog" becomes "esuoh der yadot god llams steem". Every word is one token, so the model cannot see its letters.
Takes half a minute on one CPU core, offline. Writes `alignment.svg`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.blocks import AttentionCore
from softlook.lens import attention_figure
from softlook.models import RNNSearch
from softlook.recipes import TranslationConfig, train_translation
from softlook.recipes.config.schema import (
    TokenizerConfig,
    TranslationBatchConfig,
    TranslationModelConfig,
    TranslationRegConfig,
)
from softlook.recipes.inference.translation import translate_texts
from softlook.tokens import TextTokenizer
from softlook.train import OptimizerConfig, TrainingConfig

WORDS = {
    "noun": """
        house dog cat bird tree river king horse child ship garden stone wolf baker island farmer window candle bridge
        mountain teacher forest spider kitchen queen village doctor mirror tower sailor
    """,
    "adjective": """
        red small old quick green happy tired round silent young heavy bright hungry gentle clever strange wooden narrow
        golden lonely
    """,
    "verb": """
        meets likes hears finds follows paints forgets visits carries draws helps watches feeds greets misses praises
        remembers avoids calls trusts
    """,
    "adverb": "today often never gladly slowly always sometimes perhaps",
}
LEXICON = {word_class: words.split() for word_class, words in WORDS.items()}


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the index of the source word of each target word."""

    words: tuple[str, ...]
    order: tuple[int, ...]

    @property
    def source(self) -> str:
        return " ".join(self.words)

    @property
    def target(self) -> str:
        return " ".join(self.words[index][::-1] for index in self.order)


def make_sentence(rng: random.Random) -> Sentence:
    """Subject, verb and object; subject and object may have adjectives, and the sentence may start with an adverb.

    Words are not repeated, so the alignment is unique. The translation does not start with the adverb: the decoder is
    initialized with the last state of the backward encoder, which knows the first source word without attention.
    """
    adjectives, nouns = rng.sample(LEXICON["adjective"], 4), rng.sample(LEXICON["noun"], 2)
    first, second = rng.randint(0, 2), rng.randint(0, 2)
    adverb = [rng.choice(LEXICON["adverb"])] if rng.random() < 0.5 else []
    subject, object_ = [*adjectives[:first], nouns[0]], [*adjectives[2 : 2 + second], nouns[1]]
    verb = len(adverb) + len(subject)
    order = [*range(verb - 1, len(adverb) - 1, -1), *range(len(adverb)), *range(verb + len(object_), verb, -1), verb]
    return Sentence((*adverb, *subject, rng.choice(LEXICON["verb"]), *object_), tuple(order))


def make_sentences(seed: int, count: int) -> list[Sentence]:
    rng = random.Random(seed)
    return [make_sentence(rng) for _ in range(count)]


def train(sentences: Sequence[Sentence], folder: Path, *, steps: int = 400) -> tuple[RNNSearch, TextTokenizer]:
    """Train like `softlook train translate --arch rnn_search` with these options."""
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{one.source}\t{one.target}\n" for one in sentences), encoding="utf-8")
    config = TranslationConfig(
        data=(data,),
        run_dir=folder / "run",
        arch="rnn_search",
        tokenizer=TokenizerConfig(type="words", vocab_size=200),
        model=TranslationModelConfig(dim=64, hidden=96, dropout=0.1),
        batch=TranslationBatchConfig(max_tokens=1000),
        reg=TranslationRegConfig(label_smoothing=0.0),
        optim=OptimizerConfig(lr=3e-3, schedule="cosine", warmup=40),
        training=TrainingConfig(max_steps=steps, evaluate_every=steps, save_every=steps, device="cpu"),
    )
    result = train_translation(config)
    assert isinstance(result.model, RNNSearch)
    return result.model, result.tokenizer


@torch.no_grad()
def alignment(model: RNNSearch, tokenizer: TextTokenizer, source: str, target: str) -> Float[Tensor, "T S"]:
    """The attention weights of each target word over the source words; the last column is the end of the source."""
    rows: list[Tensor] = []

    def record(module: AttentionCore, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        rows.append(module.weights(query, key, *rest)[0, 0, 0])

    source_ids, target_ids = tokenizer.encode([source, target])
    hook = model.decoder.align.core.register_forward_hook(record)
    try:
        model.eval()(
            torch.tensor([[*source_ids, tokenizer.eos_id]]), torch.tensor([[tokenizer.bos_id, *target_ids[:-1]]])
        )
    finally:
        hook.remove()
    return torch.stack(rows)


def count_aligned(model: RNNSearch, tokenizer: TextTokenizer, sentences: Sequence[Sentence]) -> tuple[int, int]:
    """The number of target words whose largest weight is on their source word, and the number of all target words."""
    aligned = total = 0
    for one in sentences:
        largest = alignment(model, tokenizer, one.source, one.target).argmax(1).tolist()
        aligned += sum(index == expected for index, expected in zip(largest, one.order, strict=True))
        total += len(one.order)
    return aligned, total


def main() -> None:
    with TemporaryDirectory() as folder:
        model, tokenizer = train(make_sentences(0, 3000), Path(folder))
    seen = {one.source for one in make_sentences(0, 3000)}
    unseen = list(islice((one for one in make_sentences(1, 400) if one.source not in seen), 200))
    translations = translate_texts(model, tokenizer, [one.source for one in unseen])
    exact = sum(text == one.target for text, one in zip(translations, unseen, strict=True))
    aligned, total = count_aligned(model, tokenizer, unseen)
    print(f"{exact} of {len(unseen)} unseen sentences are translated correctly.")
    print(f"{aligned} of {total} target words ({aligned / total:.1%}) attend most to their source word.")
    longest = max(unseen, key=lambda one: len(one.words))
    weights = alignment(model, tokenizer, longest.source, longest.target)[:, :-1]
    figure = attention_figure(weights, queries=longest.target.split(), keys=longest.words, title=longest.source)
    figure.save("alignment.svg")
    print(f"The attention map of {longest.source!r} is in alignment.svg")


if __name__ == "__main__":
    main()
