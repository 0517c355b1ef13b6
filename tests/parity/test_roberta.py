"""RoBERTa, XLM-RoBERTa and CamemBERT of Hugging Face's with each of their heads, read and written."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import RobertaConfig

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as OurConfig
from softlook.weights import from_hugging_face, to_hugging_face
from softlook.weights.architectures.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from tests.parity.comparison import read, saved, there_and_back
from tests.parity.encoders import PRESENT, SIZES, check_answers, check_back, check_gradients, check_padding

ARCHITECTURES = {**ROBERTA.head_by_class, **XLM_ROBERTA.head_by_class, **CAMEMBERT.head_by_class}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if ARCHITECTURES[kind] == "question_answering" else {}
    fixed = {"max_position_embeddings": 16, "type_vocab_size": 1}
    model = getattr(transformers, kind)
    config = model.config_class(**{**SIZES, **sizes, **labels, **fixed, **changes})
    return model._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("pad", [1, 0])
def test_outputs_hidden_states_and_attention_maps_match_hugging_face(kind: str, pad: int, tmp_path: Path) -> None:
    reference = small(kind, pad_token_id=pad)
    actual = read(reference, tmp_path / "hf")
    assert (actual.config.head, actual.config.position_offset, actual.config.context) == (ARCHITECTURES[kind], pad + 1, 15 - pad)
    check_answers(actual, reference, {})


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(read(reference, tmp_path / "hf"), reference, ROBERTA)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_padding_on_the_right_is_that_of_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_padding(read(reference, tmp_path / "hf"), reference, pad=1)


@pytest.mark.parametrize("kind", ["RobertaForMaskedLM", "RobertaForTokenClassification", "RobertaForQuestionAnswering"])
def test_left_padding_with_explicit_positions_matches_hugging_face(kind: str, tmp_path: Path) -> None:
    """They count the tokens that are not padding by themselves; their pooled heads take whatever stands first."""
    reference = small(kind)
    present = PRESENT.flip(1)
    positions = (present.cumsum(1) - 1).clamp(min=0)
    check_padding(read(reference, tmp_path / "hf"), reference, 1, present, positions=positions)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = read(reference, tmp_path / "hf")
    written_as = kind.replace("XLMRoberta", "Roberta").replace("Camembert", "Roberta")
    back = there_and_back(actual, getattr(transformers, written_as), tmp_path / "softlook")
    assert back.config.architectures == [written_as]
    check_back(back, reference, actual.config.head)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a decoder": ({"is_decoder": True}, "this model is a decoder"),
    "relative positions": ({"position_embedding_type": "relative_key"}, "'relative_key' positions"),
    "two bends": ({"hidden_act": "relu"}, "'relu' inside and with gelu in its head for words"),
    "positions for padding only": ({"max_position_embeddings": 2}, "2 positions leave none"),
    "no padding": ({"pad_token_id": None}, "pad_token_id: Input should be a valid integer"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_configs_are_refused_with_a_clear_message(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
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
def test_a_model_without_a_hugging_face_class_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Bert(OurConfig(vocab_size=13, dim=24, depth=1, heads=2, position_offset=2, **changes))
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "softlook")
