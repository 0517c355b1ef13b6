"""Adapters alone, as the PEFT package keeps them, for those who have the weights underneath already."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.lora import LoraLinear, lora_layers
from softlook.weights.families import FAMILIES
from softlook.weights.files import write_file
from softlook.weights.folders import new_folder
from softlook.weights.renaming import Same
from softlook.weights.structure import check_structure

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
INSIDE = "base_model.model."
"""What PEFT puts before the names of the model it wraps."""
TASKS = {
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "MTModel": "SEQ_2_SEQ_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}
"""How the name of Hugging Face's class ends -> what PEFT calls the task."""


def to_peft(model: nn.Module, folder: str | Path, *, base: str | Path | None = None) -> Path:
    """Write what a model with LoRA has learned as a new folder that `PeftModel.from_pretrained` reads.

    `base` is where the weights underneath lie, in Hugging Face's layout: a folder, or a name on their hub.

    >>> from softlook.models import Llama, LlamaConfig
    >>> to_peft(Llama(LlamaConfig(vocab=10, context=8, dim=16, depth=1, heads=2)), "adapter")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: this Llama has no adapters. Write it with to_hugging_face.
    """
    layers = lora_layers(model)
    if not layers:
        raise WeightsError(f"this {type(model).__name__} has no adapters. Write it with to_hugging_face.")
    check_structure(model)
    names, architecture = _their_names(model)
    tensors: dict[str, Tensor] = {}
    for name, layer in layers.items():
        where = f"{INSIDE}{_layer(names, f'{name}.weight')}"
        tensors |= {f"{where}.lora_A.weight": layer.down, f"{where}.lora_B.weight": layer.up}
    whole = _whole(model, names)
    tensors |= {f"{INSIDE}{theirs}": tensor for theirs, tensor in whole.items()}
    config = _config(next(iter(layers.values())), architecture, base) | {
        "target_modules": [_layer(names, f"{name}.weight") for name in layers],
        "modules_to_save": sorted({theirs.rpartition(".")[0] for theirs in whole}) or None,
    }
    with new_folder(Path(folder)) as made:
        write_file(tensors, made / WEIGHTS)
        (made / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def _their_names(model: nn.Module) -> tuple[dict[str, str], str]:
    """Our name -> Hugging Face's, of tensors that are the same there; and their class."""
    family = next((family for family in FAMILIES if family.writes(model)), None)
    if family is None or family.bare(model):
        raise WeightsError(f"Hugging Face has no architecture for this {type(model).__name__}, and PEFT adapts theirs.")
    same = [rule for rule in family.rules(model) if isinstance(rule, Same) and not rule.on_its_side]
    return {rule.ours: rule.theirs for rule in same}, family.describe(model)["architectures"][0]


def _layer(names: dict[str, str], ours: str) -> str:
    if ours not in names:
        raise WeightsError(f"{ours!r:.200} is only a part of a layer of Hugging Face's, which PEFT adapts as a whole")
    return names[ours].removesuffix(".weight")


def _whole(model: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    """What learned as a whole beside the adapters, by their names: layers, of which PEFT keeps all or nothing."""
    adapters = {f"{name}.{part}" for name in lora_layers(model) for part in ("down", "up")}
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad and name not in adapters}
    weights = {names.get(name) for name in learned}
    for name in learned:
        if f"{names.get(name, '').rpartition('.')[0]}.weight" not in weights:
            raise WeightsError(
                f"{name!r:.200} learned as a whole, but is no layer of Hugging Face's. PEFT keeps layers."
            )
    return {names[name]: tensor for name, tensor in learned.items()}


def _config(layer: LoraLinear, architecture: str, base: str | Path | None) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": next((task for end, task in TASKS.items() if architecture.endswith(end)), None),
        "base_model_name_or_path": None if base is None else str(base),
        "r": layer.rank,
        "lora_alpha": layer.alpha,
        "lora_dropout": layer.drop.p,
        "bias": "none",
        "inference_mode": True,
    }
