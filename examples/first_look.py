"""A first look at attention, on the words of a sentence, in the terminal. Run it with `make look`.

softlook computes every number. There is no model, no training and no download: a word is represented by its letter
pairs, so the score of two words is the number of pairs they share.
"""

import math

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor

from softlook import SoftDict, attention, attention_weights, explain, look, masks, positions, self_attention
from softlook.lens import heads_figure
from softlook.lens.figures.color import STEPS, colormap, text_color

SENTENCE = ["she", "sells", "sea", "shells", "by", "the", "sea", "shore"]
SUSAN = ["Susan", "gave", "roses", "to", "Mary"]
MARY = ["Mary", "gave", "roses", "to", "Susan"]
PRICES = {"shell": 2.0, "sand": 30.0, "shore": 700.0}

CELL, LABEL = 7, 9
console = Console(width=80, highlight=False)
BLOCK = "█" if console.encoding.lower().startswith("utf") else "#"


def pairs(word: str) -> list[str]:
    """The letter pairs of a word; ^ marks its start and $ its end."""
    marked = f"^{word.lower()}$"
    return [marked[start : start + 2] for start in range(len(marked) - 1)]


def vectors(words: list[str], vocabulary: list[str]) -> Tensor:
    """One row per word: the count of each letter pair. (T, C)"""
    return torch.tensor([[float(pairs(word).count(pair)) for pair in vocabulary] for word in words])


def vocabulary_of(words: list[str]) -> list[str]:
    """All letter pairs of these words; an even number, because sinusoidal positions are sine and cosine pairs."""
    vocabulary = sorted({pair for word in words for pair in pairs(word)})
    return vocabulary if len(vocabulary) % 2 == 0 else [*vocabulary, "--"]


def heading(title: str, call: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), " " * (80 - len(title) - len(call)) if call else "", (call, "cyan")))


def paragraph(text: str) -> None:
    console.print(Text(text))


def weight_row(name: str, weights: Tensor, suffix: str = "") -> None:
    """One row of a map as colored cells, with the weights as numbers for terminals without color."""
    row = Text(f"{name:>{LABEL - 1}} ")
    for weight in weights.tolist():
        fill = colormap(round(STEPS * weight), dark=True)
        style = f"{text_color(fill)} on {fill}" if weight else "dim"
        row.append((f"{weight:.2f}" if weight else "-").center(CELL), style=style)
    console.print(row.append(f"  {suffix}"))


def header_row(words: list[str]) -> None:
    console.print(Text(" " * LABEL + "".join(word.center(CELL) for word in words), style="dim"))


def bar(fraction: float, width: int) -> str:
    return (BLOCK * round(width * fraction)).ljust(width)


def self_attention_map(x: Tensor) -> Tensor:
    heading("1  Every word attends to every word", "attention_weights(x, x, scale=1.0)")
    she, shells = pairs("she"), pairs("shells")
    paragraph(
        f"A word is a vector of its letter pairs: she = {' '.join(she)}. The score of two words is the number of "
        f"pairs they share (she and shells: {len({*she} & {*shells})}), and softmax turns scores into weights. "
        "Nothing is trained: scores depend on spelling, not on meaning."
    )
    weights = attention_weights(x, x, scale=1.0)[0, 0]
    header_row(SENTENCE)
    for word, row in zip(SENTENCE, weights, strict=True):
        weight_row(word, row)
    torch.testing.assert_close(self_attention(x[0, 0]), weights @ x[0, 0])  # the output: an average with these weights
    paragraph(
        "Each row is a query, and its weights sum to 1. The diagonal is largest: a word is most similar to itself. "
        "Equal scores have equal weights: sea and sea."
    )
    return weights


def temperatures(x: Tensor) -> Tensor:
    heading("2  Temperature", "attention_weights(x, x, scale=1 / temperature)")
    header_row(SENTENCE)
    for temperature in (0.25, 1.0, 4.0):
        weight_row(f"at {temperature:g}", attention_weights(x, x, scale=1 / temperature)[0, 0, 0], "she")
    paragraph("At a low temperature the best match gets all the weight; at a high one the weights are nearly uniform.")
    return attention_weights(x, x, scale=1 / 4)[0, 0]


def word_order() -> None:
    heading("3  Word order", "x + positions.sinusoidal(5, width)")
    vocabulary = vocabulary_of(SUSAN)
    sinusoidal = positions.sinusoidal(len(SUSAN), len(vocabulary))
    header_row(SUSAN)
    for name, added in (("without positions", torch.zeros_like(sinusoidal)), ("with positions", sinusoidal)):
        outputs = []
        for words in (SUSAN, MARY):
            x = vectors(words, vocabulary) + added
            weights = attention_weights(x[None, None], x[None, None])[0, 0, words.index("gave")]
            outputs.append(self_attention(x, temperature=len(vocabulary) ** 0.5)[words.index("gave")])
            weight_row("gave", weights[[words.index(word) for word in SUSAN]], " ".join(words))
        difference = (outputs[0] - outputs[1]).abs().max().item()
        paragraph(f"{'':{LABEL}}{name}, the two outputs for gave are {difference:.3f} apart")
    paragraph("Attention ignores the order of its inputs. Only positions distinguish the two sentences.")


def causal_map(x: Tensor) -> Tensor:
    heading("4  A causal mask", "mask=masks.causal()")
    weights = attention_weights(x, x, scale=1.0, mask=masks.causal())[0, 0]
    header_row(SENTENCE)
    for word, row in zip(SENTENCE, weights, strict=True):
        weight_row(word, row)
    paragraph("Each word attends to itself and to earlier words, as in text generation.")
    return weights


def statistics(x: Tensor) -> None:
    heading("5  Statistics of the map, without the map", "look(x, x, scale=1.0, stats=...)")
    stats = look(x, x, scale=1.0, stats=("entropy", "top_weights", "top_indices", "received"), top_k=2)
    console.print(Text(f"{'':{LABEL}}{'entropy, in nats':22}{'attends most to':24}received attention", style="dim"))
    for n, word in enumerate(SENTENCE):
        entropy, received = stats.entropy[0, 0, n].item(), stats.received[0, 0, n].item()
        best = zip(stats.top_indices[0, 0, n].tolist(), stats.top_weights[0, 0, n].tolist(), strict=True)
        mostly = ", ".join(f"{SENTENCE[key]} {weight:.2f}" for key, weight in best if weight > 0.05)
        row = Text(f"{word:>{LABEL - 1}} ").append(
            bar(entropy / math.log(len(SENTENCE)), 16), style=colormap(44, dark=True)
        )
        row.append(f" {entropy:.2f} {mostly:24}").append(bar(received / 2, 14), style="#e69f00")
        console.print(row.append(f" {received:.2f}"))
    paragraph("Exact, in memory that grows linearly with the number of words.")


def soft_dictionary() -> None:
    heading("6  A soft dictionary", "SoftDict(keys, values, temperature=...)")
    vocabulary = vocabulary_of([*PRICES, "shells"])
    keys, values = vectors(list(PRICES), vocabulary), torch.tensor([[price] for price in PRICES.values()])
    cold, warm = (SoftDict(keys, values, temperature=temperature) for temperature in (0.1, 4.0))
    same = all(cold[key].item() == price for key, price in zip(keys, PRICES.values(), strict=True))
    shells = vectors(["shells"], vocabulary)[0]
    paragraph(f"prices = {PRICES}")
    paragraph(f"At temperature 0.1 it returns the values of that dict: {same}.")
    paragraph("prices['shells'] would be a KeyError. A soft dictionary averages the values of similar keys:")
    paragraph(f"{cold[shells].item():.2f} at temperature 0.1, {warm[shells].item():.2f} at temperature 4.")


def backends(x: Tensor) -> None:
    heading("7  The backend of a call, and why it is selected", "explain(...)")
    paragraph(str(explain(x, x, x, mask=masks.causal())))
    paragraph(str(explain(x, x, x, softcap=30.0)))


def main() -> None:
    x = vectors(SENTENCE, vocabulary_of(SENTENCE))[None, None]  # (B, H, T, D): one sentence, one head
    console.print(
        Text.assemble(("softlook", "bold"), ": attention is a soft dictionary lookup; all numbers are computed")
    )
    plain = self_attention_map(x)
    warm = temperatures(x)
    word_order()
    causal = causal_map(x)
    statistics(x)
    soft_dictionary()
    backends(x)
    torch.testing.assert_close(attention(x, x, x, scale=1.0)[0, 0], plain @ x[0, 0])
    maps = {"temperature 1": plain, "temperature 4": warm, "causal": causal}
    figure = heads_figure(maps, queries=SENTENCE, keys=SENTENCE, title=" ".join(SENTENCE))
    figure.save("first_look.svg")
    heading("The figure is in first_look.svg")
    paragraph(
        "Open it in a browser; tooltips show the weights. Then edit the sentence in examples/first_look.py, "
        "or continue with docs/guide/attention.md."
    )


if __name__ == "__main__":
    main()
