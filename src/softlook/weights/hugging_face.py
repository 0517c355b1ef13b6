"""Import and export of Hugging Face folders, and export of LoRA adapters in PEFT's format."""

import copy
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, get_args, get_type_hints

from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.lora import LORA_TENSORS, LoraLinear, lora_layers, merged_tensors
from softlook.blocks.scaled_linear import folded_tensors
from softlook.weights.architectures import ARCHITECTURES
from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.atomic_folder import atomic_folder, disk_errors
from softlook.weights.block_quantized import dequantize_layers, quantized_layers
from softlook.weights.meta import build_on_meta, check_depth, fill_computed_buffers, unique_tensors
from softlook.weights.schema import read_json, validate_config, write_json
from softlook.weights.sentence_transformers import MODULES_FILE, SentenceConfig
from softlook.weights.structure import check_structure
from softlook.weights.tensor_files import PICKLE_HELP, PICKLE_SUFFIXES, SINGLE_FILE, read_tensors, write_safetensors
from softlook.weights.tensor_map import Rename, TensorRule, load_mapped
from softlook.weights.tokenizer_files import TOKENIZER_CONFIG_FILE, copy_tokenizer, export_tokenizer

log = logging.getLogger("softlook.weights")
CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
TRAINING_FLAGS = {
    "pooling": "--pooling {}",
    "norm": "--model.norm {}",
    "ngrams": "--no-ngrams",
    "neighbors": "--no-ngrams",
    "product_keys": "no --memory",
    "persistent": "no --memory",
}
"""Settings that a flag of `softlook train` selects."""
COUNT_MODELS = ("ngrams", "neighbors")
"""Fields of the models beside attention."""
FIXED_FIELDS = ("vocab_size", "context", "dim", "depth", "heads", "hidden", "head", "classes", "dropout", "eps")
"""Fields of a config that do not decide whether a model can be exported, or that belong to its task."""


@dataclass(frozen=True)
class ImportedModel:
    """A model and its Hugging Face architecture."""

    model: nn.Module
    architecture: str
    """Display name, such as "GPT-2"."""
    head: str
    """softlook's name of the head."""


def from_hugging_face(folder: str | Path) -> nn.Module:
    """Load a folder written by `save_pretrained` as a softlook model, in eval mode.

    The architecture is detected from config.json and logged. Weights keep their dtype.

    >>> from_hugging_face("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not a folder. Expected a folder with config.json ...
    """
    return read_hugging_face(folder).model


def read_hugging_face(folder: str | Path) -> ImportedModel:
    """Like `from_hugging_face`, with the names of architecture and head."""
    folder = Path(folder)
    with disk_errors("read", folder):
        _check_folder(folder)
        config_json = read_json(folder / CONFIG_FILE)
        architecture, class_head = detect_architecture(config_json, folder)
        config = validate_config(
            architecture.config_class, config_json, architecture.ignored_fields, folder / CONFIG_FILE
        )
        check_depth(config.model_dump(), folder / CONFIG_FILE)
        tensors = _rename_legacy(read_tensors(folder), architecture, folder)
        config, tensors = architecture.resolve_tying(config, tensors)
        head = architecture.detect_head(class_head, folder, tensors.keys())
        factory = partial(architecture.build, config, head)
        model = build_on_meta(factory, folder / CONFIG_FILE)
        rules = architecture.tensor_map(model)
        if architecture.base_model_prefix and not any(
            name.startswith(architecture.base_model_prefix) for name in tensors
        ):
            rules = _strip_prefix(architecture.base_model_prefix, rules)  # the base model was saved without a head
        load_mapped(model, tensors, rules, architecture.ignored_tensors(model), folder)
    log.info("%s: %s (%s), loaded as %s", folder, architecture.name, head, type(model).__name__)
    return ImportedModel(fill_computed_buffers(model, factory).eval(), architecture.name, head)


def to_hugging_face(
    model: nn.Module,
    folder: str | Path,
    *,
    tokenizer: str | Path | None = None,
    sentence_config: SentenceConfig | None = None,
    labels: Sequence[str] = (),
    generation_config: Mapping[str, Any] | None = None,
    tokenizer_config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model as a new folder for Hugging Face's `from_pretrained`.

    - `tokenizer`: a tokenizer.json to copy into it.
    - `sentence_config`: settings of a sentence-transformers folder.
    - `labels`: class names; default: LABEL_0, LABEL_1, ...
    - `generation_config`: the content of generation_config.json.
    - `tokenizer_config`: the content of tokenizer_config.json for a tokenizer that softlook did not train.

    Quantized layers are dequantized.
    """
    model = dequantize_layers(copy.deepcopy(model)) if quantized_layers(model) else model
    architecture = _export_architecture(model)
    if architecture is None:
        supported = f"Supported: {', '.join(architecture.name for architecture in ARCHITECTURES)}."
        reason = explain_export(model) or supported
        raise WeightsError(f"Hugging Face has no architecture for this {type(model).__name__}. {reason}")
    check_structure(model)
    rules = architecture.tensor_map(model)
    if architecture.is_base_model(model):
        rules = _strip_prefix(architecture.base_model_prefix, rules)
    tensors, exported = folded_tensors(model, merged_tensors(model, unique_tensors(model))), {}
    for rule in rules:
        exported |= rule.write(tensors)
    exported |= architecture.extra_tensors(model)
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    config = {"dtype": dtype, **architecture.config_json(model, labels)}
    given = {GENERATION_FILE: generation_config, TOKENIZER_CONFIG_FILE: tokenizer_config}
    extra_files = architecture.extra_files(model) | {name: dict(content) for name, content in given.items() if content}
    if sentence_config is not None and MODULES_FILE in extra_files:
        extra_files |= sentence_config.to_files(model.config.context)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    with atomic_folder(Path(folder)) as partial_folder:
        write_safetensors(exported, partial_folder / SINGLE_FILE)
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), partial_folder)
            config |= export_tokenizer(partial_folder, getattr(model, "mode", ""))
        for name, content in {CONFIG_FILE: config, **extra_files}.items():
            if not (partial_folder / name).parent.is_dir():
                (partial_folder / name).parent.mkdir()
            write_json(partial_folder / name, content)
    return Path(folder)


def explain_export(model: nn.Module) -> str:
    """The settings of a model that no Hugging Face architecture has, with values that can be exported.

    >>> from softlook.models import Bert, BertConfig
    >>> explain_export(Bert(BertConfig(vocab_size=9, dim=8, depth=1, heads=2, head="classification", pooling="mean")))
    "Its pooling is 'mean': 'cls' can be exported (--pooling cls)."
    """
    config: Any = getattr(model, "config", None)
    if not is_dataclass(config) or isinstance(config, type):
        return ""
    small = replace(config, **{name: 1 for name in ("depth",) if hasattr(config, name)})  # depth changes nothing
    changes = [(field.name, value) for field in fields(config) for value in _alternatives(config, field)]
    for chosen in [*combinations(changes, 1), *combinations(changes, 2)]:
        try:
            other = build_on_meta(partial(type(model), replace(small, **dict(chosen))), Path())
        except WeightsError:  # not a valid config
            continue
        if len(dict(chosen)) == len(chosen) and _export_architecture(other) is not None:
            return " ".join(
                f"Its {name} is {getattr(config, name)!r:.40}: {value!r:.40} can be exported"
                f"{f' ({TRAINING_FLAGS[name].format(value)})' if name in TRAINING_FLAGS else ''}."
                for name, value in chosen
            )
    return ""


def _alternatives(config: Any, field: Field[Any]) -> list[Any]:
    """Other values of a setting: its default, and the choices of a Literal. Heads and sizes are not settings."""
    if field.name in FIXED_FIELDS:
        return []
    own, choices = getattr(config, field.name), get_args(get_type_hints(type(config)).get(field.name))
    default = [] if field.default is MISSING else [field.default]
    return [value for value in dict.fromkeys([*default, *(c for c in choices if isinstance(c, str))]) if value != own]


def _export_architecture(model: nn.Module) -> HFArchitecture | None:
    config = getattr(model, "config", None)
    if any(getattr(config, name, None) is not None for name in COUNT_MODELS):  # no architecture has a place for them
        return None
    return next((architecture for architecture in ARCHITECTURES if architecture.can_export(model)), None)


def detect_architecture(content: dict[str, Any], folder: Path) -> tuple[HFArchitecture, str]:
    """The architecture that config.json names, and the head of its class."""
    model_type, named = content.get("model_type"), content.get("architectures")
    architecture = next((architecture for architecture in ARCHITECTURES if architecture.model_type == model_type), None)
    if architecture is None:
        supported = ", ".join(f"{architecture.model_type} ({architecture.name})" for architecture in ARCHITECTURES)
        raise WeightsError(
            f"{folder} has model_type {model_type!r:.40}, which is not supported. Supported: {supported}."
        )
    named = named[0] if isinstance(named, list) and named else next(iter(architecture.head_by_class))
    if not isinstance(named, str) or named not in architecture.head_by_class:
        supported = ", ".join(architecture.head_by_class)
        raise WeightsError(f"{folder} holds a {named!r:.60}; supported classes of {architecture.name}: {supported}.")
    return architecture, architecture.head_by_class[named]


def _check_folder(folder: Path) -> None:
    if (folder / "softlook.json").is_file():
        raise WeightsError(f"{folder} is a softlook checkpoint. Use weights.load.")
    if folder.is_dir():
        return
    hint = f"Expected a folder with {CONFIG_FILE} and {SINGLE_FILE}."
    if folder.suffix in PICKLE_SUFFIXES:
        hint = f"It looks like {PICKLE_HELP}."
    if folder.suffix == ".gguf":
        hint = "Load a GGUF file with softlook.weights.from_gguf or `softlook import`."
    raise WeightsError(f"{folder} is not a folder. {hint}")


def _rename_legacy(tensors: dict[str, Tensor], architecture: HFArchitecture, folder: Path) -> dict[str, Tensor]:
    """Rename tensors from legacy names to current ones."""
    names = {name: architecture.rename_legacy(name) for name in tensors}
    twice = [name for name, times in Counter(names.values()).items() if times > 1]
    if twice:
        raise WeightsError(f"{folder} holds {twice[0]!r:.200} twice, under its legacy and its current name")
    return {names[name]: tensor for name, tensor in tensors.items()}


def _strip_prefix(prefix: str, rules: list[TensorRule]) -> list[TensorRule]:
    return [replace(rule, source=rule.source.removeprefix(prefix)) for rule in rules]


ADAPTER_FILE, ADAPTER_CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
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
    config = _adapter_config(next(iter(layers.values())), architecture, base) | {
        "target_modules": [_hf_layer(names, f"{name}.weight") for name in layers],
        "modules_to_save": sorted({hf_name.rpartition(".")[0] for hf_name in trained}) or None,
    }
    with atomic_folder(Path(folder)) as partial_folder:
        write_safetensors(tensors, partial_folder / ADAPTER_FILE)
        write_json(partial_folder / ADAPTER_CONFIG_FILE, config)
    return Path(folder)


def _hf_names(model: nn.Module) -> tuple[dict[str, str], str]:
    """Tensor names -> Hugging Face's names, for renamed tensors; and the Hugging Face class."""
    hf = _export_architecture(model)
    if hf is None or hf.is_base_model(model):
        raise WeightsError(
            f"PEFT needs a Hugging Face architecture, and there is none for this {type(model).__name__}."
        )
    renamed = [rule for rule in hf.tensor_map(model) if isinstance(rule, Rename) and not rule.transposed]
    return {rule.target: rule.source for rule in renamed}, hf.hf_class(model)


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


def _adapter_config(layer: LoraLinear, architecture: str, base: str | Path | None) -> dict[str, Any]:
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
