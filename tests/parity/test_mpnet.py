"""MPNet of Hugging Face's with each of its heads, read and written."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import MPNetConfig, MPNetForMaskedLM, MPNetModel

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as OurConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.families.mpnet import ARCHITECTURES, FAMILY
from tests.parity.encoders import SIZES, check_answers, check_back, check_gradients, check_padding
from tests.parity.weights import close, read, saved, there_and_back


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if ARCHITECTURES[kind] == "spans" else {}
    config = MPNetConfig(**{**SIZES, **sizes, **labels, "max_position_embeddings": 16, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("pad", [1, 0])
def test_answers_hidden_states_and_maps_are_those_of_hugging_face(kind: str, pad: int, tmp_path: Path) -> None:
    theirs = small(kind, pad_token_id=pad)
    ours = read(theirs, tmp_path / "theirs")
    assert (ours.config.head, ours.config.offset, ours.config.context) == (ARCHITECTURES[kind], 2, 14)
    check_answers(ours, theirs, {})


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_gradients_are_those_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_gradients(read(theirs, tmp_path / "theirs"), theirs, FAMILY)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_padding_is_that_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, pad=1)


def test_far_distances_share_buckets_as_those_of_hugging_face(tmp_path: Path) -> None:
    theirs = small("MPNetModel", max_position_embeddings=200)
    ours = read(theirs, tmp_path / "theirs")
    ids = torch.randint(2, 13, (2, 190))
    with torch.no_grad():
        close(ours(ids), theirs(ids).pooler_output)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_is_written_is_read_by_hugging_face_with_the_same_answers(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, type(theirs), tmp_path / "ours")
    assert back.config.architectures == [kind]
    check_back(back, theirs, ours.config.head)


def test_an_untied_word_head_is_read(tmp_path: Path) -> None:
    theirs = small("MPNetForMaskedLM", tie_word_embeddings=False)
    ours = read(theirs, tmp_path / "theirs")
    check_answers(ours, theirs, {})
    check_back(there_and_back(ours, MPNetForMaskedLM, tmp_path / "ours"), theirs, "words")


def test_what_was_read_can_be_kept_as_softlooks_own(tmp_path: Path) -> None:
    ours = read(small("MPNetForMaskedLM"), tmp_path / "theirs")
    again: Any = load(save(ours, tmp_path / "ours"))
    assert again.config == ours.config
    assert torch.equal(again.distances.table.weight, ours.distances.table.weight)


def test_a_model_saved_without_its_pooler_gives_its_states(tmp_path: Path) -> None:
    ours = read(MPNetModel(small("MPNetModel").config, add_pooling_layer=False).eval(), tmp_path / "theirs")
    assert ours.config.head == "states"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "other buckets": ({"relative_attention_num_buckets": 64}, "should be 32, which Hugging Face's code"),
    "two activations": ({"hidden_act": "relu"}, "'relu' inside and with gelu in its head for words"),
    "positions for padding only": ({"max_position_embeddings": 2}, "2 positions leave none"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_softlook_does_not_compute_is_refused(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
    folder = saved(small("MPNetForMaskedLM"), tmp_path / "theirs")
    config = MPNetConfig(**{"architectures": ["MPNetForMaskedLM"], **changes})
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize("changes", [{"buckets": 16}, {"offset": 0}, {"segments": 2}, {"head": "next"}])
def test_a_bias_by_distance_is_never_written_as_another_architecture(changes: dict[str, Any], tmp_path: Path) -> None:
    sizes = {"vocab": 13, "dim": 24, "depth": 1, "heads": 2, "offset": 2, "segments": 0, "buckets": 32}
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(Bert(OurConfig(**{**sizes, **changes})), tmp_path / "ours")
