"""Pictures of the operation: notation, dot product, basic attention, the three roles, the soft dictionary."""

import torch

from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import SUSAN, random
from softlook.lens.figures.graph import arrow, box, circle, lines
from softlook.lens.figures.matrix import block, matrix, vector
from softlook.lens.figures.picture import Picture, column, grid, label, overlay, paragraph, row, space
from softlook.lens.figures.shapes import Point
from softlook.lens.figures.tokens import SIZES
from softlook.ops.attention import attention, attention_weights, self_attention
from softlook.ops.soft_dict import SoftDict

SMALL = SIZES["small"]


def notation() -> Figure:
    """The letters, colors and symbols of all figures, on one head of attention."""
    x, (w_q, w_k, w_v) = random(5, 4, number=3), random(3, 4, 3, number=5) / 2
    query, key, value = x @ w_q, x @ w_k, x @ w_v
    weights = attention_weights(query[None, None], key[None, None])[0, 0]
    output = attention(*(one[None, None] for one in (query, key, value)))[0, 0]
    entries = (
        ("X", "input", x, "T × C", "inputs: a row for each element"),
        ("Q", "query", query, "T × D", "queries: what an element looks for"),
        ("K", "key", key, "S × D", "keys: what an element is found by"),
        ("V", "value", value, "S × E", "values: what an element passes on"),
        ("A", "weight", weights, "T × S", "weights: rows are queries, columns are keys"),
        ("Y", "output", output, "T × E", "outputs: averages of the values"),
    )
    cells = [
        row(
            block(matrix(values, color, side=18), letter, color, shape=shape), paragraph(words, 128, size=SMALL), gap=14
        )
        for letter, color, values, shape, words in entries
    ]
    numbers = torch.linspace(-1, 1, 5)
    examples = row(
        vector(numbers, "weight", digits=1, side=34),
        space(8),
        column(
            label("filled: positive, hollow: negative;", "soft", size=SMALL),
            label("the larger the magnitude, the stronger the color", "soft", size=SMALL),
            gap=0,
        ),
        vector(torch.zeros(1), side=34, hidden=torch.ones(1, 1, dtype=torch.bool)),
        label("hidden by a mask", "soft", size=SMALL),
        gap=10,
    )
    drawn = {letter: values for letter, _, values, _, _ in entries}
    return Figure(
        "Notation",
        "Six matrices with their letters, colors and shapes: inputs X, queries Q, keys K, values V, weights A and "
        "outputs Y. Below, five squares from −1 to 1: positive ones are filled, negative ones hollow.",
        column(grid(cells, 3, gap=26), examples, gap=26),
        drawn,
        subtitle="A head of attention on five elements. Every matrix carries its letter; rows are queries, columns "
        "are keys.",
    )


FEATURES = ("action", "romance", "comedy")
USER = torch.tensor([1.0, -0.8, 0.4])
FILMS = {
    "Car chase": torch.tensor([0.9, -0.6, 0.1]),
    "Love story": torch.tensor([-0.5, 0.9, 0.3]),
    "Slapstick": torch.tensor([0.1, -0.1, 1.0]),
}


def dot_product() -> Figure:
    """The dot product of a user's tastes with three films: magnitude and sign both count."""
    films = torch.stack(list(FILMS.values()))
    products, sums = films * USER, films @ USER
    side = SIZES["numbered_cell"]
    head = matrix(
        USER[None],
        "query",
        maximum=1.0,
        side=side,
        digits=1,
        columns=FEATURES,
        rows=["user"],
        row_color="query-ink",
        name="user",
    )
    left = label("Love story", mono=True).width + 8
    parts = [row(space(left + 8 - label("user", mono=True).width - 8), head, gap=0)]
    for name, film, product, total in zip(FILMS, films, products, sums, strict=True):
        film_row = matrix(
            film[None], "key", maximum=1.0, side=side, digits=1, rows=[name], row_color="key-ink", name=name
        )
        film_row = row(space(left + 8 - film_row.width + 3 * side), film_row, gap=0)
        product_row = matrix(product[None], "weight", maximum=1.0, side=side, digits=2, name="product")
        answer = matrix(total[None, None], "output", maximum=2.0, side=side, digits=2, name="sum")
        parts.append(row(film_row, label("→"), product_row, label("→ sum"), answer, gap=14))
    captions = row(space(left + 8 + 3 * side + 34), label("products", "weight-ink", size=SMALL), gap=0)
    picture = column(parts[0], captions, *parts[1:], gap=6)
    return Figure(
        "The dot product compares two vectors",
        f"A user likes action ({USER[0]:.1f}) and dislikes romance ({USER[1]:.1f}). "
        + " ".join(f"{name}: {total:.2f}." for name, total in zip(FILMS, sums.tolist(), strict=True)),
        picture,
        {"user": USER, "films": films, "products": products, "sums": sums},
        subtitle="A user's tastes times a film's features, summed: equal signs add, opposite signs subtract.",
        caption="Two dislikes agree: neither the user nor “Car chase” has romance, and the product is positive.",
    )


def basic_attention() -> Figure:
    """Attention without parameters, as a computation graph of one output."""
    x, chosen = random(4, 4, number=11) * 0.55, 2
    scores = x @ x[chosen]
    weights = attention_weights(x[None, None], x[None, None], scale=1.0)[0, 0, chosen]
    output = self_attention(x)[chosen]
    largest = float(x.abs().max())
    columns = [
        _attention_column(x[index], scores[index], weights[index], index, largest).at(index * STEP, 0)
        for index in range(4)
    ]
    center, top = 1.5 * STEP + 50, 18.0
    sums = [arrow((index * STEP + 50, Y_TIMES), (center + 9 * (index - 1.5), top + 17)) for index in range(4)]
    result = row(vector(output, "output", maximum=largest, side=20), label("y₃", "output-ink", bold=True), gap=6)
    rails = [lines(_rail(chosen * STEP + 72, index * STEP + 72), "query") for index in range(4)]
    frame = box("", "line", width=3 * STEP + 100, height=48).at(0, Y_WEIGHT - 7)
    notes = [
        label(words, "soft", size=SMALL).at(3 * STEP + 112, y)
        for words, y in (
            ("times xᵢ", Y_TIMES + 6),
            ("softmax", Y_WEIGHT + 8),
            ("dot products", Y_DOT + 6),
            ("inputs", Y_INPUT),
        )
    ]
    picture = overlay(
        frame,
        *rails,
        *columns,
        *sums,
        circle("+").at(center - 15, 0),
        arrow((center + 17, 15), (center + 50, 15)),
        result.at(center + 56, 4),
        *notes,
    )
    return Figure(
        "Basic attention: a weighted sum, without parameters",
        f"Four inputs. The third is compared with each by a dot product; a softmax turns the four scores into weights "
        f"{', '.join(f'{w:.2f}' for w in weights.tolist())}; the sum of the inputs with these weights is the output.",
        picture,
        {"x": x, "scores": scores, "weights": weights, "output": output},
        subtitle="The third output: y₃ = Σᵢ wᵢ xᵢ with w = softmax(x₃ᵀxᵢ). An element resembles itself most.",
    )


STEP, Y_TIMES, Y_WEIGHT, Y_DOT, Y_INPUT = 146.0, 84.0, 152.0, 232.0, 318.0


def _rail(start: float, end: float) -> tuple[Point, ...]:
    """The path of the query from its input to a dot product."""
    return (start, Y_INPUT - 4), (start, Y_INPUT - 22), (end, Y_INPUT - 22), (end, Y_DOT + 15), (end - 5, Y_DOT + 15)


def _attention_column(
    x: torch.Tensor, score: torch.Tensor, weight: torch.Tensor, index: int, largest: float
) -> Picture:
    """One input on its way to the sum: dot product, weight, product."""
    center = 50.0
    squares = vector(x, "input", maximum=largest, side=20)
    bottom = column(squares, label(f"x{'₁₂₃₄'[index]}", "input-ink", bold=True), gap=2, align="middle")
    words = label(f"{score:.2f}".replace("-", "−"), "soft", size=SMALL)
    return overlay(
        bottom.at(center - 40, Y_INPUT),
        arrow((center, Y_INPUT - 4), (center, Y_DOT + 32), "key"),
        circle("·", size=20).at(center - 15, Y_DOT),
        arrow((center, Y_DOT - 2), (center, Y_WEIGHT + 36)),
        words.at(center + 8, Y_DOT - 31),
        vector(weight[None], "weight", maximum=1.0, side=34, digits=2).at(center - 17, Y_WEIGHT),
        arrow((center, Y_WEIGHT - 1), (center, Y_TIMES + 32)),
        circle("×").at(center - 15, Y_TIMES),
        lines(((center - 34, Y_INPUT - 4), (center - 34, Y_TIMES + 15), (center - 17, Y_TIMES + 15)), "value"),
    )


def queries_keys_values() -> Figure:
    """Three projections of the same inputs."""
    x, projections = random(5, 4, number=3), random(3, 4, 3, number=5) / 2
    rows, numbers = [], {"X": x}
    notes = ("what each word looks for", "what each word is found by", "what each word passes on")
    largest = float(projections.abs().max())
    for letter, color, w, words in zip("QKV", ("query", "key", "value"), projections, notes, strict=True):
        result = x @ w
        numbers |= {f"W{letter}": w, letter: result}
        rows.append(
            row(
                label("×"),
                block(matrix(w, color, maximum=largest, side=18), "W", color, sup=letter),
                label("="),
                block(matrix(result, color, side=18), letter, color),
                label(words, "soft"),
                gap=16,
            )
        )
    words = matrix(x, "input", side=18, rows=SUSAN)
    picture = row(block(words, "X", "input", shape="5 words × 4 features"), column(*rows, gap=18), gap=18)
    return Figure(
        "Queries, keys and values",
        "The matrix X of five words is multiplied by three matrices, which gives queries, keys and values of each "
        "word.",
        picture,
        numbers,
        subtitle="Three roles of the same element, from three matrices that do not depend on the length of the "
        "sequence.",
    )


CITIES = {"Berlin": (52.5, 13.4), "Paris": (48.9, 2.4), "Rome": (41.9, 12.5), "Madrid": (40.4, -3.7)}
TEMPERATURES = (24.0, 21.0, 30.0, 33.0)


def soft_dictionary() -> Figure:
    """A hard dictionary beside a soft one, queried with a key that neither holds exactly."""
    keys = torch.tensor(list(CITIES.values()))
    values = torch.tensor(TEMPERATURES)[:, None]
    query = torch.tensor([46.5, 7.0])
    soft = SoftDict(keys, values, temperature=40.0)
    weights, answer = soft.weights(query), soft[query]
    hard_weights = SoftDict(keys, values, temperature=40.0).weights(keys[1])
    hard = [
        _dictionary_row(name, key, value, None) for (name, key), value in zip(CITIES.items(), TEMPERATURES, strict=True)
    ]
    mild = [
        _dictionary_row(name, key, value, float(weight))
        for (name, key), value, weight in zip(CITIES.items(), TEMPERATURES, weights.tolist(), strict=True)
    ]
    picture = row(
        column(
            label("A dictionary", bold=True),
            label("query = the key of Paris, exactly", "query-ink"),
            *hard,
            label(f"→ {TEMPERATURES[1]:.1f} °C: one value; any other query: KeyError", "output-ink"),
            gap=10,
        ),
        column(
            label("Attention", bold=True),
            label("query = (46.5, 7.0), near several keys", "query-ink"),
            *mild,
            label(f"→ {answer.item():.1f} °C: every value, to the extent that its key matches", "output-ink"),
            gap=10,
        ),
        gap=44,
        align="start",
    )
    return Figure(
        "A soft dictionary",
        "Left, a dictionary of four cities returns the value of the one key that equals the query. Right, attention "
        "returns the average of all values, with the weights "
        + ", ".join(f"{name} {weight:.2f}" for name, weight in zip(CITIES, weights.tolist(), strict=True))
        + ".",
        picture,
        {
            "keys": keys,
            "values": values,
            "query": query,
            "weights": weights,
            "answer": answer,
            "at a key": hard_weights,
        },
        subtitle="Keys are coordinates, values are temperatures. softlook.SoftDict compares by squared distance.",
    )


def _dictionary_row(name: str, key: tuple[float, float], value: float, weight: float | None) -> Picture:
    """A key, an arrow as strong as its weight, and its value."""
    is_found = weight is None and name == "Paris"
    shown = 1.0 if is_found else 0.0 if weight is None else weight
    left = box(f"{name} {key[0]:.1f}, {key[1]:.1f}".replace("-", "−"), "key", width=150)
    right = box(f"{value:.0f} °C", "value", width=66)
    color, width = ("weight", 1.0 + 7 * shown) if shown else ("edge", 1.0)
    line = arrow((0, 17), (56, 17), color, width=width, head=shown > 0)
    note = label("" if weight is None else f"{weight:.2f}", "weight-ink", bold=True)
    middle = Picture(56, 34, line.marks)
    return row(left, middle, right, *([note] if weight is not None else []), gap=8)
