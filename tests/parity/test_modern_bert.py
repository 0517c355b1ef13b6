"""ModernBERT of Hugging Face's with each of its heads, read and written."""

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
from softlook.models import ModernBertConfig as OurConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.families.modern_bert import ARCHITECTURES, FAMILY
from tests.parity.encoders import IDS, PRESENT, SIZES, answers, ask, check_back, check_gradients, check_padding
from tests.parity.weights import close, maps, read, saved, states, there_and_back

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
    "layers told": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "norm_eps": 1e-2},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if ARCHITECTURES[kind] == "spans" else {}
    fixed = {"local_attention": 4, **TOKENS}
    config = ModernBertConfig(**{**SIZES, **sizes, **labels, **fixed, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


def check(ours: Any, theirs: nn.Module) -> None:
    """The answers, what goes into each block, and every attention map."""
    with maps(ours) as our_maps, states(nn.ModuleList([ours.drop, *ours.blocks[:-1]])) as inside, torch.no_grad():
        said = answers(ours(IDS))
        wanted, more = ask(theirs, ours.config.head, IDS, attention_mask=torch.ones_like(IDS))
    close(said[0], wanted[0])
    for one, other in zip(our_maps, more.attentions, strict=True):
        close(one, other)
    for one, other in zip(inside, more.hidden_states, strict=False):
        close(one, other)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_hidden_states_and_maps_are_those_of_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    theirs = small(kind, **VARIANTS[variant])
    ours = read(theirs, tmp_path / "theirs")
    assert isinstance(ours, ModernBert) and ours.config.head == ARCHITECTURES[kind]
    check(ours, theirs)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_gradients_are_those_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_gradients(read(theirs, tmp_path / "theirs"), theirs, FAMILY)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_is_that_of_hugging_face(kind: str, pooling: str, tmp_path: Path) -> None:
    theirs = small(kind, classifier_pooling=pooling)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, pad=0)


def test_padding_on_the_left_is_that_of_hugging_face_where_positions_are_told(tmp_path: Path) -> None:
    theirs = small("ModernBertForMaskedLM")
    present = PRESENT.flip(1)
    positions = (present.cumsum(1) - 1).clamp(min=0)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, 0, present, positions=positions)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("variant", ["as published", "biases", "layers told"])
def test_what_is_written_is_read_by_hugging_face_with_the_same_answers(kind: str, variant: str, tmp_path: Path) -> None:
    theirs = small(kind, **VARIANTS[variant])
    again: Any = load(save(read(theirs, tmp_path / "theirs"), tmp_path / "kept"))
    back = there_and_back(again, type(theirs), tmp_path / "ours")
    assert back.config.architectures == [kind]
    check_back(back, theirs, again.config.head)


def test_an_untied_word_head_is_read(tmp_path: Path) -> None:
    theirs = small("ModernBertForMaskedLM", tie_word_embeddings=False)
    ours = read(theirs, tmp_path / "theirs")
    check(ours, theirs)
    check_back(there_and_back(ours, ModernBertForMaskedLM, tmp_path / "ours"), theirs, "words")


def test_a_config_as_published_with_its_old_fields_is_read(tmp_path: Path) -> None:
    """Thetas and the pattern of layers under their first names."""
    theirs = small("ModernBertForMaskedLM", rope_parameters=ropes(300.0, 20.0), num_hidden_layers=4, layer_types=EVERY)
    folder = saved(theirs, tmp_path / "theirs")
    old = {"global_rope_theta": 300.0, "local_rope_theta": 20.0, "global_attn_every_n_layers": 2}
    aside = {"position_embedding_type": "absolute", "layer_norm_eps": 1e-5, "sparse_prediction": False}
    change(folder, {"rope_parameters", "layer_types"}, **old, **aside)
    again: Any = ModernBertForMaskedLM.from_pretrained(folder, attn_implementation="eager")
    ours: Any = from_hugging_face(folder)
    assert (ours.config.base, ours.config.local_base, ours.config.local) == (300.0, 20.0, (1, 3))
    check(ours, again.eval())
    check(ours, theirs)


EVERY = ["full_attention", "sliding_attention"] * 2


def ropes(full: float, local: float) -> dict[str, Any]:
    return {
        "full_attention": {"rope_type": "default", "rope_theta": full},
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }


STRETCHED = {"full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "stretched positions": ({"rope_parameters": STRETCHED}, "should be plain"),
    "stretched positions, in the old way": (
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        "should be plain",
    ),
    "layers that are not there": ({"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
    "layers of another kind": ({"layer_types": ["chunked_attention"] * 3}, "layer_types.0: Input should be"),
    "other heads": ({"head_dim": 8}, "head_dim should be hidden_size / num_attention_heads = 6"),
    "an unknown activation": ({"hidden_activation": "mish"}, "no such activation is known: 'mish'"),
    "another pooling": ({"classifier_pooling": "max"}, "classifier_pooling: Input should be 'cls' or 'mean'"),
    "another class": ({"architectures": ["ModernBertForChess"]}, "of ModernBERT, softlook knows ModernBertModel"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_softlook_does_not_compute_is_refused(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
    folder = saved(small("ModernBertForMaskedLM"), tmp_path / "theirs")
    change(folder, **changes)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_a_model_of_our_own_is_written(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab": 13, "dim": 24, "depth": 4, "heads": 4, "hidden": 40, "window": 1}
    ours = ModernBert(OurConfig(**sizes)).eval()
    back = there_and_back(ours, ModernBertForMaskedLM, tmp_path / "ours")
    with torch.no_grad():
        close(back(IDS).logits, ours(IDS), 1e-5)
    assert to_hugging_face(ours, tmp_path / "again").is_dir()


def change(folder: Path, without: set[str] | None = None, /, **fields: Any) -> None:
    file = folder / "config.json"
    kept = {name: value for name, value in json.loads(file.read_text()).items() if name not in (without or ())}
    file.write_text(json.dumps(kept | fields))
