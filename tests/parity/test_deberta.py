"""DeBERTa v2 and v3 of Hugging Face's with each of their heads, read and written."""

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
from softlook.models import DebertaConfig as OurConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.architectures.deberta import DEBERTA
from tests.parity.comparison import close, maps, read, saved, there_and_back
from tests.parity.encoders import (
    IDS,
    PRESENT,
    SEGMENTS,
    SIZES,
    answers,
    ask,
    check_back,
    check_gradients,
    check_padding,
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
NEAR = {"position_buckets": -1, "max_relative_positions": 3}
CONVOLUTION = {"conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "v3": V3,
    "v2, with a convolution": {**V3, **CONVOLUTION},
    "layers of its own for positions": {**V3, "share_att_key": False, "position_buckets": -1, "norm_rel_ebd": "none"},
    "content to position only": {**V3, "pos_att_type": ["c2p"], "share_att_key": False, **NEAR},
    "position to content only": {**V3, "pos_att_type": ["p2c"], "position_buckets": -1, "max_relative_positions": 5},
    "absolute positions and segments": {**V3, "position_biased_input": True, "type_vocab_size": 2},
    "a narrow embedding": {**V3, "embedding_size": 10, "layer_norm_eps": 1e-2},
    "nothing relative": {"position_biased_input": True, "hidden_act": "relu", "pooler_hidden_act": "tanh"},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if DEBERTA.head_by_class[kind] == "question_answering" else {}
    config = DebertaV2Config(**{**SIZES, **sizes, **labels, "max_position_embeddings": 16, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


def check(actual: Any, reference: Any, **segments: Any) -> None:
    """The answers, and every attention map."""
    with maps(actual) as our_maps, torch.no_grad():
        output = answers(actual(IDS, **({"token_types": SEGMENTS} if segments else {})))
        expected, more = ask(reference, actual.config.head, IDS, **segments)
    close(output[0], expected[0])
    if not isinstance(more.attentions, tuple):
        return
    for one, other in zip(our_maps, more.attentions, strict=True):
        close(one, other)


@pytest.mark.parametrize("kind", DEBERTA.head_by_class)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_attention_maps_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    actual = read(reference, tmp_path / "hf")
    assert isinstance(actual, Deberta) and actual.config.head == DEBERTA.head_by_class[kind]
    check(actual, reference, **({"token_type_ids": SEGMENTS} if actual.config.token_types else {}))


@pytest.mark.parametrize("kind", DEBERTA.head_by_class)
@pytest.mark.parametrize("variant", ["v2, with a convolution", "layers of its own for positions"])
def test_padding_matches_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    check_padding(read(reference, tmp_path / "hf"), reference, pad=0)


def test_padding_on_the_left_is_that_of_hugging_face(tmp_path: Path) -> None:
    reference = small("DebertaV2ForMaskedLM", **V3)
    check_padding(read(reference, tmp_path / "hf"), reference, 0, PRESENT.flip(1))


@pytest.mark.parametrize("kind", DEBERTA.head_by_class)
@pytest.mark.parametrize("variant", ["v2, with a convolution", "layers of its own for positions"])
def test_gradients_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    check_gradients(read(reference, tmp_path / "hf"), reference, DEBERTA)


@pytest.mark.parametrize(("buckets", "reach"), [(256, 512), (4, 16), (32, 100), (6, 512)])
def test_distances_share_buckets_as_those_of_hugging_face(buckets: int, reach: int) -> None:
    distances = torch.arange(-reach + 1, reach)
    expected = make_log_bucket_position(distances, buckets, reach).long()
    assert torch.equal(RelativePositionEmbedding(2, max_distance=reach, buckets=buckets).log_bucket(distances), expected)


def test_far_distances_are_those_of_hugging_face(tmp_path: Path) -> None:
    reference = small("DebertaV2Model", **V3, max_position_embeddings=200)
    actual = read(reference, tmp_path / "hf")
    ids = torch.randint(1, 13, (2, 190))
    with torch.no_grad():
        close(actual(ids), reference(ids).last_hidden_state)


@pytest.mark.parametrize("kind", DEBERTA.head_by_class)
@pytest.mark.parametrize("variant", ["v2, with a convolution", "content to position only", "a narrow embedding"])
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    again: Any = load(save(read(reference, tmp_path / "hf"), tmp_path / "kept"))
    back = there_and_back(again, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_back(back, reference, again.config.head)


@pytest.mark.parametrize("tied", [True, False])
def test_the_newer_masked_lm_head_is_imported(tied: bool, tmp_path: Path) -> None:
    reference = small("DebertaV2ForMaskedLM", **V3, legacy=False, tie_word_embeddings=tied)
    check(read(reference, tmp_path / "hf"), reference)


def test_an_untied_word_head_is_read(tmp_path: Path) -> None:
    reference = small("DebertaV2ForMaskedLM", **V3, tie_word_embeddings=False)
    actual = read(reference, tmp_path / "hf")
    check(actual, reference)
    check_back(there_and_back(actual, DebertaV2ForMaskedLM, tmp_path / "softlook"), reference, "masked_lm")


def test_heads_of_pretraining_in_a_published_file_are_left_out(tmp_path: Path) -> None:
    reference = small("DebertaV2ForTokenClassification", **V3)
    file = saved(reference, tmp_path) / "model.safetensors"
    more = {
        "mask_predictions.dense.weight": torch.randn(24, 24),
        "lm_predictions.lm_head.dense.weight": torch.randn(24, 24),
        "deberta.embeddings.position_embeddings.weight": torch.randn(16, 24),
    }
    save_file({**load_file(file), **more}, file, {"format": "pt"})
    check(from_hugging_face(tmp_path), reference)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "parts without relative attention": ({"relative_attention": False}, "relative_attention should be true where"),
    "relative attention without parts": ({"pos_att_type": ["p2p"]}, "relative_attention should be true where"),
    "another width of heads": ({"attention_head_size": 8}, "attention_head_size should be 6 by the other sizes"),
    "another width of the pooler": ({"pooler_hidden_size": 12}, "pooler_hidden_size should be 24"),
    "a convolution that shortens": ({"conv_kernel_size": 4}, "odd kernel"),
    "buckets beyond the reach": ({"position_buckets": 64}, "half of the buckets"),
    "an unknown activation": ({"hidden_act": "mish"}, "no such activation is known: 'mish'"),
    "another class": ({"architectures": ["DebertaV2ForChess"]}, "of DeBERTa-v2, softlook knows DebertaV2Model"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_configs_are_refused(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
    folder = saved(small("DebertaV2ForMaskedLM", **V3), tmp_path / "hf")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_a_model_without_a_hugging_face_class_is_refused(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 13, "dim": 24, "depth": 1, "heads": 2, "reach": 8, "buckets": 4}
    model = Deberta(OurConfig(**sizes, head="classification", pooling="mean"))
    with pytest.raises(WeightsError, match="no architecture for this Deberta"):
        to_hugging_face(model, tmp_path / "softlook")


def test_buckets_that_cannot_grow_are_an_error() -> None:
    with pytest.raises(ConfigError, match="half of the buckets should be at least 1 and below reach - 1"):
        RelativePositionEmbedding(8, max_distance=4, buckets=6)
