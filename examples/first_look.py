"""A first look: what attention does, on real words, in the terminal. Run it with `make look`.

Every number is worked out by softlook while you watch. No model, no training, no download: a word is
the letter pairs it is spelled with, so two words match as often as they share a pair.
"""

import math
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor

from softlook import SoftDict, attention, attention_weights, explain, look, masks, positions, self_attention
from softlook.lens import heads_figure
from softlook.lens.color import STEPS, colormap, text_color

SENTENCE = ["she", "sells", "sea", "shells", "by", "the", "sea", "shore"]
SUSAN = ["Susan", "gave", "roses", "to", "Mary"]
MARY = ["Mary", "gave", "roses", "to", "Susan"]
PRICES = {"shell": 2.0, "sand": 30.0, "shore": 700.0}

CELL, LABEL = 7, 9
console = Console(width=80, highlight=False)
BLOCK = "█" if console.encoding.lower().startswith("utf") else "#"


def pairs(word: str) -> list[str]:
    """The letter pairs of a word; ^ marks its beginning and $ its end."""
    marked = f"^{word.lower()}$"
    return [marked[place : place + 2] for place in range(len(marked) - 1)]


def vectors(words: list[str], known: list[str]) -> Tensor:
    """One row for each word: how often each known pair occurs in it. (T, C)"""
    return torch.tensor([[float(pairs(word).count(pair)) for pair in known] for word in words])


def pairs_of(words: list[str]) -> list[str]:
    """All pairs of these words: an even number of them, since sines and cosines come in twos."""
    known = sorted({pair for word in words for pair in pairs(word)})
    return known if len(known) % 2 == 0 else [*known, "--"]


def heading(title: str, call: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), " " * (80 - len(title) - len(call)) if call else "", (call, "cyan")))


def say(words: str) -> None:
    console.print(Text(words))


def squares(name: str, weights: Tensor, after: str = "") -> None:
    """One row of a map as coloured squares. The number says the same where there is no colour."""
    row = Text(f"{name:>{LABEL - 1}} ")
    for weight in weights.tolist():
        fill = colormap(round(STEPS * weight), dark=True)
        style = f"{text_color(fill)} on {fill}" if weight else "dim"
        row.append((f"{weight:.2f}" if weight else "-").center(CELL), style=style)
    console.print(row.append(f"  {after}"))


def labels(words: list[str]) -> None:
    console.print(Text(" " * LABEL + "".join(word.center(CELL) for word in words), style="dim"))


def bar(share: float, width: int) -> str:
    return (BLOCK * round(width * share)).ljust(width)


def everyone_looks_at_everyone(x: Tensor) -> Tensor:
    heading("1  Everyone looks at everyone", "attention_weights(x, x, scale=1.0)")
    she, shells = pairs("she"), pairs("shells")
    say(
        f"A word is its letter pairs: she = {' '.join(she)}. Two words score one for each pair they share "
        f"(she and shells: {len({*she} & {*shells})}), and softmax turns scores into weights. "
        "Nothing is trained: this knows spelling, not meaning."
    )
    weights = attention_weights(x, x, scale=1.0)[0, 0]
    labels(SENTENCE)
    for word, row in zip(SENTENCE, weights, strict=True):
        squares(word, row)
    torch.testing.assert_close(self_attention(x[0, 0]), weights @ x[0, 0])  # the answer: an average, by these weights
    say(
        "Each row is a word that looks, and its weights sum to 1. The diagonal leads: a word resembles itself most. "
        "Equal scores get equal weights: sea and sea."
    )
    return weights


def softer_and_harder(x: Tensor) -> Tensor:
    heading("2  Temperature", "attention_weights(x, x, scale=1 / temperature)")
    labels(SENTENCE)
    for temperature in (0.25, 1.0, 4.0):
        squares(f"at {temperature:g}", attention_weights(x, x, scale=1 / temperature)[0, 0, 0], "she")
    say("Cold, she sees the best match alone; warm, she sees everybody.")
    return attention_weights(x, x, scale=1 / 4)[0, 0]


def who_gave_roses() -> None:
    heading("3  Order", "x + positions.sinusoidal(5, width)")
    known = pairs_of(SUSAN)
    place = positions.sinusoidal(len(SUSAN), len(known))
    labels(SUSAN)
    for name, added in (("without positions", torch.zeros_like(place)), ("with positions", place)):
        answers = []
        for words in (SUSAN, MARY):
            x = vectors(words, known) + added
            weights = attention_weights(x[None, None], x[None, None])[0, 0, words.index("gave")]
            answers.append(self_attention(x, temperature=len(known) ** 0.5)[words.index("gave")])
            squares("gave", weights[[words.index(word) for word in SUSAN]], " ".join(words))
        apart = (answers[0] - answers[1]).abs().max().item()
        say(f"{'':{LABEL}}{name}, the two answers for gave are {apart:.3f} apart")
    say("Attention sees a set. Who gave and who received is told by positions alone.")


def no_peeking(x: Tensor) -> Tensor:
    heading("4  A causal mask", "mask=masks.causal()")
    weights = attention_weights(x, x, scale=1.0, mask=masks.causal())[0, 0]
    labels(SENTENCE)
    for word, row in zip(SENTENCE, weights, strict=True):
        squares(word, row)
    say("Each word sees itself and what came before: how text is written, word by word.")
    return weights


def take_a_look(x: Tensor) -> None:
    heading("5  A look at the map, without holding it", "look(x, x, scale=1.0, stats=...)")
    seen = look(x, x, scale=1.0, stats=("entropy", "top_weights", "top_indices", "received"), top_k=2)
    console.print(Text(f"{'':{LABEL}}{'entropy, in nats':22}{'looks most at':24}is looked at", style="dim"))
    for n, word in enumerate(SENTENCE):
        entropy, received = seen.entropy[0, 0, n].item(), seen.received[0, 0, n].item()
        best = zip(seen.top_indices[0, 0, n].tolist(), seen.top_weights[0, 0, n].tolist(), strict=True)
        mostly = ", ".join(f"{SENTENCE[key]} {weight:.2f}" for key, weight in best if weight > 0.05)
        row = Text(f"{word:>{LABEL - 1}} ").append(
            bar(entropy / math.log(len(SENTENCE)), 16), style=colormap(44, dark=True)
        )
        row.append(f" {entropy:.2f} {mostly:24}").append(bar(received / 2, 14), style="#e69f00")
        console.print(row.append(f" {received:.2f}"))
    say("Exact, and in memory that grows with the words, not with their square.")


def soft_dictionary() -> None:
    heading("6  A soft dictionary", "SoftDict(keys, values, temperature=...)")
    known = pairs_of([*PRICES, "shells"])
    keys, values = vectors(list(PRICES), known), torch.tensor([[price] for price in PRICES.values()])
    cold, warm = (SoftDict(keys, values, temperature=temperature) for temperature in (0.1, 4.0))
    same = all(cold[key].item() == price for key, price in zip(keys, PRICES.values(), strict=True))
    shells = vectors(["shells"], known)[0]
    say(f"prices = {PRICES}")
    say(f"At temperature 0.1 it is that dict, key for key: {same}.")
    say("prices['shells'] would be a KeyError. Softly, the nearest key answers, or all do:")
    say(f"{cold[shells].item():.2f} at temperature 0.1, {warm[shells].item():.2f} at temperature 4.")


def which_path(x: Tensor) -> None:
    heading("7  Which path a call takes, and why", "explain(...)")
    say(str(explain(x, x, x, mask=masks.causal())))
    say(str(explain(x, x, x, softcap=30.0)))


def main() -> None:
    x = vectors(SENTENCE, pairs_of(SENTENCE))[None, None]  # (B, H, T, D): one sentence, one head
    console.print(Text.assemble(("softlook", "bold"), ": attention is a soft look-up, and every number below is real"))
    plain = everyone_looks_at_everyone(x)
    warm = softer_and_harder(x)
    who_gave_roses()
    causal = no_peeking(x)
    take_a_look(x)
    soft_dictionary()
    which_path(x)
    torch.testing.assert_close(attention(x, x, x, scale=1.0)[0, 0], plain @ x[0, 0])
    maps = {"temperature 1": plain, "temperature 4": warm, "causal": causal}
    figure = heads_figure(maps, queries=SENTENCE, keys=SENTENCE, title=" ".join(SENTENCE))
    Path("first_look.svg").write_text(figure, encoding="utf-8")
    heading("The picture is in first_look.svg")
    say(
        "Open it in a browser and point at a square. Then put a sentence of your own into examples/first_look.py, "
        "or go on with docs/guide/attention.md."
    )


if __name__ == "__main__":
    main()
