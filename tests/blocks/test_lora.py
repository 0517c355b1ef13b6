"""LoRA: adapters start as the identity, are the only trained weights, and merge into a plain model."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks import LoraLinear, add_lora, merge_lora
from softlook.blocks.lora import DEFAULT_TARGET_MODULES, lora_layers, merged_tensors
from softlook.models import (
    GPT,
    T5,
    Bert,
    BertConfig,
    GPTConfig,
    Llama,
    LlamaConfig,
    T5Config,
    Transformer,
    TransformerConfig,
    TransformerXL,
    TransformerXLConfig,
)
from softlook.recipes.config.schema import LoraConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face

IDS = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
ModelAndForward = tuple[nn.Module, Callable[[nn.Module], Tensor]]


def one(model: nn.Module) -> Tensor:
    return model(IDS)


def two(model: nn.Module) -> Tensor:
    return model(IDS, IDS)


SIZES: dict[str, Any] = {"vocab_size": 11, "dim": 16, "depth": 2, "heads": 2}
MODELS: dict[str, Callable[[], ModelAndForward]] = {
    "bert": lambda: (Bert(BertConfig(**SIZES, context=8, head="classification")), one),
    "gpt": lambda: (GPT(GPTConfig(**SIZES, context=8)), one),
    "llama": lambda: (Llama(LlamaConfig(**SIZES, context=8, kv_heads=1)), one),
    "t5": lambda: (T5(T5Config(**SIZES, hidden=32)), two),
    "transformer": lambda: (Transformer(TransformerConfig(**SIZES)), two),
    "transformer_xl": lambda: (TransformerXL(TransformerXLConfig(**SIZES, hidden=32)), one),
}


def bert() -> Bert:
    return Bert(BertConfig(**SIZES, context=8, head="classification", classes=3, dropout=0.0))


def train(model: nn.Module, forward: Callable[[nn.Module], Tensor], steps: int = 3) -> None:
    """Some optimizer steps that change the output."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        forward(model).square().mean().backward()
        optimizer.step()


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_new_adapters_do_not_change_outputs_and_merging_keeps_the_trained_outputs(name: str) -> None:
    torch.manual_seed(0)
    model, forward = MODELS[name]()
    model.eval()
    names, before = list(model.state_dict()), forward(model)
    add_lora(model, rank=4)
    assert torch.equal(forward(model), before)
    train(model, forward)
    adapted = forward(model)
    assert not torch.allclose(adapted, before, atol=1e-3)
    merge_lora(model)
    torch.testing.assert_close(forward(model), adapted, atol=1e-6, rtol=1e-5)
    assert sorted(model.state_dict()) == sorted(names)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_only_adapters_and_modules_to_save_are_trained() -> None:
    model = bert()
    add_lora(model, rank=2, modules_to_save=["head"])
    before = parameters_of(model)
    train(model, one)
    changed = {name for name, tensor in parameters_of(model).items() if not torch.equal(tensor, before[name])}
    adapters = {
        f"blocks.{i}.attn.to_{layer}.{matrix}"
        for i in (0, 1)
        for layer in ("query", "value")
        for matrix in ("lora_A", "lora_B")
    }
    assert changed == adapters | {name for name in before if name.startswith("head.")}


def test_the_number_of_trained_parameters_is_that_of_the_adapters() -> None:
    model = bert()
    add_lora(model, rank=2)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 2 * 2 * 2 * (16 + 16)


def test_an_adapter_is_scaled_by_alpha_over_rank_and_by_two_by_default() -> None:
    layer, x = nn.Linear(6, 5), torch.randn(3, 6)
    for alpha, scale in ((None, 2.0), (12.0, 3.0)):
        lora = LoraLinear(copy.deepcopy(layer), 4, alpha=alpha)
        nn.init.normal_(lora.lora_B)
        torch.testing.assert_close(lora(x), layer(x) + scale * (x @ lora.lora_A.mT @ lora.lora_B.mT))
        torch.testing.assert_close(lora.weight, layer.weight + scale * lora.lora_B @ lora.lora_A)


def test_dropout_applies_to_the_adapter_only_and_in_training_only() -> None:
    layer, x = nn.Linear(64, 8), torch.randn(100, 64)
    lora = LoraLinear(layer, 4, dropout=0.5)
    assert torch.equal(lora(x), layer(x))
    nn.init.normal_(lora.lora_B)
    assert not torch.equal(lora(x), lora(x))
    lora.eval()
    assert torch.equal(lora(x), lora(x))
    assert not LoraLinear(layer.eval(), 4).dropout.training


def test_target_modules_match_the_end_of_layer_names() -> None:
    every, some = bert(), bert()
    add_lora(every, target_modules=["to_out"])
    add_lora(some, target_modules=["attn.to_out", "1.ffn.to_up"])
    assert set(lora_layers(every)) == {f"blocks.{i}.{part}.to_out" for i in (0, 1) for part in ("attn", "ffn")}
    assert set(lora_layers(some)) == {"blocks.0.attn.to_out", "blocks.1.attn.to_out", "blocks.1.ffn.to_up"}


def test_layers_without_bias_and_torch_models_are_supported() -> None:
    """torch's fast path reads the weights of its Transformer's layers without calling them."""
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, bias=False).eval()
    x = torch.randn(2, 5, 16)
    before = model(x)
    add_lora(model, target_modules=["linear1", "linear2"])
    train(model, lambda model: model(x))
    with torch.no_grad():
        fast_path = model(x)
    slow_path = model(x)
    assert not torch.allclose(slow_path, before, atol=1e-3)
    torch.testing.assert_close(fast_path, slow_path, atol=1e-5, rtol=1e-5)


def test_a_shared_layer_stays_shared() -> None:
    layer = nn.Linear(4, 4)
    model = nn.ModuleDict({"one": layer, "other": layer})
    add_lora(model, target_modules=["one"])
    assert model["one"] is model["other"] and isinstance(model["one"], LoraLinear)
    merge_lora(model)
    assert model["one"] is model["other"] and type(model["one"]) is nn.Linear


def test_saved_and_exported_models_have_no_adapters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Bert(replace(bert().config, pooling="cls")).eval()
    add_lora(model, modules_to_save=["head.to_classes"])
    train(model, one)
    for again in (load(save(model, tmp_path / "own")), from_hugging_face(to_hugging_face(model, tmp_path / "hf"))):
        assert not lora_layers(again)
        torch.testing.assert_close(one(again), one(model), atol=1e-6, rtol=1e-5)


def test_merged_tensors_of_a_model_without_adapters_are_its_own() -> None:
    model = bert()
    own = model.state_dict()
    plain = merged_tensors(model, own)
    assert plain.keys() == own.keys()
    assert all(plain[name] is tensor for name, tensor in own.items())


def test_names_without_a_match_raise_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"the model has no linear layer 'to_qery'\. Did you mean 'to_query'\? It has dense,"
    ):
        add_lora(bert(), target_modules=["to_value", "to_qery"])
    with pytest.raises(ConfigError, match="the model has no module 'haed' to train in full"):
        add_lora(bert(), modules_to_save=["haed"])
    with pytest.raises(ConfigError, match=r"the model has no linear layer 'to_query'\. It has none\."):
        add_lora(nn.Embedding(3, 4))
    with pytest.raises(ConfigError, match="target_modules is empty"):
        add_lora(bert(), target_modules=[])


def test_an_error_leaves_the_model_unchanged() -> None:
    model = bert()
    with pytest.raises(ConfigError):
        add_lora(model, target_modules=["to_value", "to_qery"])
    assert not lora_layers(model)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_tied_weight_cannot_be_adapted_by_itself() -> None:
    with pytest.raises(ConfigError, match="'lm_head' shares its weight with another module"):
        add_lora(GPT(GPTConfig(**SIZES, context=8)), target_modules=["lm_head"])


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}], ids=str)
def test_invalid_sizes_raise_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="LoRA requires rank >= 1, alpha > 0 and 0 <= dropout < 1, got rank "):
        add_lora(bert(), **wrong)  # pyright: ignore[reportArgumentType]


def test_adding_lora_twice_raises_an_error() -> None:
    model = bert()
    add_lora(model)
    with pytest.raises(ConfigError, match=r"the model already has LoRA adapters\. Call merge_lora first\."):
        add_lora(model, target_modules=["to_out"])


def test_the_config_and_the_function_have_the_same_default_target_modules() -> None:
    assert LoraConfig().target_modules == DEFAULT_TARGET_MODULES
