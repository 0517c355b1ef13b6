"""Decoders of Hugging Face's as settings of softlook's Llama and GPT, read and written."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, DynamicCache

from softlook import masks
from softlook.base.errors import WeightsError
from softlook.blocks import Memory
from softlook.weights import from_hugging_face, load, save
from tests.parity.decoders import FAMILIES, IDS, LENGTHS, PAD, REFUSED, VARIANTS, left_padded, small
from tests.parity.weights import close, read, saved, states, there_and_back


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_logits_and_hidden_states_are_those_of_hugging_face(name: str, variant: str, tmp_path: Path) -> None:
    theirs = small(name, variant)
    ours = read(theirs, tmp_path / "theirs")
    with states(ours.blocks) as our_states, torch.no_grad():
        logits, wanted = ours(IDS), theirs(IDS, output_hidden_states=True)
    close(logits, wanted.logits)
    for one, other in zip(our_states[:-1], wanted.hidden_states[1:-1], strict=True):  # their last one is normed
        close(one, other)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_hugging_face(name: str, tmp_path: Path) -> None:
    theirs = small(name)
    ours = read(theirs, tmp_path / "theirs")
    upstream = torch.randn(2, 9, theirs.config.vocab_size)
    ours(IDS).backward(upstream)
    theirs(IDS).logits.backward(upstream)
    close(ours.tokens.table.weight.grad, theirs.get_input_embeddings().weight.grad)
    close(ours.head.weight.grad, theirs.get_output_embeddings().weight.grad)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_decoding_with_a_cache_is_that_of_hugging_face_beyond_the_window_too(
    name: str, variant: str, tmp_path: Path
) -> None:
    theirs = small(name, variant)
    ours = read(theirs, tmp_path / "theirs")
    memory, cache = Memory(), DynamicCache(config=theirs.config)
    with torch.no_grad():
        for start, stop in ((0, 2), (2, 3), (3, 7), (7, 8), (8, 9)):
            wanted = theirs(IDS[:, start:stop], past_key_values=cache, use_cache=True).logits
            close(ours(IDS[:, start:stop], memory=memory), wanted)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_padding_is_that_of_hugging_face(name: str, variant: str, tmp_path: Path) -> None:
    theirs = small(name, variant)
    ours = read(theirs, tmp_path / "theirs")
    present, positions = left_padded()
    told = {"position_ids": positions} if "position_ids" in inspect.signature(theirs.forward).parameters else {}
    with torch.no_grad():
        logits = ours(IDS, mask=masks.padding(LENGTHS, left_of=9), positions=positions)
        wanted = theirs(IDS, attention_mask=present.long(), **told).logits
        close(logits[present], wanted[present])
        close(ours(IDS, present=present, positions=positions)[present], wanted[present])
        present = present.flip(1)
        wanted = theirs(IDS, attention_mask=present.long()).logits
        close(ours(IDS, mask=masks.padding(LENGTHS))[present], wanted[present])


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_what_is_written_is_read_by_hugging_face_with_the_same_logits(name: str, variant: str, tmp_path: Path) -> None:
    theirs = small(name, variant)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, AutoModelForCausalLM, tmp_path / "ours")  # pyright: ignore
    save(ours, tmp_path / "kept")
    with torch.no_grad():
        close(back(IDS).logits, theirs(IDS).logits, 1e-5)
        assert torch.equal(load(tmp_path / "kept")(IDS), ours(IDS))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_without_a_head_gives_its_states(name: str, tmp_path: Path) -> None:
    theirs = small(name, kind="states")
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, AutoModel, tmp_path / "ours")  # pyright: ignore
    with torch.no_grad():
        wanted = theirs(IDS).last_hidden_state
        close(ours(IDS), wanted)
        close(back(IDS).last_hidden_state, wanted, 1e-5)


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_classes_are_read_off_the_last_token_that_is_no_padding(name: str, classes: int, tmp_path: Path) -> None:
    theirs = small(name, kind="classes", num_labels=classes)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, AutoModelForSequenceClassification, tmp_path / "ours")  # pyright: ignore
    present = torch.arange(9) < LENGTHS[:, None]
    ids = IDS.masked_fill(~present, PAD)
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=present.long()).logits
        assert wanted.shape == (2, classes)
        close(ours(ids), theirs(ids).logits)
        close(ours(ids, present=present), wanted)
        close(back(ids, attention_mask=present.long()).logits, wanted, 1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_an_id_for_padding_classes_are_read_off_the_last_token(name: str, tmp_path: Path) -> None:
    theirs = small(name, kind="classes", pad_token_id=None)
    ours = read(theirs, tmp_path / "theirs")
    ids = torch.tensor([[5, 3, PAD]])
    with torch.no_grad():
        close(ours(ids), theirs(ids).logits)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_head_of_its_own_in_the_file_is_kept_whatever_the_config_says(name: str, tmp_path: Path) -> None:
    theirs = small(name, tie_word_embeddings=False)
    folder = changed(saved(theirs, tmp_path / "theirs"), tie_word_embeddings=True)
    with torch.no_grad():
        close(from_hugging_face(folder)(IDS), type(theirs).from_pretrained(folder)(IDS).logits)
        close(from_hugging_face(folder)(IDS), theirs(IDS).logits)


@pytest.mark.parametrize(("name", "variant"), REFUSED)
def test_what_cannot_be_expressed_is_refused(name: str, variant: str, tmp_path: Path) -> None:
    fields, message = FAMILIES[name].refused[variant]
    folder = changed(saved(small(name), tmp_path / "theirs"), **fields)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize("name", FAMILIES)
def test_other_heads_are_refused(name: str, tmp_path: Path) -> None:
    folder = changed(saved(small(name), tmp_path / "theirs"), architectures=["SomethingForTokenClassification"])
    with pytest.raises(WeightsError, match="holds a 'SomethingForTokenClassification'"):
        from_hugging_face(folder)


def changed(folder: Path, **fields: Any) -> Path:
    """A folder whose config says something else."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")
    return folder


def test_an_older_gemma_3_says_the_same_in_other_words(tmp_path: Path) -> None:
    theirs = small("gemma3", "other bases")
    folder = saved(theirs, tmp_path / "theirs")
    wanted = from_hugging_face(folder)(IDS)
    older = {"rope_theta": 200.0, "rope_local_base_freq": 20.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    changed(folder, rope_parameters=None, layer_types=None, sliding_window_pattern=2, **older)
    close(from_hugging_face(folder)(IDS), wanted, 0.0)
    with torch.no_grad():
        close(type(theirs).from_pretrained(folder, attn_implementation="eager")(IDS).logits, wanted)


def test_norms_and_embeddings_of_gemma_are_exact_in_half_precision(tmp_path: Path) -> None:
    theirs = small("gemma2", hidden_size=40).bfloat16()
    ours = read(theirs, tmp_path / "theirs")
    with torch.no_grad():
        x = theirs.get_input_embeddings()(IDS)
        assert torch.equal(ours.tokens(IDS), x)
        assert torch.equal(ours.norm(x), theirs.model.norm(x))
