"""A trace of a Hugging Face model has the weights that the model itself returns in eager mode."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import (
    AttentionInterface,
    BloomConfig,
    BloomModel,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    PreTrainedModel,
    StaticCache,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)

from softlook import masks
from softlook.base.errors import ConfigError
from softlook.lens import trace
from softlook.lens.hugging_face import compact_mask
from softlook.ops.masks import Mask
from tests.parity.hugging_face_models import BERT, CASES, VOCABULARY, Case

PADDING = torch.arange(9) < torch.tensor([[4], [9], [7]])
EAGER_ONLY = ("gemma2", "gpt-oss")  # transformers has no SDPA for them
ATTENTIONS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")


def pair(case: Case, implementation: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The same weights in two models: with this attention implementation, and with the eager one."""
    torch.manual_seed(0)
    names = (implementation, "eager")
    traced, eager = (case.model._from_config(deepcopy(case.config), attn_implementation=n).eval() for n in names)
    eager.load_state_dict(traced.state_dict())
    return traced, eager


def inputs(case: Case, padding: str) -> dict[str, Tensor]:
    mask = {"none": torch.ones_like(PADDING), "right": PADDING, "left": PADDING.flip(1)}[padding]
    batch = {"input_ids": torch.randint(3, VOCABULARY, mask.shape).masked_fill(~mask, 0)}
    if padding != "none":
        batch["attention_mask"] = mask.long()
    if case.shape == "both":
        batch["decoder_input_ids"] = torch.randint(3, VOCABULARY, (3, 5))
    return batch


def maps_of(model: PreTrainedModel, **batch: Any) -> list[Tensor]:
    """The weights that a model returns."""
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    return [weights for name in ATTENTIONS for weights in output.get(name) or ()]


def visible_rows(weights: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Rows of real tokens: others may see no key, which is NaN, zeros or a mean in different kernels."""
    mask = batch.get("attention_mask")
    if mask is None or mask.shape[1] != weights.shape[2]:
        return torch.ones_like(weights, dtype=torch.bool)
    return mask[:, None, :, None].bool().expand_as(weights)


RUNS = [
    (name, implementation, padding)
    for name, case in CASES.items()
    for implementation in ("sdpa", "eager")
    for padding in ("none", "right", "left")
    if not (implementation == "sdpa" and name.startswith(EAGER_ONLY))
    and not (padding == "left" and case.shape != "decoder")
]


@pytest.mark.parametrize(("name", "implementation", "padding"), RUNS)
def test_weights_are_those_of_eager_attention(name: str, implementation: str, padding: str) -> None:
    case = CASES[name]
    model, eager = pair(case, implementation)
    batch = inputs(case, padding)
    with torch.no_grad():
        before = model(**batch).last_hidden_state
        with trace(model) as recorded:
            after = model(**batch).last_hidden_state
    assert_close(after, before, rtol=0, atol=0, equal_nan=True)
    actual, expected = [layer.weights() for layer in recorded.values()], maps_of(eager, **batch)
    assert len(actual) == len(expected) == case.layers
    if case.shape == "both":  # returned by kind, recorded in the order of the calls
        depth = case.layers // 3
        order = [*range(depth), *range(depth, 3 * depth, 2), *range(depth + 1, 3 * depth, 2)]
        actual = [actual[index] for index in order]
    for weights, own in zip(actual, expected, strict=True):
        seen = visible_rows(weights, batch)
        assert_close(weights[seen], own[seen], atol=1e-5, rtol=0)


def test_an_image_is_traced_too() -> None:
    torch.manual_seed(0)
    config = ViTConfig(**{**BERT, "hidden_size": 32}, image_size=16, patch_size=4)
    model, eager = (ViTModel._from_config(deepcopy(config), attn_implementation=n).eval() for n in ("sdpa", "eager"))
    eager.load_state_dict(model.state_dict())
    pixels = torch.randn(2, 3, 16, 16)
    with torch.no_grad(), trace(model) as recorded:
        model(pixels)
    for layer, expected in zip(recorded.values(), maps_of(eager, pixel_values=pixels), strict=True):
        assert layer.shape == (2, 4, 17, 17)
        assert_close(layer.weights(), expected, atol=1e-5, rtol=0)


def test_layers_have_the_paths_of_their_modules_and_residuals_those_of_the_blocks() -> None:
    model, _ = pair(CASES["t5, with a position bias"], "sdpa")
    with torch.no_grad(), trace(model) as recorded:
        model(input_ids=torch.tensor([[3, 4, 5]]), decoder_input_ids=torch.tensor([[6, 7]]))
    for path, layer in recorded.items():
        assert hasattr(model.get_submodule(path), "relative_attention_num_buckets") and len(layer.calls) == 1
    blocks = [f"{stack}.block.{index}" for stack in ("encoder", "decoder") for index in (0, 1)]
    assert list(recorded.residual) == blocks
    assert recorded.residual["encoder.block.1"].shape == (1, 3, 32)


def test_logits_and_token_ids_are_recorded() -> None:
    model = GPT2LMHeadModel(CASES["gpt2"].config).eval()
    ids = torch.tensor([[3, 1, 4]])
    with torch.no_grad(), trace(model) as recorded:
        logits = model(ids).logits
        model(input_ids=ids[:, :2])
    assert recorded.logits is not None
    assert_close(recorded.logits, logits[:, :2])
    assert [given.tolist() for given in recorded.inputs["input_ids"]] == [ids.tolist(), ids[:, :2].tolist()]


@pytest.mark.parametrize("make", [GPT2LMHeadModel, LlamaForCausalLM, T5ForConditionalGeneration])
def test_a_generation_is_one_map_that_equals_that_of_the_whole_text(make: Any) -> None:
    name = {GPT2LMHeadModel: "gpt2", LlamaForCausalLM: "llama, grouped"}.get(make, "t5, with a position bias")
    torch.manual_seed(0)
    config = deepcopy(CASES[name].config)
    config.update({"decoder_start_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1})
    model, prompt = make(config).eval(), torch.tensor([[3, 14, 15, 9, 2]])
    options: dict[str, Any] = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 6, "do_sample": False}
    with trace(model) as steps:
        text = model.generate(prompt, **options)
    whole = {"input_ids": text[:, :-1]}
    if config.is_encoder_decoder:
        whole = {"input_ids": prompt, "decoder_input_ids": text[:, :-1]}
    with torch.no_grad(), trace(model) as expected:
        model(**whole)
    assert len(steps) == len(expected)
    for path, layer in expected.items():
        assert_close(steps[path].weights(), layer.weights(), atol=1e-5, rtol=0)


def test_a_static_cache_gives_the_map_of_the_whole_text() -> None:
    torch.manual_seed(0)
    config = deepcopy(CASES["llama, grouped"].config)
    config.update({"eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1})
    model: Any = LlamaForCausalLM(config).eval()
    prompt = torch.tensor([[3, 14, 15, 9, 2]])
    cache = StaticCache(config=config, max_cache_len=16)
    with torch.no_grad(), trace(model) as steps:
        for ids in prompt.split([3, 1, 1], 1):
            model(ids, past_key_values=cache)
    with torch.no_grad(), trace(model) as expected:
        model(prompt)
    for path, layer in expected.items():
        assert_close(steps[path].weights(), layer.weights(), atol=1e-5, rtol=0)
        assert len({call.key.data_ptr() for call in steps[path].calls}) == 1  # stored once


def test_beams_have_the_weights_of_their_own_pasts() -> None:
    torch.manual_seed(0)
    config = deepcopy(CASES["gpt2"].config)
    config.update({"eos_token_id": None, "pad_token_id": 0})
    model: Any = GPT2LMHeadModel(config).eval()
    prompt = torch.tensor([[3, 14, 15]])
    with trace(model) as steps:
        model.generate(prompt, num_beams=3, max_new_tokens=5, do_sample=False, attention_mask=torch.ones_like(prompt))
    for layer in steps.values():
        for call in layer.calls:
            weights = torch.softmax(call.query @ call.key.mT / 8**0.5, -1)
            if call.query.shape[2] == 1:
                assert_close(call.weights(), weights)


def test_the_model_is_as_before_after_an_error() -> None:
    model, _ = pair(CASES["gpt2"], "sdpa")
    interface = AttentionInterface.get_interface
    with pytest.raises(RuntimeError, match="stop"), trace(model):
        model(torch.tensor([[3, 1, 4]]))
        assert AttentionInterface.get_interface is not interface
        raise RuntimeError("stop")
    assert AttentionInterface.get_interface is interface
    assert model.config._attn_implementation == "sdpa"
    assert not any(module._forward_hooks for module in model.modules())


def test_other_models_are_not_recorded() -> None:
    (model, other), ids = pair(CASES["gpt2"], "sdpa"), torch.tensor([[3, 1, 4]])
    with torch.no_grad(), trace(model) as outer, trace(other) as inner:
        model(ids)
    assert len(outer) == 2 and not len(inner)


def test_a_model_whose_attention_is_not_called_through_the_interface_is_an_error() -> None:
    model = BloomModel(BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=1, n_head=4)).eval()
    with (
        pytest.raises(ConfigError, match="BloomModel does not compute attention through transformers' AttentionInter"),
        trace(model),
    ):
        model(torch.tensor([[3, 1, 4]]))


def test_an_attention_function_that_does_something_else_is_an_error() -> None:
    def linear(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        return (query @ key.mT @ value).transpose(1, 2).contiguous(), None

    AttentionInterface.register("linear", linear)
    model, _ = pair(CASES["bert"], "linear")
    with (
        pytest.raises(ConfigError, match=r"encoder.layer.0.attention.self \(BertSelfAttention\) does not follow from"),
        trace(model),
    ):
        model(torch.tensor([[3, 1, 4]]))


def test_attention_of_a_hugging_face_model_is_multiplied_with_gradients() -> None:
    model, eager = pair(CASES["llama, grouped"], "sdpa")
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with trace(model, grad=True) as recorded:
        states = model(ids).last_hidden_state
    output = eager(ids, output_attentions=True)
    maps = output.attentions
    gradients = torch.autograd.grad(output.last_hidden_state[0, -1, 3], maps)
    for layer, weights, gradient in zip(recorded.values(), maps, gradients, strict=True):
        product = layer.gradient_times_attention(states[0, -1, 3])
        assert_close(product, (weights * gradient).detach(), atol=1e-5, rtol=1e-4)


PATTERNS: dict[str, tuple[Mask, str]] = {
    "causal": (masks.causal(), "causal()"),
    "window": (masks.window(3), "window(3, 0)"),
    "window on both sides": (masks.window(2, 4), "window(2, 4)"),
    "padding": (masks.padding([9, 5]), "dense(2x1x1x9)"),
    "causal and padding": (masks.causal() & masks.padding([9, 5]), "causal() & dense(2x1x1x9)"),
    "window and padding": (masks.window(3) & masks.padding([9, 7]), "window(3, 0) & dense(2x1x1x9)"),
    "everything": (masks.window(None, None), "dense(1x1x1x9)"),
    "nothing": (masks.padding([0, 0]), "tensor"),
    "graph": (masks.graph(torch.tensor([[0, 3, 5], [2, 3, 1]])), "tensor"),
    "the strict past": (masks.from_function(lambda b, h, i, j: j < i), "tensor"),
}


@pytest.mark.parametrize("queries", [9, 4, 1])
@pytest.mark.parametrize("name", PATTERNS)
def test_a_compact_mask_has_the_same_entries(name: str, queries: int) -> None:
    mask, text = PATTERNS[name]
    if "graph" not in name or queries == 9:
        visible = mask.to_dense((2, 1, queries, 9)).expand(-1, -1, queries, -1)
        compact = compact_mask(visible)
        if queries == 9:
            assert str(compact).startswith(text)
        if not isinstance(compact, Tensor):
            compact = compact.to_dense((len(visible), 1, queries, 9))
        assert torch.equal(compact.expand_as(visible), visible)
