"""Random small Hugging Face folders for every supported architecture, with transformers as the reference.

A field of a config class gets a random value by its name or type: a new architecture with the usual field names is
covered without changes. `GENERATORS` has the special fields of architectures. To count equal, rejected and wrong
folders: `python -m tests.parity.random_folders 2000`.
"""

import logging
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face
from softlook.weights.architectures import ARCHITECTURES
from softlook.weights.architectures.base import HFArchitecture
from tests.parity.encoders import as_tuple, run_reference

Rng = random.Random
MAX_PARAMETERS = 2_000_000
"""Larger models are skipped; an architecture whose config has other names of sizes needs a generator."""
TOLERANCES = {torch.float64: 1e-5, torch.float32: 2e-4}
"""transformers computes some steps in float32 even for float64 inputs."""
ACTIVATIONS = (
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
    "gelu_fast",
    "gelu_python",
    "quick_gelu",
    "relu",
    "relu2",
    "silu",
)
PROBLEMS = (None, "single_label_classification", "multi_label_classification", "regression")
IGNORED = {
    *("transformers_version", "architectures", "output_hidden_states", "return_dict", "dtype", "id2label", "label2id"),
    *("is_encoder_decoder", "use_cache", "initializer_range", "initializer_factor", "init_std", "problem_type"),
    *("bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_eos_token_id", "encoder_stride"),
}
"""Fields that do not change outputs, or with which transformers fails."""


def sizes(rng: Rng) -> dict[str, Any]:
    """Compatible sizes, under all their names in configs."""
    heads, width = rng.choice([1, 2, 4]), rng.choice([2, 4, 6, 8])
    dim, hidden, depth, context = heads * width, rng.randint(1, 40), rng.randint(1, 3), rng.randint(16, 40)
    kv_heads = rng.choice([number for number in (1, 2, 4) if heads % number == 0])
    return {
        **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim"), dim),
        **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), depth),
        **dict.fromkeys(("num_decoder_layers", "decoder_layers"), rng.choice([depth, rng.randint(1, 3)])),
        **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), heads),
        "decoder_attention_heads": rng.choice([*[heads] * 7, 1]),
        **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff", "encoder_ffn_dim"), hidden),
        "decoder_ffn_dim": rng.choice([*[hidden] * 7, hidden + 1]),
        "n_inner": rng.choice([None, hidden]),
        "num_key_value_heads": kv_heads,
        "head_dim": rng.choice([None, width, 2 * rng.randint(1, 5)]),
        "d_kv": rng.choice([width, rng.randint(1, 9)]),
        **dict.fromkeys(("max_position_embeddings", "n_positions"), context),
        "vocab_size": rng.randint(12, 40),
        "type_vocab_size": rng.randint(1, 3),
        "relative_attention_num_buckets": 2 * rng.randint(2, 8),
        "relative_attention_max_distance": rng.randint(9, 40),
        "sliding_window": rng.choice([None, rng.randint(1, 9), 100]),
        "max_window_layers": rng.randint(0, 3),
        "layer_types": rng.choice([None, [rng.choice(["full_attention", "sliding_attention"]) for _ in range(depth)]]),
        "image_size": rng.choice([8, 12]),
        "patch_size": rng.choice([2, 4]),
        "num_channels": rng.randint(1, 3),
        "pooler_output_size": rng.choice([None, None, dim, dim + 1]),
        "pooler_act": rng.choice(["tanh", "tanh", "relu"]),
        "chunk_size_feed_forward": rng.choice([0, 0, 1]),
        "pretraining_tp": 1,
        "pad_token_id": rng.choice([0, 1, 1, 3]),
        "summary_type": "cls_index",
        "feed_forward_proj": rng.choice(["relu", "gated-gelu", "gated-silu", "gelu", "silu"]),
        "rope_parameters": rope(rng, context),
    }


def rope(rng: Rng, context: int) -> dict[str, Any] | None:
    """RoPE parameters of every type that transformers supports for plain decoders."""
    kind = rng.choice([None, "default", "linear", "dynamic", "yarn", "llama3"])
    if kind is None:
        return None
    found: dict[str, Any] = {"rope_type": kind, "rope_theta": rng.choice([100.0, 1e4, 5e5])}
    if kind == "default":
        return found | rng.choice([{}, {}, {"partial_rotary_factor": 0.5}])
    found["factor"] = rng.choice([1.5, 4.0, 8.0])
    original = rng.choice([context, max(context // 2, 4)])
    if kind == "llama3":
        return found | {
            "low_freq_factor": rng.choice([1.0, 2.0]),
            "high_freq_factor": rng.choice([4.0, 8.0]),
            "original_max_position_embeddings": original,
        }
    if kind == "yarn":
        found |= rng.choice([{}, {"original_max_position_embeddings": original}])
        found |= rng.choice([{}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"attention_factor": 0.7}, {"truncate": False}])
        found |= rng.choice([{}, {"mscale": 0.7, "mscale_all_dim": 1.3}])
    return found


def any_value(rng: Rng, name: str, default: Any) -> Any:
    """A random value for a field, by its name and default."""
    if isinstance(default, bool):
        return rng.random() < 0.15 if not default else rng.random() < 0.85
    if "dropout" in name or name.endswith(("pdrop", "layerdrop", "dropout_prob")):
        return rng.choice([0.0, 0.1, 0.5])
    if "eps" in name:
        return rng.choice([1e-12, 1e-6, 1e-5, 1e-2])
    if "activation" in name or name.endswith(("_act", "act_fn")):
        return rng.choice([default, default, rng.choice(ACTIVATIONS)]) if default else default
    return default


Changes = Callable[[Rng, dict[str, Any]], dict[str, Any]]
GENERATORS: dict[str, Changes] = {
    "marian": lambda rng, known: {
        "decoder_vocab_size": rng.choice([None, known["vocab_size"], known["vocab_size"] + 3]),
        "pad_token_id": known["vocab_size"] - 1,
        "decoder_start_token_id": 1,
    },
    "distilbert": lambda rng, known: {"sinusoidal_pos_embds": rng.random() < 0.3},
    "mpnet": lambda rng, known: {
        "relative_attention_num_buckets": rng.choice([32, 32, 32, 8]),
        "pad_token_id": rng.choice([1, 1, 1, 0]),
    },
}
"""model_type -> its special fields."""


@dataclass(frozen=True)
class Folder:
    """A random class and config of an architecture."""

    architecture: HFArchitecture
    kind: str
    """The class of transformers."""
    config: dict[str, Any]
    double: bool


def draw_folder(rng: Rng, architecture: HFArchitecture) -> Folder:
    """A random class of an architecture, and a random config for it."""
    config_class: Any = CONFIG_MAPPING[architecture.model_type]
    known = sizes(rng)
    found: dict[str, Any] = {}
    for field in fields(config_class):
        default = None if field.default is MISSING else field.default
        if field.name in known:
            found[field.name] = known[field.name]
        elif field.name not in IGNORED and field.init:
            found[field.name] = any_value(rng, field.name, default)
    found |= GENERATORS.get(architecture.model_type, lambda rng, known: {})(rng, found)
    kinds = [kind for kind, head in architecture.head_by_class.items() if not head.endswith("_lm") or _has_logits(kind)]
    labels = rng.randint(1, 5)
    problem = rng.choice(PROBLEMS)
    found |= {"num_labels": labels}
    found |= {"problem_type": problem} if problem != "single_label_classification" or labels > 1 else {}
    return Folder(architecture, rng.choice(kinds), found, rng.random() < 0.5)


def _has_logits(kind: str) -> bool:
    """Whether the class of transformers returns logits; softlook gives a base model a tied LM head."""
    return "For" in kind or (hasattr(transformers, kind) and getattr(transformers, kind).can_generate())


def build_reference(folder: Folder) -> Any:
    """The model of transformers with random weights; None if transformers rejects the config."""
    kind: Any = getattr(transformers, folder.kind)
    try:
        config = kind.config_class(**folder.config)
        with torch.device("meta"):
            if sum(one.numel() for one in kind(config).parameters()) > MAX_PARAMETERS:
                return None
        model = kind(config).eval()
    except Exception:  # transformers rejects invalid configs with any kind of error
        return None
    with torch.no_grad():
        for parameter in filter(lambda one: one.requires_grad, model.parameters()):
            parameter.add_(torch.randn_like(parameter) * 0.2)
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.normal_()
    return model.double() if folder.double else model


def inputs(rng: Rng, reference: Any, mode: str) -> dict[str, Tensor]:
    """Random inputs for both models."""
    config = reference.config
    if "pixel" in reference.main_input_name:
        size = config.image_size
        return {"pixels": torch.randn(2, config.num_channels, size, size)}
    pad = config.pad_token_id or 0
    vocab = config.vocab_size
    max_length = min(getattr(config, "max_position_embeddings", 99) - 6, 14)

    def ids(length: int) -> Tensor:
        rows = torch.tensor([[rng.randrange(vocab) for _ in range(length)] for _ in range(2)])
        return torch.where(rows == pad, (pad + 1) % vocab, rows)

    length = rng.randint(1, max_length)
    found = {"ids": ids(length)}
    if mode == "encoder-decoder":
        found["target"] = ids(rng.randint(1, max_length)) % min(
            vocab, getattr(config, "decoder_vocab_size", None) or vocab
        )
    if mode != "decoder-only" and rng.random() < 0.5:
        found["padding_mask"] = torch.arange(length) < torch.tensor([[length], [rng.randint(1, length)]])
        found["ids"] = found["ids"].masked_fill(~found["padding_mask"], pad)
    return found


def reference_outputs(reference: Any, head: str, batch: dict[str, Tensor], mode: str) -> tuple[Tensor, ...]:
    if "pixels" in batch:
        output = reference(batch["pixels"].to(reference.dtype))
        return (
            output.logits
            if head == "classification"
            else output.pooler_output
            if head == "pooled"
            else output.last_hidden_state,
        )
    more = {"attention_mask": batch["padding_mask"].long()} if "padding_mask" in batch else {}
    if mode == "encoder-only":
        return run_reference(reference, head, batch["ids"], **more)[0]
    if mode == "encoder-decoder":
        return (reference(batch["ids"], decoder_input_ids=batch["target"], **more).logits,)
    output = reference(batch["ids"])
    return (output.last_hidden_state if head == "hidden_states" else output.logits,)


def softlook_outputs(actual: nn.Module, batch: dict[str, Tensor], mode: str) -> tuple[Tensor, ...]:
    if "pixels" in batch:
        return as_tuple(actual(batch["pixels"].to(next(actual.parameters()).dtype)))
    if mode == "encoder-decoder":
        return as_tuple(actual(batch["ids"], batch["target"], source_padding_mask=batch.get("padding_mask")))
    more = {"padding_mask": batch["padding_mask"]} if "padding_mask" in batch else {}
    return as_tuple(actual(batch["ids"], **more))


def relative_error(actual: tuple[Tensor, ...], reference: tuple[Tensor, ...], mask: Tensor | None) -> float:
    """The largest difference of real tokens, relative to the largest value."""
    found = 0.0
    for one, other in zip(actual, reference, strict=True):
        if one.shape != other.shape:
            return float("inf")
        if mask is not None and one.ndim == 3 and one.shape[:2] == mask.shape:
            one, other = one[mask], other[mask]
        error = ((one - other).abs().max() / other.abs().max().clamp(min=1e-9)).item()
        found = max(found, error if error == error else float("inf"))
    return found


def check_folder(folder: Folder, rng: Rng, path: Path) -> str | None:
    """The outcome: "equal", "rejected: ..." or "wrong: ..."; None if transformers rejects the config."""
    torch.manual_seed(rng.randrange(1 << 30))
    reference = build_reference(folder)
    if reference is None:
        return None
    reference.save_pretrained(path)
    try:
        actual: Any = from_hugging_face(path)
    except WeightsError as error:
        return f"rejected: {str(error).replace(str(path), '')}"
    except Exception:
        return f"wrong: {traceback.format_exc()}"
    mode, head = getattr(actual, "mode", ""), getattr(actual.config, "head", "seq2seq_lm")
    batch = inputs(rng, reference, mode)
    with torch.no_grad():
        try:
            expected = reference_outputs(reference, head, batch, mode)
        except (IndexError, RuntimeError, ValueError):
            return None
        try:
            found = softlook_outputs(actual, batch, mode)
        except Exception:
            return f"wrong: {traceback.format_exc()}"
    error = relative_error(found, expected, batch.get("padding_mask"))
    limit = TOLERANCES[torch.float64 if folder.double else torch.float32]
    return "equal" if error <= limit else f"wrong: relative error {error:.1e}"


def check_folders(count: int, seed: int) -> list[tuple[Folder, str]]:
    """The outcomes of `count` folders, over all architectures."""
    rng, found = Rng(seed), []
    level = logging.getLogger("transformers").level
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    number = tries = 0
    try:
        while len(found) < count and tries < 5 * count:
            architecture, tries = ARCHITECTURES[number % len(ARCHITECTURES)], tries + 1
            folder = draw_folder(rng, architecture)
            with tempfile.TemporaryDirectory() as path, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = check_folder(folder, rng, Path(path))
            if outcome is not None:
                found.append((folder, outcome))
            if outcome is not None or rng.random() < 0.2:  # an architecture without valid configs is skipped eventually
                number += 1
    finally:
        logging.getLogger("transformers").setLevel(level)
        transformers.utils.logging.enable_progress_bar()
    return found


def counts(found: list[tuple[Folder, str]]) -> Counter[str]:
    return Counter(outcome.partition(":")[0] for _, outcome in found)


if __name__ == "__main__":
    results = check_folders(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    for folder, outcome in results:
        if outcome.startswith("wrong"):
            sys.stdout.write(f"{folder.kind} {folder.config}\n  {outcome}\n")
    by_architecture = Counter((folder.architecture.name, outcome.partition(":")[0]) for folder, outcome in results)
    sys.stdout.write(f"{dict(sorted(by_architecture.items()))}\n{dict(counts(results))}\n")
    reasons = Counter(outcome[:90] for _, outcome in results if outcome.startswith("rejected"))
    sys.stdout.write("\n".join(f"{number:5} {reason}" for reason, number in reasons.most_common()) + "\n")
