"""Export of LoRA adapters in PEFT's format."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks import add_lora
from softlook.models import GPT, T5, Bert, BertConfig, GPTConfig, Llama, LlamaConfig, T5Config
from softlook.weights import to_hugging_face
from softlook.weights.hugging_face import to_peft
from softlook.weights.schema import read_json
from softlook.weights.tensor_files import SINGLE_FILE, read_safetensors

SIZES: dict[str, Any] = {"vocab_size": 11, "dim": 16, "depth": 2, "heads": 2}
LINEAR = ("to_query", "to_key", "to_value", "to_out", "to_up")
MODELS: dict[str, tuple[Callable[[], nn.Module], list[str], str | None, list[str] | None]] = {
    "bert": (
        lambda: Bert(BertConfig(**SIZES, context=8, head="classification")),
        ["head"],
        "SEQ_CLS",
        ["bert.pooler.dense", "classifier"],
    ),
    "bert for masked lm": (lambda: Bert(BertConfig(**SIZES, context=8)), [], None, None),
    "llama": (lambda: Llama(LlamaConfig(**SIZES, context=8)), [], "CAUSAL_LM", None),
    "t5": (lambda: T5(T5Config(**SIZES, hidden=32)), [], "SEQ_2_SEQ_LM", None),
}


def with_trained_lora(model: nn.Module, **settings: Any) -> nn.Module:
    """A model with LoRA adapters and random values in all trainable parameters."""
    add_lora(model, 4, alpha=6.0, **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) if parameter.requires_grad else 0.0)
    return model


def merge_adapter(base: dict[str, Tensor], adapter: Path) -> dict[str, Tensor]:
    """Base weights with the adapter merged, as PEFT does it."""
    config, tensors = (
        read_json(adapter / "adapter_config.json"),
        read_safetensors(adapter / "adapter_model.safetensors"),
    )
    merged = dict(base)
    for name in config["target_modules"]:
        down, up = (tensors.pop(f"base_model.model.{name}.lora_{part}.weight") for part in "AB")
        merged[f"{name}.weight"] = base[f"{name}.weight"] + config["lora_alpha"] / config["r"] * up @ down
    saved = {name.removeprefix("base_model.model."): tensor for name, tensor in tensors.items()}
    assert {name.rpartition(".")[0] for name in saved} == set(config["modules_to_save"] or ())
    return merged | saved


@pytest.mark.parametrize("name", MODELS)
def test_base_and_adapter_merge_to_the_model(name: str, tmp_path: Path) -> None:
    make, trained, task, layers = MODELS[name]
    model = make()
    base = to_hugging_face(model, tmp_path / "base")
    with_trained_lora(
        model, modules_to_save=trained, target_modules=LINEAR if name != "t5" else ("to_query", "to_value")
    )
    adapter = to_peft(model, tmp_path / "adapter", base=base)
    reference = read_safetensors(to_hugging_face(model, tmp_path / "whole") / SINGLE_FILE)
    torch.testing.assert_close(
        merge_adapter(read_safetensors(base / SINGLE_FILE), adapter), reference, atol=1e-5, rtol=1e-5
    )
    config = read_json(adapter / "adapter_config.json")
    assert (config["task_type"], config["modules_to_save"]) == (task, layers)
    assert config["base_model_name_or_path"] == str(base)


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_peft_loads_the_adapter_with_the_same_outputs(name: str, tmp_path: Path) -> None:
    """Tested with peft 0.21 and transformers 5.22, which are not required otherwise."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    ids = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
    make, trained, _, _ = MODELS[name]
    model = make().eval()
    base = to_hugging_face(model, tmp_path / "base")
    with_trained_lora(model, modules_to_save=trained, dropout=0.5)
    to_peft(model, tmp_path / "adapter", base=base)
    kind = {"bert": "BertForSequenceClassification", "llama": "LlamaForCausalLM", "t5": "T5ForConditionalGeneration"}
    reference = getattr(transformers, kind[name]).from_pretrained(base)
    wrapped = peft.PeftModel.from_pretrained(reference, tmp_path / "adapter").eval()
    both = {"decoder_input_ids": ids} if name == "t5" else {}
    actual = model(ids, ids) if both else model(ids)
    torch.testing.assert_close(wrapped(input_ids=ids, **both).logits, actual, atol=1e-4, rtol=1e-4)


def test_adapters_that_peft_cannot_represent_raise_an_error(tmp_path: Path) -> None:
    cases = (
        (GPT(GPTConfig(**SIZES, context=8)), (), r"'blocks.0.attn.to_query.weight' is part of a fused layer"),
        (Bert(BertConfig(**SIZES, head="classification", pooling="mean")), ["head"], "there is none for this Bert"),
        (Bert(BertConfig(**SIZES)), ["head.to_logits"], "'head.to_logits.bias' was trained but is not a layer"),
    )
    for model, trained, message in cases:
        with pytest.raises(WeightsError, match=message):
            to_peft(with_trained_lora(model, modules_to_save=trained), tmp_path / "adapter")
    with pytest.raises(WeightsError, match="this Bert has no LoRA adapters. Use to_hugging_face."):
        to_peft(Bert(BertConfig(**SIZES)), tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
