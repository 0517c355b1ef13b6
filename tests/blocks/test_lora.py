"""LoRA begins as the model it is added to, teaches nothing but its detours, and leaves a plain model."""

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
Made = tuple[nn.Module, Callable[[nn.Module], Tensor]]


def one(model: nn.Module) -> Tensor:
    return model(IDS)


def two(model: nn.Module) -> Tensor:
    return model(IDS, IDS)


SIZES: dict[str, Any] = {"vocab_size": 11, "dim": 16, "depth": 2, "heads": 2}
MODELS: dict[str, Callable[[], Made]] = {
    "bert": lambda: (Bert(BertConfig(**SIZES, context=8, head="classification")), one),
    "gpt": lambda: (GPT(GPTConfig(**SIZES, context=8)), one),
    "llama": lambda: (Llama(LlamaConfig(**SIZES, context=8, kv_heads=1)), one),
    "t5": lambda: (T5(T5Config(**SIZES, hidden=32)), two),
    "transformer": lambda: (Transformer(TransformerConfig(**SIZES)), two),
    "transformer_xl": lambda: (TransformerXL(TransformerXLConfig(**SIZES, hidden=32)), one),
}


def bert() -> Bert:
    return Bert(BertConfig(**SIZES, context=8, head="classification", classes=3, dropout=0.0))


def taught(model: nn.Module, ask: Callable[[nn.Module], Tensor], steps: int = 3) -> None:
    """Some steps in a direction that changes the answer."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        ask(model).square().mean().backward()
        optimizer.step()


def kept(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_at_first_it_answers_as_before_and_merged_it_answers_as_adapted(name: str) -> None:
    torch.manual_seed(0)
    model, ask = MODELS[name]()
    model.eval()
    names, before = list(model.state_dict()), ask(model)
    add_lora(model, rank=4)
    assert torch.equal(ask(model), before)
    taught(model, ask)
    adapted = ask(model)
    assert not torch.allclose(adapted, before, atol=1e-3)
    merge_lora(model)
    torch.testing.assert_close(ask(model), adapted, atol=1e-6, rtol=1e-5)
    assert sorted(model.state_dict()) == sorted(names)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_nothing_learns_but_the_detours_and_what_is_to_learn_whole() -> None:
    model = bert()
    add_lora(model, rank=2, modules_to_save=["head"])
    before = kept(model)
    taught(model, one)
    changed = {name for name, tensor in kept(model).items() if not torch.equal(tensor, before[name])}
    detours = {
        f"blocks.{i}.attn.to_{part}.{way}"
        for i in (0, 1)
        for part in ("query", "value")
        for way in ("lora_A", "lora_B")
    }
    assert changed == detours | {name for name in before if name.startswith("head.")}


def test_few_weights_learn() -> None:
    model = bert()
    add_lora(model, rank=2)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 2 * 2 * 2 * (16 + 16)


def test_a_detour_counts_by_alpha_over_rank_and_twice_where_nobody_says() -> None:
    layer, x = nn.Linear(6, 5), torch.randn(3, 6)
    for alpha, scale in ((None, 2.0), (12.0, 3.0)):
        lora = LoraLinear(copy.deepcopy(layer), 4, alpha=alpha)
        nn.init.normal_(lora.lora_B)
        torch.testing.assert_close(lora(x), layer(x) + scale * (x @ lora.lora_A.mT @ lora.lora_B.mT))
        torch.testing.assert_close(lora.weight, layer.weight + scale * lora.lora_B @ lora.lora_A)


def test_only_the_detour_is_dropped_and_only_while_training() -> None:
    layer, x = nn.Linear(64, 8), torch.randn(100, 64)
    lora = LoraLinear(layer, 4, dropout=0.5)
    assert torch.equal(lora(x), layer(x))
    nn.init.normal_(lora.lora_B)
    assert not torch.equal(lora(x), lora(x))
    lora.eval()
    assert torch.equal(lora(x), lora(x))
    assert not LoraLinear(layer.eval(), 4).dropout.training


def test_layers_are_named_by_the_end_of_their_names() -> None:
    every, some = bert(), bert()
    add_lora(every, target_modules=["to_out"])
    add_lora(some, target_modules=["attn.to_out", "1.ffn.to_up"])
    assert set(lora_layers(every)) == {f"blocks.{i}.{part}.to_out" for i in (0, 1) for part in ("attn", "ffn")}
    assert set(lora_layers(some)) == {"blocks.0.attn.to_out", "blocks.1.attn.to_out", "blocks.1.ffn.to_up"}


def test_a_layer_without_bias_and_any_model_of_torchs_will_do() -> None:
    """torch reads the weights of its Transformer's layers without calling them when it is in a hurry."""
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, bias=False).eval()
    x = torch.randn(2, 5, 16)
    before = model(x)
    add_lora(model, target_modules=["linear1", "linear2"])
    taught(model, lambda model: model(x))
    with torch.no_grad():
        hurried = model(x)
    slowly = model(x)
    assert not torch.allclose(slowly, before, atol=1e-3)
    torch.testing.assert_close(hurried, slowly, atol=1e-5, rtol=1e-5)


def test_a_layer_in_two_places_stays_one_layer() -> None:
    layer = nn.Linear(4, 4)
    model = nn.ModuleDict({"one": layer, "other": layer})
    add_lora(model, target_modules=["one"])
    assert model["one"] is model["other"] and isinstance(model["one"], LoraLinear)
    merge_lora(model)
    assert model["one"] is model["other"] and type(model["one"]) is nn.Linear


def test_what_is_left_on_disk_is_a_plain_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Bert(replace(bert().config, pooling="cls")).eval()
    add_lora(model, modules_to_save=["head.to_classes"])
    taught(model, one)
    for again in (load(save(model, tmp_path / "own")), from_hugging_face(to_hugging_face(model, tmp_path / "theirs"))):
        assert not lora_layers(again)
        torch.testing.assert_close(one(again), one(model), atol=1e-6, rtol=1e-5)


def test_a_model_without_detours_holds_what_it_holds() -> None:
    model = bert()
    own = model.state_dict()
    plain = merged_tensors(model, own)
    assert plain.keys() == own.keys()
    assert all(plain[name] is tensor for name, tensor in own.items())


def test_names_that_mean_nothing_are_refused() -> None:
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


def test_a_model_that_is_refused_is_left_as_it_was() -> None:
    model = bert()
    with pytest.raises(ConfigError):
        add_lora(model, target_modules=["to_value", "to_qery"])
    assert not lora_layers(model)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_table_that_is_also_read_elsewhere_cannot_be_adapted_by_itself() -> None:
    with pytest.raises(
        ConfigError, match=r"the model has no linear layer 'head'\. Did you mean 'lm_head'\? It has lm_head,"
    ):
        add_lora(GPT(GPTConfig(**SIZES, context=8)), target_modules=["head"])


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}], ids=str)
def test_sizes_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="LoRA requires rank >= 1, alpha > 0 and 0 <= dropout < 1, got rank 8, alpha"):
        add_lora(bert(), **wrong)  # pyright: ignore[reportArgumentType]


def test_twice_is_refused() -> None:
    model = bert()
    add_lora(model)
    with pytest.raises(ConfigError, match=r"the model already has LoRA adapters\. Call merge_lora first\."):
        add_lora(model, target_modules=["to_out"])


def test_the_settings_name_the_same_layers() -> None:
    assert LoraConfig().target_modules == DEFAULT_TARGET_MODULES
