"""Import and export of RoBERTa, XLM-RoBERTa and CamemBERT with each of their heads in Hugging Face's format."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import RobertaConfig

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as SoftlookConfig
from softlook.weights import from_hugging_face, to_hugging_face
from softlook.weights.architectures.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from tests.parity.comparison import export_and_load, import_model, saved
from tests.parity.encoders import PADDING_MASK, SIZES, check_export, check_gradients, check_outputs, check_padding

HEAD_BY_CLASS = {**ROBERTA.head_by_class, **XLM_ROBERTA.head_by_class, **CAMEMBERT.head_by_class}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if HEAD_BY_CLASS[kind] == "question_answering" else {}
    fixed = {"max_position_embeddings": 16, "type_vocab_size": 1}
    model = getattr(transformers, kind)
    config = model.config_class(**{**SIZES, **sizes, **labels, **fixed, **changes})
    return model._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", HEAD_BY_CLASS)
@pytest.mark.parametrize("pad", [1, 0])
def test_outputs_hidden_states_and_attention_maps_match_hugging_face(kind: str, pad: int, tmp_path: Path) -> None:
    reference = small(kind, pad_token_id=pad)
    actual = import_model(reference, tmp_path / "hf")
    config = actual.config
    assert (config.head, config.position_offset, config.context) == (HEAD_BY_CLASS[kind], pad + 1, 15 - pad)
    check_outputs(actual, reference, {})


@pytest.mark.parametrize("kind", HEAD_BY_CLASS)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(import_model(reference, tmp_path / "hf"), reference, ROBERTA)


@pytest.mark.parametrize("kind", HEAD_BY_CLASS)
def test_right_padding_matches_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_padding(import_model(reference, tmp_path / "hf"), reference, pad=1)


@pytest.mark.parametrize("kind", ["RobertaForMaskedLM", "RobertaForTokenClassification", "RobertaForQuestionAnswering"])
def test_left_padding_with_explicit_positions_matches_hugging_face(kind: str, tmp_path: Path) -> None:
    """transformers computes such positions itself; its pooled heads use the first position, padding or not."""
    reference = small(kind)
    padding_mask = PADDING_MASK.flip(1)
    positions = (padding_mask.cumsum(1) - 1).clamp(min=0)
    check_padding(import_model(reference, tmp_path / "hf"), reference, 1, padding_mask, positions=positions)


@pytest.mark.parametrize("kind", HEAD_BY_CLASS)
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = import_model(reference, tmp_path / "hf")
    exported_class = kind.replace("XLMRoberta", "Roberta").replace("Camembert", "Roberta")
    back = export_and_load(actual, getattr(transformers, exported_class), tmp_path / "softlook")
    assert back.config.architectures == [exported_class]
    check_export(back, reference, actual.config.head)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "a decoder": ({"is_decoder": True}, "is_decoder and add_cross_attention are not supported"),
    "relative positions": (
        {"position_embedding_type": "relative_key"},
        "position_embedding_type 'relative_key' is not supported",
    ),
    "two activations": ({"hidden_act": "relu"}, "hidden_act 'relu' is not supported for RoBERTa"),
    "positions for padding only": ({"max_position_embeddings": 2}, "2 positions leave none"),
    "no padding": ({"pad_token_id": None}, "pad_token_id: Input should be a valid integer"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    changes, message = UNSUPPORTED[case]
    folder = saved(small("RobertaForMaskedLM"), tmp_path / "hf")
    config = RobertaConfig(**{"architectures": ["RobertaForMaskedLM"], **changes})
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"head": "next_sentence"},
        {"head": "masked_lm", "activation": "relu"},
        {"head": "hidden_states", "token_types": 0},
    ],
)
def test_a_model_without_a_hugging_face_class_raises_an_error(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Bert(SoftlookConfig(vocab_size=13, dim=24, depth=1, heads=2, position_offset=2, **changes))
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "softlook")
