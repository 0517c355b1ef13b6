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
from softlook.weights.families.roberta import CAMEMBERT, FAMILY, XLM_ROBERTA
from tests.parity.encoders import PRESENT, SIZES, check_answers, check_back, check_gradients, check_padding
from tests.parity.weights import read, saved, there_and_back

ARCHITECTURES = {**FAMILY.architectures, **XLM_ROBERTA.architectures, **CAMEMBERT.architectures}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if ARCHITECTURES[kind] == "spans" else {}
    fixed = {"max_position_embeddings": 16, "type_vocab_size": 1}
    model = getattr(transformers, kind)
    config = model.config_class(**{**SIZES, **sizes, **labels, **fixed, **changes})
    return model._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("pad", [1, 0])
def test_answers_hidden_states_and_maps_are_those_of_hugging_face(kind: str, pad: int, tmp_path: Path) -> None:
    theirs = small(kind, pad_token_id=pad)
    ours = read(theirs, tmp_path / "theirs")
    assert (ours.config.head, ours.config.offset, ours.config.context) == (ARCHITECTURES[kind], pad + 1, 15 - pad)
    check_answers(ours, theirs, {})


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_gradients_are_those_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_gradients(read(theirs, tmp_path / "theirs"), theirs, FAMILY)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_padding_on_the_right_is_that_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, pad=1)


@pytest.mark.parametrize("kind", ["RobertaForMaskedLM", "RobertaForTokenClassification", "RobertaForQuestionAnswering"])
def test_padding_on_the_left_is_that_of_hugging_face_where_positions_are_told(kind: str, tmp_path: Path) -> None:
    """They count the tokens that are not padding by themselves; their pooled heads take whatever stands first."""
    theirs = small(kind)
    present = PRESENT.flip(1)
    positions = (present.cumsum(1) - 1).clamp(min=0)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, 1, present, positions=positions)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_is_written_is_read_by_hugging_face_with_the_same_answers(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    ours = read(theirs, tmp_path / "theirs")
    written_as = kind.replace("XLMRoberta", "Roberta").replace("Camembert", "Roberta")
    back = there_and_back(ours, getattr(transformers, written_as), tmp_path / "ours")
    assert back.config.architectures == [written_as]
    check_back(back, theirs, ours.config.head)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a decoder": ({"is_decoder": True}, "this model is a decoder"),
    "relative positions": ({"position_embedding_type": "relative_key"}, "'relative_key' positions"),
    "two bends": ({"hidden_act": "relu"}, "'relu' inside and with gelu in its head for words"),
    "positions for padding only": ({"max_position_embeddings": 2}, "2 positions leave none"),
    "no padding": ({"pad_token_id": None}, "pad_token_id: Input should be a valid integer"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_softlook_does_not_compute_is_refused_in_plain_words(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
    folder = saved(small("RobertaForMaskedLM"), tmp_path / "theirs")
    config = RobertaConfig(**{"architectures": ["RobertaForMaskedLM"], **changes})
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize(
    "changes", [{"head": "next"}, {"head": "words", "activation": "relu"}, {"head": "states", "segments": 0}]
)
def test_a_model_that_hugging_face_has_no_class_for_is_not_written(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Bert(OurConfig(vocab=13, dim=24, depth=1, heads=2, offset=2, **changes))
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "ours")
