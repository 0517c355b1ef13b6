"""The numbers in the pictures are right: each is computed here in another way."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.lens.figures.test_gallery import figure


def test_dot_product() -> None:
    drawn = figure("dot_product").numbers
    expected = [
        sum(u * f for u, f in zip(drawn["user"].tolist(), film, strict=True)) for film in drawn["films"].tolist()
    ]
    assert_close(drawn["sums"], torch.tensor(expected))
    assert drawn["user"][1] < 0 and drawn["films"][0, 1] < 0 and drawn["products"][0, 1] > 0  # two dislikes agree


def test_basic_attention() -> None:
    drawn = figure("basic_attention").numbers
    x = drawn["x"]
    exponentials = [math.exp(float(x[2] @ one)) for one in x]
    weights = torch.tensor(exponentials) / sum(exponentials)
    assert_close(drawn["weights"], weights)
    assert_close(drawn["output"], sum(w * one for w, one in zip(weights, x, strict=True)))
    assert drawn["weights"].argmax() == 2


def test_soft_dictionary() -> None:
    drawn = figure("soft_dictionary").numbers
    distances = (drawn["keys"] - drawn["query"]).square().sum(-1)
    assert_close(drawn["weights"], (-distances / 2 / 40).softmax(0), atol=1e-5, rtol=1e-5)
    assert_close(drawn["answer"], (drawn["weights"] @ drawn["values"]), atol=1e-4, rtol=1e-5)


def test_matrix_attention() -> None:
    drawn = figure("matrix_attention").numbers
    scores = drawn["Q"] @ drawn["K"].T / 2
    assert_close(drawn["scores"], scores)
    assert_close(drawn["weights"], scores.softmax(-1))
    assert_close(drawn["Y"], scores.softmax(-1) @ drawn["V"])


def test_softmax_temperature() -> None:
    drawn = figure("softmax_temperature").numbers
    for temperature, weights in zip(drawn["temperatures"], drawn["weights"], strict=True):
        assert_close(weights, (drawn["scores"] / temperature).exp() / (drawn["scores"] / temperature).exp().sum())


def test_why_sqrt_d() -> None:
    drawn = figure("why_sqrt_d").numbers
    for width, plain, scaled in zip(drawn["widths"], *drawn["variance"].values(), strict=True):
        assert plain == pytest.approx(width, rel=0.1) and scaled == pytest.approx(1, rel=0.1)
    plain, scaled = drawn["slope"].values()
    assert plain[-1] < 0.2 * plain[0] and min(scaled) > 0.85 * max(scaled)


def test_projections() -> None:
    drawn = figure("queries_keys_values").numbers
    for letter in "QKV":
        assert_close(drawn[letter], drawn["X"] @ drawn[f"W{letter}"])
    pixels = figure("pixel_projection").numbers
    for weight, values in zip(pixels["weights"], pixels["maps"], strict=True):
        assert_close(values, ((pixels["image"] - 0.5) * weight[0]).sum(-1), atol=1e-5, rtol=1e-5)


def test_multi_head() -> None:
    drawn = figure("multi_head").numbers
    assert_close(drawn["joined"], torch.cat(list(drawn["heads"]), -1))
    assert_close(
        drawn["Y"], sum(one @ part.T for one, part in zip(drawn["heads"], drawn["W"].split(3, 1), strict=True))
    )


def test_permutation() -> None:
    drawn = figure("permutation").numbers
    assert_close(drawn["without positions"][0], drawn["without positions"][1])
    assert (drawn["with positions"][0] - drawn["with positions"][1]).abs().max() > 0.1
    assert drawn["gaps"]["without positions"] < 1e-6 < 0.1 < drawn["gaps"]["with positions"]


def test_two_heads_look_at_the_noun_and_at_the_property() -> None:
    drawn = figure("pronoun").numbers
    for word, noun in (("tired", 1), ("wide", 5)):  # animal, road
        assert sorted(drawn[word]["2/blocks.1.attn"].argmax(-1).tolist()) == [noun, 10]
        assert word in [text.words for text in figure("pronoun").texts]


def test_causal_mask() -> None:
    drawn = figure("causal_mask").numbers
    assert_close(drawn["training"], drawn["generation"])
    assert (
        torch.equal(drawn["hidden"], torch.ones(5, 5).triu(1).bool()) and not drawn["training"][drawn["hidden"]].any()
    )


def test_equivalences() -> None:
    linear, convolution = figure("fully_connected").numbers, figure("convolution").numbers
    assert_close(linear["attention"], linear["weight"] @ linear["x"])
    assert torch.equal(linear["maps"], torch.eye(4))
    expected = torch.nn.functional.conv1d(convolution["x"][None], convolution["kernel"], padding=1)[0]
    assert_close(convolution["attention"], expected)
    position = torch.arange(7)
    for offset, weights in zip((-1, 0, 1), convolution["maps"], strict=True):
        assert torch.equal(weights, (position == position[:, None] + offset).float())


def test_encoder_decoder() -> None:
    modules = figure("encoder_decoder").numbers["modules"]
    names = {stack: [path.rpartition(".")[2] for path, *_ in found] for stack, found in modules.items()}
    assert names["encoder"] == ["attn", "attn_norm", "ffn", "ffn_norm"]
    assert names["decoder"] == ["attn", "attn_norm", "cross_attn", "cross_attn_norm", "ffn", "ffn_norm"]
    attention, width = dict(zip(names["encoder"], modules["encoder"], strict=True))["attn"], 64
    assert attention[2] == 4 * (width**2 + width)


def test_norm_axes() -> None:
    drawn = figure("norm_axes").numbers
    layer, batch, instance = (torch.zeros(3, 4, 5, dtype=torch.bool) for _ in range(3))
    layer[0, :, 2], batch[:, 1, :], instance[0, 1, :] = True, True, True
    for name, expected in (("layer norm", layer), ("batch norm", batch), ("instance norm", instance)):
        assert torch.equal(drawn[name], expected)


def test_gradient_flow() -> None:
    drawn = figure("gradient_flow").numbers
    values, scores = drawn["norms"].values()
    assert values == sorted(values) and scores[-1] < scores[0] < max(scores)


def test_gradient_flow_equals_the_formula_of_the_softmax() -> None:
    drawn = figure("gradient_flow").numbers
    generator = torch.Generator().manual_seed(30)
    query, key, value = torch.randn(3, 8, 4, 16, 16, generator=generator)
    outer = torch.randn(8, 4, 16, 16, generator=torch.Generator().manual_seed(31))
    for sharpness, of_values, of_scores in zip(drawn["sharpness"], *drawn["norms"].values(), strict=True):
        weights = (query @ key.mT * sharpness / 4).softmax(-1)
        inner: Tensor = outer @ value.mT
        jacobian_product = weights * (inner - (weights * inner).sum(-1, keepdim=True))
        assert of_values == pytest.approx(float((weights.mT @ outer).norm()), rel=1e-4)
        assert of_scores == pytest.approx(float(jacobian_product.norm()), rel=1e-3)


def test_path_and_cost() -> None:
    drawn = figure("path_and_cost").numbers
    for index, n in enumerate(drawn["lengths"]):
        paths = {name: values[index] for name, values in drawn["paths"].items()}
        dilated = math.ceil(math.log2((n - 1) / 2 + 1))  # 1 + 2 (2^L - 1) inputs
        assert paths == {"RNN": n - 1, "convolution": math.ceil((n - 1) / 2), "dilated": dilated, "attention": 1}
        costs = {name: values[index] for name, values in drawn["operations"].items()}
        assert costs == {
            "RNN": 2 * n * 2 * 32**2,
            "convolution": 2 * n * 3 * 32**2,
            "attention": 2 * (n * 4 * 32**2 + 2 * n**2 * 32),
        }


def test_position_encodings() -> None:
    drawn = figure("position_encodings").numbers
    position, pair = torch.arange(16.0)[:, None], torch.arange(8.0)
    angle = position / 100 ** (2 * pair / 16)
    assert_close(drawn["sinusoidal"], torch.stack([angle.sin(), angle.cos()], -1).flatten(1), atol=1e-5, rtol=1e-5)
    distance = (position - position.T).abs()
    assert_close(drawn["ALiBi"], -0.25 * distance)
    for offset in range(16):
        assert_close(
            drawn["rotary"].diagonal(offset), drawn["rotary"][0, offset].expand(16 - offset), atol=1e-4, rtol=1e-4
        )


def test_positions_are_lost_without_residuals() -> None:
    drawn = figure("positions_without_residuals").numbers
    kept, lost = drawn["accuracy"].values()
    assert kept[0] == lost[0] and min(kept) > 0.8 and max(lost[2:]) < 2 * drawn["chance"]


def test_fast_weights() -> None:
    drawn = figure("fast_weights").numbers
    (first, second), (one, two, three) = drawn["keys"], drawn["values"]
    assert_close(drawn["sum"][-1], torch.outer(first, one + three) + torch.outer(second, two))
    assert_close(drawn["delta rule"][-1], torch.outer(first, three) + torch.outer(second, two))
    assert_close(drawn["read by sum"], one + three)
    assert_close(drawn["read by delta rule"], three)


def test_transformer_xl() -> None:
    alone, joined = figure("transformer_xl").numbers.values()
    segment = torch.arange(16) // 4
    earlier = torch.ones(16, 16).tril().bool()
    back = segment[:, None] - segment
    assert torch.equal(alone, earlier & (back == 0))
    assert torch.equal(joined, earlier & (back <= 2))


def test_product_keys() -> None:
    drawn = figure("product_keys").numbers
    best = drawn["sums"].flatten().topk(3)
    assert drawn["slots"].tolist() == best.indices.tolist()
    assert_close(drawn["weights"], best.values.softmax(0))


def test_norm_placement() -> None:
    pre, post = figure("norm_placement").numbers["gradients"].values()
    assert len(pre) == len(post) == 12 and post[-1] > 1.3 * post[0] and pre[-1] < pre[0]
