"""ELECTRA of Hugging Face's, discriminator and generator, with each of its heads, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import ElectraConfig, ElectraForMaskedLM

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as OurConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.families.electra import ARCHITECTURES, FAMILY
from tests.parity.encoders import SEGMENTS, SIZES, check_answers, check_back, check_gradients, check_padding
from tests.parity.weights import read, saved, there_and_back

VARIANTS: dict[str, dict[str, Any]] = {
    "a narrow embedding": {},
    "an embedding as wide as the blocks": {"embedding_size": 24},
    "three segments, another eps": {"type_vocab_size": 3, "layer_norm_eps": 1e-2},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if ARCHITECTURES[kind] == "spans" else {}
    fixed = {"max_position_embeddings": 16, "embedding_size": 10}
    config = ElectraConfig(**{**SIZES, **sizes, **labels, **fixed, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_hidden_states_and_maps_are_those_of_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    theirs = small(kind, **VARIANTS[variant])
    ours = read(theirs, tmp_path / "theirs")
    assert ours.config.head == ARCHITECTURES[kind]
    check_answers(ours, theirs, {"token_type_ids": SEGMENTS})


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_gradients_are_those_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_gradients(read(theirs, tmp_path / "theirs"), theirs, FAMILY)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_padding_is_that_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, pad=0)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_is_written_is_read_by_hugging_face_with_the_same_answers(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, type(theirs), tmp_path / "ours")
    assert back.config.architectures == [kind]
    check_back(back, theirs, ours.config.head)


@pytest.mark.parametrize("kind", ["ElectraForMaskedLM", "ElectraForTokenClassification"])
def test_with_a_wide_embedding_it_is_a_bert_and_written_as_one(kind: str, tmp_path: Path) -> None:
    theirs = small(kind, embedding_size=24)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, getattr(transformers, kind.replace("Electra", "Bert")), tmp_path / "ours")
    check_back(back, theirs, ours.config.head)


def test_an_untied_word_head_is_read(tmp_path: Path) -> None:
    theirs = small("ElectraForMaskedLM", tie_word_embeddings=False)
    ours = read(theirs, tmp_path / "theirs")
    check_answers(ours, theirs, {})
    check_back(there_and_back(ours, ElectraForMaskedLM, tmp_path / "ours"), theirs, "words")


def test_what_was_read_can_be_kept_as_softlooks_own(tmp_path: Path) -> None:
    ours = read(small("ElectraForPreTraining"), tmp_path / "theirs")
    again: Any = load(save(ours, tmp_path / "ours"))
    assert again.config == ours.config
    assert torch.equal(again.widen.weight, ours.widen.weight)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a decoder": ("ElectraModel", {"is_decoder": True}, "this model is a decoder"),
    "two activations": ("ElectraForMaskedLM", {"hidden_act": "relu"}, "'relu' inside and with gelu in its head"),
    "another summary": ("ElectraForMultipleChoice", {"summary_type": "mean"}, "should come from the first token"),
    "no projection": ("ElectraForMultipleChoice", {"summary_use_proj": False}, "should come from the first token"),
    "no activation": ("ElectraForMultipleChoice", {"summary_activation": "tanh"}, "should come from the first token"),
    "another class": ("ElectraForCausalLM", {}, "of ELECTRA, softlook knows ElectraModel"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_softlook_does_not_compute_is_refused(what: str, tmp_path: Path) -> None:
    kind, changes, message = REFUSED[what]
    folder = saved(small(kind if kind in ARCHITECTURES else "ElectraModel"), tmp_path / "theirs")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": [kind], **changes}))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize(
    "changes",
    [{"head": "next"}, {"head": "words", "activation": "relu"}, {"offset": 2}, {"segments": 0}, {"head": "pooled"}],
)
def test_a_narrow_embedding_is_never_written_as_another_architecture(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Bert(OurConfig(**{"vocab": 13, "dim": 24, "embedding": 10, "depth": 1, "heads": 2, **changes}))
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "ours")
