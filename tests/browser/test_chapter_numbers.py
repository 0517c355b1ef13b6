"""The numbers of the chapters are those of the library, from the same constants."""

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import Tensor
from torch.testing import assert_close

from softlook import attention, attention_scores, attention_weights, masks, positions, scores
from softlook.blocks import attention_from_convolution, attention_from_linear
from softlook.ops.positions.rotary import linear, rotary, rotary_angles
from softlook.ops.soft_dict import SoftDict
from tests.browser.chapters import CONSTANTS, Link, constant, numbers, show
from tests.browser.conftest import Watch, opened


@pytest.fixture(scope="module")
def watched(browser: Browser, new_link: Link) -> Iterator[tuple[Page, Watch]]:
    with opened(browser, new_link(), reduced_motion="reduce", locale="en-US") as both:
        yield both


@pytest.fixture
def page(watched: tuple[Page, Watch]) -> Iterator[Page]:
    yield watched[0]
    watched[1].check()


def test_the_score_is_the_dot_product(page: Page) -> None:
    show(page, "dot", q="-1,2.5", k="1.5,-0.5")
    query, key = torch.tensor([[-1, 2.5], [1.5, -0.5]], dtype=torch.float64)
    expected = attention_scores(query[None, None, None], key[None, None, None], scale=1.0)[0, 0, 0]
    assert_close(numbers(page, "score"), expected)


def test_the_softmax_with_a_temperature_is_that_of_the_library(page: Page) -> None:
    show(page, "softmax", tau=-0.3, c=2)
    expected = ((constant("softmax", "scores") + 2) / 10**-0.3).softmax(0)
    assert_close(numbers(page, "weights"), expected)
    assert_close(numbers(page, "ruler"), expected)


def drawn(seed: int, n: int) -> float:
    """Number n of the page's generator of normal numbers."""

    def mixed(bits: int) -> int:
        bits = ((bits ^ bits >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
        bits = ((bits ^ bits >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
        return bits ^ bits >> 16

    one, other = ((mixed(mixed(i) ^ seed * 0x9E3779B9 & 0xFFFFFFFF) + 0.5) / 2**32 for i in (2 * n, 2 * n + 1))
    return math.sqrt(-2 * math.log(one)) * math.cos(2 * math.pi * other)


def drawn_matrix(seed: int, rows: int, columns: int, deviation: float = 1.0) -> Tensor:
    values = [deviation * drawn(seed, n) for n in range(rows * columns)]
    return torch.tensor(values, dtype=torch.float64).reshape(rows, columns)


def test_random_dot_products_are_those_of_the_declared_generator(page: Page) -> None:
    show(page, "scale", d=0)
    seed, keys, widest = CONSTANTS["scale"]["seed"], CONSTANTS["scale"]["keys"], CONSTANTS["scale"]["dims"][-1]
    pairs = [[2 * (i * widest + n) for n in range(4)] for i in range(keys)]
    products = [sum(drawn(seed, place) * drawn(seed, place + 1) for place in places) for places in pairs]
    assert_close(numbers(page, "weights"), torch.tensor(products, dtype=torch.float64).softmax(0))


def test_the_soft_dictionary_is_that_of_the_library(page: Page) -> None:
    show(page, "dictionary", q="-1,0.3", tau=0.2)
    keys, values = constant("dictionary", "keys"), constant("dictionary", "values")
    soft = SoftDict(keys, values[:, None], temperature=10**0.2)
    query = torch.tensor([-1, 0.3], dtype=torch.float64)
    assert_close(numbers(page, "weights"), soft.weights(query))
    assert_close(float(page.get_attribute("[data-name=answer]", "data-value") or "nan"), soft[query].item())


def test_queries_keys_and_values_are_products_with_the_input(page: Page) -> None:
    show(page, "qkv")
    for letter, name in zip("QKV", ("query", "key", "value"), strict=True):
        assert_close(numbers(page, letter, 4, 3), constant("sentence", "input") @ constant("qkv", name))


@pytest.mark.parametrize("causal", [False, True])
def test_the_matrix_form_is_the_attention_of_the_library(page: Page, causal: bool) -> None:
    show(page, "matrix", causal=str(causal).lower())
    x = constant("sentence", "input")
    query, key, value = ((x @ constant("qkv", name))[None, None] for name in ("query", "key", "value"))
    mask = masks.causal() if causal else None
    assert_close(numbers(page, "A", 4, 4), attention_weights(query, key, mask=mask)[0, 0])
    assert_close(numbers(page, "Z", 4, 3), attention(query, key, value, mask=mask)[0, 0])


@pytest.mark.parametrize("choice", range(3))
def test_heads_are_those_of_the_library(page: Page, choice: int) -> None:
    show(page, "heads", heads=choice)
    x, count = constant("sentence", "input"), CONSTANTS["heads"]["counts"][choice]
    query, key, value = (
        (x @ constant("heads", name)).unflatten(-1, (count, -1)).transpose(0, 1)[None]
        for name in ("query", "key", "value")
    )
    concatenated = attention(query, key, value)[0].transpose(0, 1).flatten(1)
    assert_close(numbers(page, "Z", 4, 4), concatenated)
    assert_close(numbers(page, "Y", 4, 4), concatenated @ constant("heads", "output"))


@pytest.mark.parametrize("with_positions", [False, True])
def test_words_in_a_new_order_have_the_outputs_of_the_library(page: Page, with_positions: bool) -> None:
    order = [4, 1, 0, 2, 3]
    show(page, "permutation", order=",".join(map(str, order)), positions=str(with_positions).lower())
    x = constant("permutation", "input")[order]
    if with_positions:
        x = x + positions.sinusoidal(5, 4).double()
    by_word = torch.tensor(order).argsort()  # the page keeps the rows of the first order, and moves them
    output = attention(*[x[None, None]] * 3)[0, 0]
    assert_close(numbers(page, "Y", 5, 4), output[by_word], atol=1e-6, rtol=1e-6)


def test_a_linear_layer_is_the_attention_of_the_library(page: Page) -> None:
    show(page, "linear")
    layer = torch.nn.Linear(4, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(constant("linear", "weight"))
        assert_close(numbers(page, "y"), attention_from_linear(layer)(constant("linear", "input")))


def test_a_convolution_is_the_attention_of_the_library(page: Page) -> None:
    show(page, "convolution")
    layer = torch.nn.Conv1d(1, 1, 3, padding=1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(constant("convolution", "kernel")[None, None])
        assert_close(numbers(page, "y"), attention_from_convolution(layer)(constant("convolution", "input")[None])[0])


MASKS = [None, masks.causal(), masks.padding([4]), masks.window(1)]


@pytest.mark.parametrize("choice", range(len(MASKS)))
def test_masks_are_those_of_the_library(page: Page, choice: int) -> None:
    show(page, "masks", mask=choice)
    x = constant("permutation", "input")[None, None]
    assert_close(numbers(page, "A", 5, 5), attention_weights(x, x, mask=MASKS[choice])[0, 0])


def test_positions_are_those_of_the_library(page: Page) -> None:
    show(page, "positions", m=5, n=2, shift=7)
    length, dim = CONSTANTS["positions"]["length"], CONSTANTS["positions"]["dim"]
    assert_close(numbers(page, "P", length, dim).float(), positions.sinusoidal(length, dim))
    scaling = linear(1 / CONSTANTS["positions"]["radians"])
    query, key = (
        rotary(constant("positions", name)[None, None, None], rotary_angles(torch.tensor([place]), 2, scaling=scaling))
        for name, place in (("query", 12), ("key", 9))
    )
    score = float(page.get_attribute(".scene [data-name=score]", "data-value") or "nan")
    assert score == pytest.approx(attention_scores(query, key, scale=1.0).item(), rel=1e-5)


def encoder_states() -> Tensor:
    state, states = torch.zeros(2, dtype=torch.float64), []
    for x in constant("recurrent", "embeddings"):
        state = torch.tanh(constant("recurrent", "recurrent") @ state + constant("recurrent", "input") @ x)
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("choice", range(3))
def test_alignment_scores_are_those_of_the_library(page: Page, choice: int) -> None:
    show(page, "recurrent", score=choice)
    weights = {name: constant("recurrent", "additive", name) for name in ("query", "key", "vector")}
    score = [
        scores.additive(weights["query"].mT, weights["key"].mT, weights["vector"]),
        scores.dot(),
        scores.bilinear(constant("recurrent", "general")),
    ][choice]
    query, states = constant("recurrent", "state")[None, None, None], encoder_states()[None, None]
    assert_close(numbers(page, "scores"), attention_scores(query, states, score=score)[0, 0, 0])
    assert_close(numbers(page, "context"), attention(query, states, states, score=score)[0, 0, 0])


def residual_stream(layers: int, *, pre_norm: bool) -> list[float]:
    """Root mean square of the residual stream before the first layer and after each."""
    shape = CONSTANTS["transformer"]
    seed, dim, hidden = shape["seed"], shape["dim"], shape["hidden"]

    def norm(x: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, (dim,))

    def attend(x: Tensor, layer: int) -> Tensor:
        drawn_weights = [drawn_matrix(seed * 1000 + layer * 10 + i, dim, dim, dim**-0.5) for i in range(4)]
        query, key, value = ((x @ weight)[None, None] for weight in drawn_weights[:3])
        return attention(query, key, value)[0, 0] @ drawn_weights[3]

    def feed(x: Tensor, layer: int) -> Tensor:
        up = drawn_matrix(seed * 1000 + layer * 10 + 4, dim, hidden, dim**-0.5)
        return (x @ up).relu() @ drawn_matrix(seed * 1000 + layer * 10 + 5, hidden, dim, hidden**-0.5)

    x = drawn_matrix(seed, shape["tokens"], dim)
    sizes = [x.square().mean().sqrt().item()]
    for layer, sub_layer in itertools.product(range(layers), (attend, feed)):
        x = x + sub_layer(norm(x), layer) if pre_norm else norm(x + sub_layer(x, layer))
        sizes += [x.square().mean().sqrt().item()] if sub_layer is feed else []
    return sizes


@pytest.mark.parametrize("norm", [0, 1])
def test_the_residual_stream_is_that_of_the_library(page: Page, norm: int) -> None:
    show(page, "transformer", norm=norm, layers=2)
    assert numbers(page, "sizes").tolist() == pytest.approx(residual_stream(2, pre_norm=norm == 0), rel=1e-9)


def test_the_prediction_of_a_table_is_that_of_the_library(page: Page) -> None:
    show(page, "tables", cells="61,12,2,1", order="2,0,3,1")
    shape, row = CONSTANTS["tables"], [61, 12, 2, 1]
    seed, dim = shape["seed"], shape["dim"]
    tokens: list[Tensor] = []
    for index, column in enumerate(shape["numbers"]):
        direction, bias = drawn_matrix(seed * 100 + index, 2, dim)
        tokens.append(direction * (row[index] - column["mean"]) / column["deviation"] + bias)
    for index, column in enumerate(shape["categories"], start=2):
        tokens.append(drawn_matrix(seed * 100 + index, len(column["values"]), dim)[row[index]])
    cls = drawn_matrix(seed * 100 + 50, 1, dim, dim**-0.5)[0]
    x = torch.stack([cls, *tokens])
    query, key, value = ((x @ drawn_matrix(seed * 100 + 50 + i, dim, dim, dim**-0.5))[None, None] for i in (1, 2, 3))
    readout = drawn_matrix(seed * 100 + 60, 1, dim)[0]
    expected = torch.sigmoid((cls + attention(query, key, value)[0, 0, 0]) @ readout)
    assert_close(numbers(page, "probability"), expected[None])
