"""Import and export of ModernBERT with each of its heads in Hugging Face's format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import ModernBertConfig, ModernBertForMaskedLM

from softlook.base.errors import WeightsError
from softlook.models import ModernBert
from softlook.models import ModernBertConfig as SoftlookConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.architectures.modern_bert import MODERN_BERT
from tests.parity.comparison import close, export_and_load, import_model, maps, saved, states
from tests.parity.encoders import (
    IDS,
    PADDING_MASK,
    SIZES,
    as_tuple,
    check_export,
    check_gradients,
    check_padding,
    run_reference,
)

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "biases": BIASES,
    "mean, other activations": {
        "classifier_pooling": "mean",
        "hidden_activation": "silu",
        "classifier_activation": "relu",
    },
    "explicit layer types": {
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "norm_eps": 1e-2,
    },
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if MODERN_BERT.head_by_class[kind] == "question_answering" else {}
    fixed = {"local_attention": 4, **TOKENS}
    config = ModernBertConfig(**{**SIZES, **sizes, **labels, **fixed, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


def check(actual: Any, reference: nn.Module) -> None:
    """Compare outputs, the inputs of all blocks and all attention maps."""
    layers = nn.ModuleList([actual.dropout, *actual.blocks[:-1]])
    with maps(actual) as actual_maps, states(layers) as inputs, torch.no_grad():
        output = as_tuple(actual(IDS))
        expected, more = run_reference(reference, actual.config.head, IDS, attention_mask=torch.ones_like(IDS))
    close(output[0], expected[0])
    for one, other in zip(actual_maps, more.attentions, strict=True):
        close(one, other)
    for one, other in zip(inputs, more.hidden_states, strict=False):
        close(one, other)


@pytest.mark.parametrize("kind", MODERN_BERT.head_by_class)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_hidden_states_and_attention_maps_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    actual = import_model(reference, tmp_path / "hf")
    assert isinstance(actual, ModernBert) and actual.config.head == MODERN_BERT.head_by_class[kind]
    check(actual, reference)


@pytest.mark.parametrize("kind", MODERN_BERT.head_by_class)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(import_model(reference, tmp_path / "hf"), reference, MODERN_BERT)


@pytest.mark.parametrize("kind", MODERN_BERT.head_by_class)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_matches_hugging_face(kind: str, pooling: str, tmp_path: Path) -> None:
    reference = small(kind, classifier_pooling=pooling)
    check_padding(import_model(reference, tmp_path / "hf"), reference, pad=0)


def test_left_padding_with_explicit_positions_matches_hugging_face(tmp_path: Path) -> None:
    reference = small("ModernBertForMaskedLM")
    padding_mask = PADDING_MASK.flip(1)
    positions = (padding_mask.cumsum(1) - 1).clamp(min=0)
    check_padding(import_model(reference, tmp_path / "hf"), reference, 0, padding_mask, positions=positions)


@pytest.mark.parametrize("kind", MODERN_BERT.head_by_class)
@pytest.mark.parametrize("variant", ["as published", "biases", "explicit layer types"])
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    again: Any = load(save(import_model(reference, tmp_path / "hf"), tmp_path / "saved"))
    back = export_and_load(again, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_export(back, reference, again.config.head)


def test_an_untied_lm_head_is_imported(tmp_path: Path) -> None:
    reference = small("ModernBertForMaskedLM", tie_word_embeddings=False)
    actual = import_model(reference, tmp_path / "hf")
    check(actual, reference)
    check_export(export_and_load(actual, ModernBertForMaskedLM, tmp_path / "softlook"), reference, "masked_lm")


def test_an_older_config_with_obsolete_fields_is_imported(tmp_path: Path) -> None:
    """Thetas and the layer pattern under their original names."""
    reference = small(
        "ModernBertForMaskedLM", rope_parameters=ropes(300.0, 20.0), num_hidden_layers=4, layer_types=ALTERNATING
    )
    folder = saved(reference, tmp_path / "hf")
    old = {"global_rope_theta": 300.0, "local_rope_theta": 20.0, "global_attn_every_n_layers": 2}
    unused = {"position_embedding_type": "absolute", "layer_norm_eps": 1e-5, "sparse_prediction": False}
    change(folder, {"rope_parameters", "layer_types"}, **old, **unused)
    again: Any = ModernBertForMaskedLM.from_pretrained(folder, attn_implementation="eager")
    actual: Any = from_hugging_face(folder)
    config = actual.config
    assert (config.rope_theta, config.local_rope_theta, config.windowed_layers) == (300.0, 20.0, (1, 3))
    check(actual, again.eval())
    check(actual, reference)


ALTERNATING = ["full_attention", "sliding_attention"] * 2


def ropes(full: float, local: float) -> dict[str, Any]:
    return {
        "full_attention": {"rope_type": "default", "rope_theta": full},
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }


SCALED = {"full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}
UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "RoPE scaling": ({"rope_parameters": SCALED}, "rope_type of full_attention layers must be 'default', got 'linear'"),
    "RoPE scaling in the older form": (
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        "rope_type of .* layers must be 'default', got 'linear'",
    ),
    "too few layer types": ({"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
    "unknown layer types": ({"layer_types": ["chunked_attention"] * 3}, "layer_types.0: Input should be"),
    "another head_dim": ({"head_dim": 8}, "head_dim must be hidden_size / num_attention_heads, got 8 for 24 / 4"),
    "an unknown activation": ({"hidden_activation": "mish"}, "activation 'mish' is not supported"),
    "another pooling": ({"classifier_pooling": "max"}, "classifier_pooling: Input should be 'cls' or 'mean'"),
    "another class": (
        {"architectures": ["ModernBertForChess"]},
        "supported classes of ModernBERT: ModernBertModel",
    ),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    changes, message = UNSUPPORTED[case]
    folder = saved(small("ModernBertForMaskedLM"), tmp_path / "hf")
    change(folder, **changes)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_a_softlook_model_can_be_exported(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 13, "dim": 24, "depth": 4, "heads": 4, "hidden": 40, "sliding_window": 1}
    actual = ModernBert(SoftlookConfig(**sizes)).eval()
    back = export_and_load(actual, ModernBertForMaskedLM, tmp_path / "softlook")
    with torch.no_grad():
        close(back(IDS).logits, actual(IDS), 1e-5)
    assert to_hugging_face(actual, tmp_path / "again").is_dir()


def change(folder: Path, without: set[str] | None = None, /, **fields: Any) -> None:
    file = folder / "config.json"
    kept = {name: value for name, value in json.loads(file.read_text()).items() if name not in (without or ())}
    file.write_text(json.dumps(kept | fields))
