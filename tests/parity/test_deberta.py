"""Import and export of DeBERTa v2 and v3 with each of their heads in Hugging Face's format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import DebertaV2Config, DebertaV2ForMaskedLM
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from softlook.base.errors import ConfigError, WeightsError
from softlook.blocks import RelativePositionEmbedding
from softlook.models import Deberta
from softlook.models import DebertaConfig as SoftlookConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.architectures.deberta import DEBERTA
from tests.parity.comparison import close, export_and_load, import_model, maps, saved
from tests.parity.encoders import (
    IDS,
    PADDING_MASK,
    SIZES,
    TOKEN_TYPES,
    as_tuple,
    check_export,
    check_gradients,
    check_padding,
    run_reference,
)

V3: dict[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 4,
    "max_relative_positions": -1,
}
SHORT_RANGE = {"position_buckets": -1, "max_relative_positions": 3}
CONVOLUTION = {"conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "v3": V3,
    "v2, with a convolution": {**V3, **CONVOLUTION},
    "separate position projections": {**V3, "share_att_key": False, "position_buckets": -1, "norm_rel_ebd": "none"},
    "content to position only": {**V3, "pos_att_type": ["c2p"], "share_att_key": False, **SHORT_RANGE},
    "position to content only": {**V3, "pos_att_type": ["p2c"], "position_buckets": -1, "max_relative_positions": 5},
    "absolute positions and token types": {**V3, "position_biased_input": True, "type_vocab_size": 2},
    "a narrow embedding": {**V3, "embedding_size": 10, "layer_norm_eps": 1e-2},
    "no relative attention": {"position_biased_input": True, "hidden_act": "relu", "pooler_hidden_act": "tanh"},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if DEBERTA.head_by_class[kind] == "question_answering" else {}
    config = DebertaV2Config(**{**SIZES, **sizes, **labels, "max_position_embeddings": 16, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


def check(actual: Any, reference: Any, **token_types: Any) -> None:
    """Compare outputs and attention maps."""
    with maps(actual) as actual_maps, torch.no_grad():
        output = as_tuple(actual(IDS, **({"token_types": TOKEN_TYPES} if token_types else {})))
        expected, more = run_reference(reference, actual.config.head, IDS, **token_types)
    close(output[0], expected[0])
    if not isinstance(more.attentions, tuple):
        return
    for one, other in zip(actual_maps, more.attentions, strict=True):
        close(one, other)


@pytest.mark.parametrize("kind", DEBERTA.head_by_class)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_attention_maps_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    actual = import_model(reference, tmp_path / "hf")
    assert isinstance(actual, Deberta) and actual.config.head == DEBERTA.head_by_class[kind]
    check(actual, reference, **({"token_type_ids": TOKEN_TYPES} if actual.config.token_types else {}))


@pytest.mark.parametrize("kind", DEBERTA.head_by_class)
@pytest.mark.parametrize("variant", ["v2, with a convolution", "separate position projections"])
def test_padding_matches_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    check_padding(import_model(reference, tmp_path / "hf"), reference, pad=0)


def test_left_padding_matches_hugging_face(tmp_path: Path) -> None:
    reference = small("DebertaV2ForMaskedLM", **V3)
    check_padding(import_model(reference, tmp_path / "hf"), reference, 0, PADDING_MASK.flip(1))


@pytest.mark.parametrize("kind", DEBERTA.head_by_class)
@pytest.mark.parametrize("variant", ["v2, with a convolution", "separate position projections"])
def test_gradients_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    check_gradients(import_model(reference, tmp_path / "hf"), reference, DEBERTA)


@pytest.mark.parametrize(("buckets", "max_distance"), [(256, 512), (4, 16), (32, 100), (6, 512)])
def test_buckets_of_distances_match_hugging_face(buckets: int, max_distance: int) -> None:
    distances = torch.arange(-max_distance + 1, max_distance)
    expected = make_log_bucket_position(distances, buckets, max_distance).long()
    embedding = RelativePositionEmbedding(2, max_distance=max_distance, buckets=buckets)
    assert torch.equal(embedding.log_bucket(distances), expected)


def test_long_distances_match_hugging_face(tmp_path: Path) -> None:
    reference = small("DebertaV2Model", **V3, max_position_embeddings=200)
    actual = import_model(reference, tmp_path / "hf")
    ids = torch.randint(1, 13, (2, 190))
    with torch.no_grad():
        close(actual(ids), reference(ids).last_hidden_state)


@pytest.mark.parametrize("kind", DEBERTA.head_by_class)
@pytest.mark.parametrize("variant", ["v2, with a convolution", "content to position only", "a narrow embedding"])
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    again: Any = load(save(import_model(reference, tmp_path / "hf"), tmp_path / "saved"))
    back = export_and_load(again, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_export(back, reference, again.config.head)


@pytest.mark.parametrize("tied", [True, False])
def test_the_newer_masked_lm_head_is_imported(tied: bool, tmp_path: Path) -> None:
    reference = small("DebertaV2ForMaskedLM", **V3, legacy=False, tie_word_embeddings=tied)
    check(import_model(reference, tmp_path / "hf"), reference)


def test_an_untied_lm_head_is_imported(tmp_path: Path) -> None:
    reference = small("DebertaV2ForMaskedLM", **V3, tie_word_embeddings=False)
    actual = import_model(reference, tmp_path / "hf")
    check(actual, reference)
    check_export(export_and_load(actual, DebertaV2ForMaskedLM, tmp_path / "softlook"), reference, "masked_lm")


def test_pretraining_heads_in_a_published_file_are_ignored(tmp_path: Path) -> None:
    reference = small("DebertaV2ForTokenClassification", **V3)
    file = saved(reference, tmp_path) / "model.safetensors"
    more = {
        "mask_predictions.dense.weight": torch.randn(24, 24),
        "lm_predictions.lm_head.dense.weight": torch.randn(24, 24),
        "deberta.embeddings.position_embeddings.weight": torch.randn(16, 24),
    }
    save_file({**load_file(file), **more}, file, {"format": "pt"})
    check(from_hugging_face(tmp_path), reference)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "c2p and p2c without relative attention": (
        {"relative_attention": False},
        "relative_attention must be true if and only if",
    ),
    "relative attention without c2p and p2c": (
        {"pos_att_type": ["p2p"]},
        "relative_attention must be true if and only if",
    ),
    "another head_dim": ({"attention_head_size": 8}, "attention_head_size must be 6 by the other sizes, got 8"),
    "another size of the pooler": ({"pooler_hidden_size": 12}, "pooler_hidden_size must be 24"),
    "an even kernel": ({"conv_kernel_size": 4}, "kernel_size must be odd, got 4"),
    "too many buckets": ({"position_buckets": 64}, "half of the buckets"),
    "an unknown activation": ({"hidden_act": "mish"}, "activation 'mish' is not supported"),
    "another class": (
        {"architectures": ["DebertaV2ForChess"]},
        "supported classes of DeBERTa-v2: DebertaV2Model",
    ),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    changes, message = UNSUPPORTED[case]
    folder = saved(small("DebertaV2ForMaskedLM", **V3), tmp_path / "hf")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_a_model_without_a_hugging_face_class_raises_an_error(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 13, "dim": 24, "depth": 1, "heads": 2, "max_distance": 8, "buckets": 4}
    model = Deberta(SoftlookConfig(**sizes, head="classification", pooling="mean"))
    with pytest.raises(WeightsError, match="no architecture for this Deberta"):
        to_hugging_face(model, tmp_path / "softlook")


def test_too_many_buckets_raise_an_error() -> None:
    with pytest.raises(ConfigError, match="half of the buckets must be from 1 to max_distance - 2, got buckets=6"):
        RelativePositionEmbedding(8, max_distance=4, buckets=6)
