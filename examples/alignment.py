"""Where a recurrent translator looks: Bahdanau's attention finds out which word comes from which, told by nobody.

It learns a made language whose true alignment is known. Each word is written backwards; adjectives follow their noun,
an adverb follows the first of them, and the verb comes last: "today red house meets small dog" becomes
"esuoh der yadot god llams steem". Words are whole to the model, which cannot see their letters. Half a minute on one
CPU core, offline. Writes `alignment.svg`.
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
LEXICON = {kind: words.split() for kind, words in WORDS.items()}


@dataclass(frozen=True)
class Sentence:
    """A sentence, and from which of its words each word of its translation comes."""

    words: tuple[str, ...]
    order: tuple[int, ...]

    @property
    def source(self) -> str:
        return " ".join(self.words)

    @property
    def target(self) -> str:
        return " ".join(self.words[place][::-1] for place in self.order)


def make_sentence(dice: random.Random) -> Sentence:
    """Somebody does something to somebody; each may have adjectives, and there may be an adverb at the start.

    No word comes twice, so that there is one right place to look. The adverb is not said first: the decoder starts from
    the state in which the source, read backwards, ended, and knows the first word of it without a look.
    """
    adjectives, nouns = dice.sample(LEXICON["adjective"], 4), dice.sample(LEXICON["noun"], 2)
    first, second = dice.randint(0, 2), dice.randint(0, 2)
    start = [dice.choice(LEXICON["adverb"])] if dice.random() < 0.5 else []
    who, whom = [*adjectives[:first], nouns[0]], [*adjectives[2 : 2 + second], nouns[1]]
    verb = len(start) + len(who)
    turned = [*range(verb - 1, len(start) - 1, -1), *range(len(start)), *range(verb + len(whom), verb, -1), verb]
    return Sentence((*start, *who, dice.choice(LEXICON["verb"]), *whom), tuple(turned))


def make_sentences(seed: int, count: int) -> list[Sentence]:
    dice = random.Random(seed)
    return [make_sentence(dice) for _ in range(count)]


def learn(sentences: Sequence[Sentence], folder: Path, *, steps: int = 400) -> tuple[RNNSearch, TextTokenizer]:
    """The same as `softlook train translate --arch rnn_search` with these flags."""
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
    trained = train_translation(config)
    assert isinstance(trained.model, RNNSearch)
    return trained.model, trained.tokenizer


@torch.no_grad()
def alignment(model: RNNSearch, tokenizer: TextTokenizer, source: str, target: str) -> Float[Tensor, "T S"]:
    """How much each word of a translation looked at each word of its source. The last column is the source's end."""
    kept: list[Tensor] = []

    def watch(module: AttentionCore, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        kept.append(module.weights(query, key, *rest)[0, 0, 0])

    read, said = tokenizer.encode([source, target])
    hook = model.decoder.align.core.register_forward_hook(watch)
    try:
        model.eval()(torch.tensor([[*read, tokenizer.eos_id]]), torch.tensor([[tokenizer.bos_id, *said[:-1]]]))
    finally:
        hook.remove()
    return torch.stack(kept)


def right(model: RNNSearch, tokenizer: TextTokenizer, sentences: Sequence[Sentence]) -> tuple[int, int]:
    """Of how many translated words the strongest look is at the word it comes from; and of how many in all."""
    hits = count = 0
    for one in sentences:
        strongest = alignment(model, tokenizer, one.source, one.target).argmax(1).tolist()
        hits += sum(found == place for found, place in zip(strongest, one.order, strict=True))
        count += len(one.order)
    return hits, count


def main() -> None:
    with TemporaryDirectory() as folder:
        model, tokenizer = learn(make_sentences(0, 3000), Path(folder))
    known = {one.source for one in make_sentences(0, 3000)}
    unseen = list(islice((one for one in make_sentences(1, 400) if one.source not in known), 200))
    said = translate_texts(model, tokenizer, [one.source for one in unseen])
    exact = sum(words == one.target for words, one in zip(said, unseen, strict=True))
    hits, count = right(model, tokenizer, unseen)
    print(f"{exact} of {len(unseen)} unseen sentences are translated without a fault.")
    print(f"{hits} of {count} words ({hits / count:.1%}) look most at the word they come from.")
    shown = max(unseen, key=lambda one: len(one.words))
    weights = alignment(model, tokenizer, shown.source, shown.target)[:, :-1]
    figure = attention_figure(weights, queries=shown.target.split(), keys=shown.words, title=shown.source)
    Path("alignment.svg").write_text(figure, encoding="utf-8")
    print(f"The picture of {shown.source!r} is in alignment.svg")


if __name__ == "__main__":
    main()
