"""Export of LoRA adapters in PEFT's format."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.lora import LORA_TENSORS, LoraLinear, lora_layers
from softlook.weights.architectures import ARCHITECTURES
from softlook.weights.atomic_folder import atomic_folder
from softlook.weights.structure import check_structure
from softlook.weights.tensor_files import write_safetensors
from softlook.weights.tensor_map import Rename

WEIGHTS_FILE, ADAPTER_CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
PEFT_PREFIX = "base_model.model."
"""Prefix that PEFT adds to tensor names."""
TASKS = {
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "MTModel": "SEQ_2_SEQ_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}
"""Suffix of a Hugging Face class -> PEFT's task type."""


def to_peft(model: nn.Module, folder: str | Path, *, base: str | Path | None = None) -> Path:
    """Write the LoRA adapters of a model as a new folder for `PeftModel.from_pretrained`.

    `base` is the Hugging Face folder or hub name of the base model.

    >>> from softlook.models import Llama, LlamaConfig
    >>> to_peft(Llama(LlamaConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)), "adapter")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: this Llama has no LoRA adapters. Use to_hugging_face.
    """
    layers = lora_layers(model)
    if not layers:
        raise WeightsError(f"this {type(model).__name__} has no LoRA adapters. Use to_hugging_face.")
    check_structure(model)
    names, architecture = _hf_names(model)
    tensors: dict[str, Tensor] = {}
    for name, layer in layers.items():
        prefix = f"{PEFT_PREFIX}{_hf_layer(names, f'{name}.weight')}"
        tensors |= {f"{prefix}.lora_A.weight": layer.lora_A, f"{prefix}.lora_B.weight": layer.lora_B}
    trained = _fully_trained(model, names)
    tensors |= {f"{PEFT_PREFIX}{hf_name}": tensor for hf_name, tensor in trained.items()}
    config = _config(next(iter(layers.values())), architecture, base) | {
        "target_modules": [_hf_layer(names, f"{name}.weight") for name in layers],
        "modules_to_save": sorted({hf_name.rpartition(".")[0] for hf_name in trained}) or None,
    }
    with atomic_folder(Path(folder)) as partial:
        write_safetensors(tensors, partial / WEIGHTS_FILE)
        (partial / ADAPTER_CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def _hf_names(model: nn.Module) -> tuple[dict[str, str], str]:
    """Tensor names -> Hugging Face's names, for renamed tensors; and the Hugging Face class."""
    hf = next((hf for hf in ARCHITECTURES if hf.can_export(model)), None)
    if hf is None or hf.is_base_model(model):
        raise WeightsError(
            f"PEFT needs a Hugging Face architecture, and there is none for this {type(model).__name__}."
        )
    renamed = [rule for rule in hf.tensor_map(model) if isinstance(rule, Rename) and not rule.transposed]
    return {rule.target: rule.source for rule in renamed}, hf.to_config(model)["architectures"][0]


def _hf_layer(names: dict[str, str], name: str) -> str:
    if name not in names:
        raise WeightsError(
            f"{name!r:.200} is part of a fused layer in Hugging Face's model, which PEFT adapts only as a whole"
        )
    return names[name].removesuffix(".weight")


def _fully_trained(model: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    """Trained tensors that are not adapters, by Hugging Face's names; PEFT stores them as whole layers."""
    adapters = {f"{name}.{part}" for name in lora_layers(model) for part in LORA_TENSORS[1:]}
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad and name not in adapters}
    weights = {names.get(name) for name in learned}
    for name in learned:
        if f"{names.get(name, '').rpartition('.')[0]}.weight" not in weights:
            raise WeightsError(
                f"{name!r:.200} was trained but is not a layer of Hugging Face's model. PEFT stores layers."
            )
    return {names[name]: tensor for name, tensor in learned.items()}


def _config(layer: LoraLinear, architecture: str, base: str | Path | None) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": next((task for end, task in TASKS.items() if architecture.endswith(end)), None),
        "base_model_name_or_path": None if base is None else str(base),
        "r": layer.rank,
        "lora_alpha": layer.alpha,
        "lora_dropout": layer.dropout.p,
        "bias": "none",
        "inference_mode": True,
    }
