"""Import and export of MPNet with each of its heads in Hugging Face's format."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import MPNetConfig, MPNetForMaskedLM, MPNetModel

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as SoftlookConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.architectures.roberta import MPNET
from tests.parity.comparison import close, export_and_load, import_model, saved
from tests.parity.encoders import SIZES, check_export, check_gradients, check_outputs, check_padding


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if MPNET.head_by_class[kind] == "question_answering" else {}
    config = MPNetConfig(**{**SIZES, **sizes, **labels, "max_position_embeddings": 16, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", MPNET.head_by_class)
def test_outputs_hidden_states_and_attention_maps_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = import_model(reference, tmp_path / "hf")
    assert (actual.config.head, actual.config.position_offset, actual.config.context) == (MPNET.head_by_class[kind], 2, 14)
    check_outputs(actual, reference, {})


@pytest.mark.parametrize("kind", MPNET.head_by_class)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(import_model(reference, tmp_path / "hf"), reference, MPNET)


@pytest.mark.parametrize("kind", MPNET.head_by_class)
def test_padding_matches_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_padding(import_model(reference, tmp_path / "hf"), reference, pad=1)


def test_long_distances_match_hugging_face(tmp_path: Path) -> None:
    reference = small("MPNetModel", max_position_embeddings=200)
    actual = import_model(reference, tmp_path / "hf")
    ids = torch.randint(2, 13, (2, 190))
    with torch.no_grad():
        close(actual(ids), reference(ids).pooler_output)


@pytest.mark.parametrize("kind", MPNET.head_by_class)
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_export(back, reference, actual.config.head)


def test_an_untied_lm_head_is_imported(tmp_path: Path) -> None:
    reference = small("MPNetForMaskedLM", tie_word_embeddings=False)
    actual = import_model(reference, tmp_path / "hf")
    check_outputs(actual, reference, {})
    check_export(export_and_load(actual, MPNetForMaskedLM, tmp_path / "softlook"), reference, "masked_lm")


def test_an_imported_model_can_be_saved_as_a_checkpoint(tmp_path: Path) -> None:
    actual = import_model(small("MPNetForMaskedLM"), tmp_path / "hf")
    again: Any = load(save(actual, tmp_path / "softlook"))
    assert again.config == actual.config
    assert torch.equal(again.relative_bias.weight, actual.relative_bias.weight)


def test_a_model_saved_without_its_pooler_returns_hidden_states(tmp_path: Path) -> None:
    actual = import_model(MPNetModel(small("MPNetModel").config, add_pooling_layer=False).eval(), tmp_path / "hf")
    assert actual.config.head == "hidden_states"


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "other buckets": (
        {"relative_attention_num_buckets": 64},
        "relative_attention_num_buckets must be 32, as in Hugging Face's code, got 64",
    ),
    "two activations": ({"hidden_act": "relu"}, "hidden_act 'relu' is not supported for MPNet"),
    "a padding id that transformers ignores": ({"pad_token_id": 0}, "pad_token_id: Input should be 1"),
    "positions for padding only": ({"max_position_embeddings": 2}, "2 positions leave none"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    changes, message = UNSUPPORTED[case]
    folder = saved(small("MPNetForMaskedLM"), tmp_path / "hf")
    config = MPNetConfig(**{"architectures": ["MPNetForMaskedLM"], **changes})
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize(
    "changes", [{"buckets": 16}, {"position_offset": 0}, {"token_types": 2}, {"head": "next_sentence"}]
)
def test_a_relative_bias_is_never_exported_as_another_architecture(changes: dict[str, Any], tmp_path: Path) -> None:
    sizes = {"vocab_size": 13, "dim": 24, "depth": 1, "heads": 2, "position_offset": 2, "token_types": 0, "buckets": 32}
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(Bert(SoftlookConfig(**{**sizes, **changes})), tmp_path / "softlook")
