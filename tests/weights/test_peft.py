"""Adapters alone, in PEFT's layout: with the weights underneath they are the whole model again."""

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
from softlook.weights.files import SINGLE, read_file
from softlook.weights.peft import to_peft
from softlook.weights.schema import read_json

SIZES: dict[str, Any] = {"vocab": 11, "dim": 16, "depth": 2, "heads": 2}
LINEAR = ("to_query", "to_key", "to_value", "to_out", "to_hidden")
MODELS: dict[str, tuple[Callable[[], nn.Module], list[str], str | None, list[str] | None]] = {
    "bert": (
        lambda: Bert(BertConfig(**SIZES, context=8, head="classes")),
        ["head"],
        "SEQ_CLS",
        ["bert.pooler.dense", "classifier"],
    ),
    "bert for words": (lambda: Bert(BertConfig(**SIZES, context=8)), [], None, None),
    "llama": (lambda: Llama(LlamaConfig(**SIZES, context=8)), [], "CAUSAL_LM", None),
    "t5": (lambda: T5(T5Config(**SIZES, hidden=32)), [], "SEQ_2_SEQ_LM", None),
}


def adapted(model: nn.Module, **settings: Any) -> nn.Module:
    """A model whose adapters, and whatever else may learn, have learned something."""
    add_lora(model, 4, alpha=6.0, **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) if parameter.requires_grad else 0.0)
    return model


def put_together(base: dict[str, Tensor], adapter: Path) -> dict[str, Tensor]:
    """What PEFT makes of both."""
    config, tensors = read_json(adapter / "adapter_config.json"), read_file(adapter / "adapter_model.safetensors")
    made = dict(base)
    for name in config["target_modules"]:
        down, up = (tensors.pop(f"base_model.model.{name}.lora_{part}.weight") for part in "AB")
        made[f"{name}.weight"] = base[f"{name}.weight"] + config["lora_alpha"] / config["r"] * up @ down
    whole = {name.removeprefix("base_model.model."): tensor for name, tensor in tensors.items()}
    assert {name.rpartition(".")[0] for name in whole} == set(config["modules_to_save"] or ())
    return made | whole


@pytest.mark.parametrize("name", MODELS)
def test_adapters_and_what_they_were_added_to_are_the_whole_model(name: str, tmp_path: Path) -> None:
    make, whole, task, layers = MODELS[name]
    model = make()
    base = to_hugging_face(model, tmp_path / "base")
    adapted(model, whole=whole, targets=LINEAR if name != "t5" else ("to_query", "to_value"))
    adapter = to_peft(model, tmp_path / "adapter", base=base)
    theirs = read_file(to_hugging_face(model, tmp_path / "whole") / SINGLE)
    torch.testing.assert_close(put_together(read_file(base / SINGLE), adapter), theirs, atol=1e-5, rtol=1e-5)
    config = read_json(adapter / "adapter_config.json")
    assert (config["task_type"], config["modules_to_save"]) == (task, layers)
    assert config["base_model_name_or_path"] == str(base)


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_peft_reads_it_and_answers_alike(name: str, tmp_path: Path) -> None:
    """Seen with peft 0.21 and transformers 5.22; neither is needed for anything else."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    ids = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
    make, whole, _, _ = MODELS[name]
    model = make().eval()
    base = to_hugging_face(model, tmp_path / "base")
    adapted(model, whole=whole, dropout=0.5)
    to_peft(model, tmp_path / "adapter", base=base)
    kind = {"bert": "BertForSequenceClassification", "llama": "LlamaForCausalLM", "t5": "T5ForConditionalGeneration"}
    theirs = getattr(transformers, kind[name]).from_pretrained(base)
    wrapped = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    both = {"decoder_input_ids": ids} if name == "t5" else {}
    ours = model(ids, ids) if both else model(ids)
    torch.testing.assert_close(wrapped(input_ids=ids, **both).logits, ours, atol=1e-4, rtol=1e-4)


def test_what_peft_cannot_keep_is_refused(tmp_path: Path) -> None:
    cases = (
        (GPT(GPTConfig(**SIZES, context=8)), (), r"'blocks.0.attend.to_query.weight' is only a part of a layer"),
        (Bert(BertConfig(**SIZES, head="classes", pooling="mean")), ["head"], "has no architecture for this Bert"),
        (Bert(BertConfig(**SIZES)), ["head.to_words.bias"], "'head.to_words.bias' learned as a whole, but is no layer"),
    )
    for model, whole, said in cases:
        with pytest.raises(WeightsError, match=said):
            to_peft(adapted(model, whole=whole), tmp_path / "adapter")
    with pytest.raises(WeightsError, match="this Bert has no adapters. Write it with to_hugging_face."):
        to_peft(Bert(BertConfig(**SIZES)), tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
