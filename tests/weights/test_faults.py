"""Whatever is wrong with a folder of weights: one clear error, and nothing half-loaded."""

import json
import os
import struct
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face, load, read_tokenizer, save
from softlook.weights.manifest import write_manifest
from softlook.weights.schema import ConfigWarning
from tests.models.tiny import TINY
from tests.weights.folders import change_config, change_weights, checkpoint, hugging_face, numbers, tokenizer_json

Spoil = Callable[[Path], Any]
WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
TABLE = "transformer.wte.weight"


def tensors(**changes: Any) -> Spoil:
    """Tensors set to others, or removed where None; __ in a name is a dot."""

    def change(held: dict[str, Any]) -> None:
        for name, tensor in changes.items():
            held.pop(name.replace("__", "."), None)
            if tensor is not None:
                held[name.replace("__", ".")] = tensor

    return lambda folder: change_weights(folder, change)


def config(**changes: Any) -> Spoil:
    return lambda folder: change_config(folder, **changes)


def file(name: str, content: bytes) -> Spoil:
    return lambda folder: (folder / name).write_bytes(content)


def bare_header(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def broken_number(folder: Path) -> None:
    change_weights(folder, lambda held: held["transformer.ln_f.bias"].fill_(torch.nan))


def cut_short(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-5])


def a_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    torch.save({}, folder / "pytorch_model.bin")


def shards(folder: Path, **files: str) -> None:
    (folder / WEIGHTS).unlink(missing_ok=True)
    (folder / INDEX).write_text(json.dumps({"weight_map": files}), encoding="utf-8")


def the_same_twice(folder: Path) -> None:
    for part in ("one.safetensors", "two.safetensors"):
        save_file({TABLE: numbers(2, 2)}, folder / part)
    shards(folder, one="one.safetensors", two="two.safetensors")


def a_bomb(folder: Path) -> None:
    """A header as large as a file system is willing to pretend."""
    with (folder / WEIGHTS).open("wb") as spoilt:
        spoilt.write(struct.pack("<Q", 90_000_000) + b"{")
        spoilt.truncate(90_000_100)


def overlapping(folder: Path) -> None:
    said = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    (folder / WEIGHTS).write_bytes(bare_header(json.dumps({"a": said, "b": said}).encode()) + bytes(4))


def a_link_to_nowhere(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(folder / "gone")


def a_link_in_a_circle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(folder / WEIGHTS)


def a_pipe(folder: Path) -> None:
    (folder / CONFIG).unlink()
    os.mkfifo(folder / CONFIG)


def a_config_of_100_megabytes(folder: Path) -> None:
    with (folder / CONFIG).open("wb") as spoilt:
        spoilt.truncate(100_000_000)


THEIRS: dict[str, tuple[Spoil, str]] = {
    "a wrong shape": (
        tensors(transformer__wte__weight=numbers(11, 15)),
        r"'transformer.wte.weight' should be \(11, 16\) by the config, and is \(11, 15\). Config and weights are not",
    ),
    "a wrong shape that cannot be parted in three": (
        tensors(transformer__h__0__attn__c_attn__bias=numbers(2)),
        r"'transformer.h.0.attn.c_attn.bias' should be \(48,\) by the config, and is \(2,\)",
    ),
    "a scalar where a matrix should be": (
        tensors(transformer__h__0__attn__c_attn__weight=torch.tensor(1.0)),
        r"should be \(16, 48\) by the config, and is \(\)",
    ),
    "whole numbers": (
        tensors(transformer__wte__weight=torch.zeros(11, 16, dtype=torch.int64)),
        r"'transformer.wte.weight' holds torch.int64 numbers, where torch.float32 were expected",
    ),
    "quantised numbers": (
        tensors(transformer__wte__weight=torch.zeros(11, 16).to(torch.float8_e4m3fn)),
        r"'transformer.wte.weight' holds torch.float8_e4m3fn numbers, which are quantised weights",
    ),
    "a missing tensor": (
        tensors(transformer__ln_f__bias=None),
        r"lacks 'transformer.ln_f.bias', which this architecture needs",
    ),
    "an extra tensor": (
        tensors(transformer__surprise=numbers(3)),
        r"holds 'transformer.surprise', which this architecture has no place for",
    ),
    "many extra tensors": (
        tensors(**{f"x{i}": numbers(1) for i in range(9)}),
        r"holds 'x0', 'x1', 'x2', 'x3' and 5 more",
    ),
    "a weight that is no number": (
        broken_number,
        r"'transformer.ln_f.bias' holds NaN or infinity. The weights were damaged",
    ),
    "an unknown architecture": (
        config(model_type="mamba"),
        r"says it is 'mamba', which softlook does not know. Known are: .*gpt2 \(GPT-2\)",
    ),
    "no architecture": (config(model_type=None), r"says it is None, which softlook does not know"),
    "an architecture that is a list": (config(model_type=["gpt2"]), r"says it is \['gpt2'\]"),
    "a class that is not known": (
        config(architectures=["GPT2ForChess"]),
        r"holds a 'GPT2ForChess'; of GPT-2, softlook knows GPT2LMHeadModel",
    ),
    "a class that is no name": (config(architectures=[{"x": 1}]), r"holds a {'x': 1}; of GPT-2, softlook knows"),
    "a config for another size": (config(n_layer=3), r"lacks 'transformer.h.2.attn.c_attn.bias', .* and 8 more"),
    "a word for a number": (config(n_embd="16"), r"config.json: n_embd: Input should be a valid integer; '16' came"),
    "true for a number": (config(n_layer=True), r"config.json: n_layer: Input should be a valid integer; True came"),
    "a number that is none": (config(layer_norm_epsilon=float("nan")), r"layer_norm_epsilon: .*finite number"),
    "a bend that is not known": (config(activation_function="os.system"), r"no such activation is known: 'os.system'"),
    "sizes that do not go together": (config(n_head=3), r"cannot be built: 3 heads cannot share a width of 16"),
    "no heads": (config(n_head=0), r"n_head: Input should be greater than 0; 0 came"),
    "a size below zero": (config(vocab_size=-4), r"vocab_size: Input should be greater than 0; -4 came"),
    "a size beyond all memory": (config(vocab_size=10**12), r"should be \(1000000000000, 16\) by the config"),
    "a size beyond all counting": (config(n_embd=10**30, n_head=1), r"describes a model that cannot be built"),
    "layers without end": (config(n_layer=10**9), r"n_layer is 1,000,000,000; softlook builds models of up to 1,024"),
    "a share above one": (config(resid_pdrop=5.0), r"describes a model that cannot be built"),
    "no config": (lambda folder: (folder / CONFIG).unlink(), r"holds no config.json"),
    "a config that is no JSON": (file(CONFIG, b"{model_type"), r"config.json is not JSON"),
    "a config that is a list": (file(CONFIG, b"[1]"), r"should hold one JSON object, and holds a list"),
    "a config of no letters": (file(CONFIG, b"\xff\xfe\x00"), r"config.json is not JSON"),
    "a config without end": (file(CONFIG, b"[" * 500_000), r"config.json is not JSON"),
    "a config with a number without end": (file(CONFIG, b'{"n": ' + b"9" * 9999 + b"}"), r"config.json is not JSON"),
    "a config of 100 megabytes": (a_config_of_100_megabytes, r"has 100,000,000 bytes; such a file has at most"),
    "an empty config": (file(CONFIG, b""), r"config.json is not JSON"),
    "a pipe for a config": (a_pipe, r"holds no config.json"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), r"holds no model.safetensors and no model.safetens"),
    "an empty file": (file(WEIGHTS, b""), r"model.safetensors is damaged or no safetensors file"),
    "a truncated file": (cut_short, r"model.safetensors is damaged or no safetensors file"),
    "a file of another kind": (file(WEIGHTS, b"GGUF" * 99), r"it ends before its header does, or is truncated"),
    "a header that is no JSON": (file(WEIGHTS, bare_header(b"{nonsense}")), r"damaged or no safetensors file"),
    "a header without end": (file(WEIGHTS, bare_header(b"[" * 99_999)), r"damaged or no safetensors file"),
    "a header bomb": (a_bomb, r"has a header of 90,000,000 bytes; the largest softlook reads has"),
    "tensors on top of each other": (overlapping, r"damaged or no safetensors file"),
    "a pickle": (a_pickle, r"holds its weights as pytorch_model.bin, a pickle, .* convert it once, .*save_pretrained"),
    "a link to nowhere": (a_link_to_nowhere, r"holds no model.safetensors"),
    "a link in a circle": (a_link_in_a_circle, r"holds no model.safetensors"),
    "an index that leads outside": (
        lambda folder: shards(folder, x="../elsewhere.safetensors"),
        r"names '../elsewhere.safetensors', which is not a safetensors file beside it",
    ),
    "an index with a path": (
        lambda folder: shards(folder, x="/etc/passwd.safetensors"),
        r"which is not a safetensors file beside it",
    ),
    "an index of pickles": (lambda folder: shards(folder, x="a.bin"), r"names 'a.bin', which is not a safetensors"),
    "an index of nothing": (lambda folder: shards(folder), r"is not an index of safetensors files"),
    "an index that is no index": (
        lambda folder: ((folder / WEIGHTS).unlink(), (folder / INDEX).write_text('{"weight_map": ["a"]}')),
        r"is not an index of safetensors files",
    ),
    "a missing shard": (
        lambda folder: shards(folder, x="gone.safetensors"),
        r"names gone.safetensors, which is missing",
    ),
    "the same tensor twice": (the_same_twice, r"holds 'transformer.wte.weight' twice, .*in two.safetensors"),
}


@pytest.mark.parametrize("fault", THEIRS)
def test_a_fault_in_a_folder_of_hugging_faces_is_told_at_once(fault: str, tmp_path: Path) -> None:
    spoil, message = THEIRS[fault]
    folder = hugging_face(tmp_path / "theirs")
    spoil(folder)
    began = time.perf_counter()
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)
    assert time.perf_counter() - began < 5, "a fault is told at once"


def test_a_folder_without_faults_is_read(tmp_path: Path) -> None:
    assert from_hugging_face(hugging_face(tmp_path / "theirs")).config.dim == 16  # pyright: ignore


def test_unknown_fields_are_left_out_with_a_warning(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "theirs")
    change_config(folder, invented=1, _attn_implementation_internal="somebody/kernel")
    with pytest.warns(ConfigWarning, match=r"left out, .*: _attn_implementation_internal, invented"):
        from_hugging_face(folder)


def test_no_field_names_code(tmp_path: Path) -> None:
    """Fields that made other libraries fetch and run something; here they are words like any other."""
    folder = hugging_face(tmp_path / "theirs")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    named = {"auto_map": {"AutoModel": "evil.Model"}, "_target_": "evil.Model", "attn_implementation": "evil/kernel"}
    change_config(folder, **named, trust_remote_code=True, custom_pipelines={"x": {"impl": "evil.X"}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        from_hugging_face(folder)
    assert not (tmp_path / "ran").exists()


OURS: dict[str, tuple[Spoil, str]] = {
    "a missing file": (lambda folder: (folder / "tokenizer.json").unlink(), r"lacks 'tokenizer.json', which its manif"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), r"holds no manifest.json"),
    "a truncated file": (
        cut_short,
        r"model.safetensors is not what was saved: it was truncated. It had \d+ bytes, and",
    ),
    "a longer file": (
        lambda folder: (folder / WEIGHTS).write_bytes(bytes(99_999)),
        r"it was changed. It had \d+ bytes",
    ),
    "an empty file": (file(WEIGHTS, b""), r"it was truncated. It had \d+ bytes, and has 0"),
    "a manifest that leads outside": (
        file("manifest.json", b'{"format": 1, "files": {"../x": {}}}'),
        r"manifest.json is not what was saved: it was changed or damaged",
    ),
    "a manifest of the future": (
        file("manifest.json", b'{"format": 2}'),
        r"has format 2; this softlook reads format 1",
    ),
    "no model at all": (lambda folder: (folder / "softlook.json").unlink(), r"holds no softlook.json. Give the folder"),
}


@pytest.mark.parametrize("fault", OURS)
def test_a_fault_in_a_checkpoint_of_ours_is_told(fault: str, tmp_path: Path) -> None:
    spoil, message = OURS[fault]
    folder = checkpoint(tmp_path / "ours")
    spoil(folder)
    with pytest.raises(WeightsError, match=message):
        load(folder)


def described(**changes: Any) -> Spoil:
    """Another softlook.json, under a manifest that agrees with it: made so on purpose, not damaged."""

    def spoil(folder: Path) -> None:
        path = folder / "softlook.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        sizes = content["config"] | changes.pop("config", {})
        path.write_text(json.dumps(content | changes | {"config": sizes}), encoding="utf-8")
        write_manifest(folder)

    return spoil


MADE_SO: dict[str, tuple[Spoil, str]] = {
    "a format of the future": (described(format=2), r"softlook.json has format 2; this softlook reads format 1"),
    "an unknown model": (described(model="os.system"), r"names the model 'os.system'; known are Bert, "),
    "a model that is no name": (described(model=["GPT"]), r"names the model \['GPT'\]; known are"),
    "a field too many": (described(config={"evil": 1}), r"GPT has no such fields: evil"),
    "a word for a number": (described(config={"dim": "16"}), r"dim: Input should be a valid integer; '16' came"),
    "a number that is none": (described(config={"eps": float("inf")}), r"softlook.json: Out of range float"),
    "another size": (described(config={"dim": 32}), r"should be \(11, 32\) by the config, and is \(11, 16\)"),
    "more layers": (described(config={"depth": 3}), r"does not fit: it lacks 'blocks.2"),
    "fewer layers": (described(config={"depth": 1}), r"does not fit: it also holds 'blocks.1"),
    "layers without end": (described(config={"depth": 10**9}), r"depth is 1,000,000,000; softlook builds models of up"),
    "sizes that do not go together": (described(config={"heads": 3}), r"cannot be built: 3 heads cannot share"),
}


@pytest.mark.parametrize("fault", MADE_SO)
def test_a_checkpoint_that_was_made_wrong_on_purpose_is_refused(fault: str, tmp_path: Path) -> None:
    spoil, message = MADE_SO[fault]
    folder = checkpoint(tmp_path / "ours")
    spoil(folder)
    with pytest.raises(WeightsError, match=message):
        load(folder)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    folder, other = checkpoint(tmp_path / "ours"), save(TINY["Bert"].build(), tmp_path / "other")
    (folder / WEIGHTS).write_bytes((other / WEIGHTS).read_bytes())
    write_manifest(folder)
    with pytest.raises(WeightsError, match=r"does not fit: it also holds 'head.norm.bias'"):
        load(folder)


def test_who_loads_the_wrong_thing_is_told_what_to_use(tmp_path: Path) -> None:
    theirs, ours = hugging_face(tmp_path / "theirs"), checkpoint(tmp_path / "ours")
    with pytest.raises(WeightsError, match=r"but a folder of Hugging Face's. Use weights.from_hugging_face"):
        load(theirs)
    with pytest.raises(WeightsError, match=r"is not a folder. Give the folder that weights.save wrote"):
        load(ours / WEIGHTS)
    with pytest.raises(WeightsError, match=r"is not a folder. .*It looks like a pickle"):
        load(tmp_path / "model.pt")
    with pytest.raises(WeightsError, match=r"is a checkpoint of softlook's. Use weights.load"):
        from_hugging_face(ours)
    with pytest.raises(WeightsError, match=r"is not a folder. Give the folder that holds config.json"):
        from_hugging_face(theirs / WEIGHTS)
    with pytest.raises(WeightsError, match=r"is not a folder. It looks like a pickle.*convert it once"):
        from_hugging_face(tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"is not a folder. A GGUF file is read by"):
        from_hugging_face(tmp_path / "model.gguf")


PANICS: dict[str, dict[str, Any]] = {
    "merges longer than what they make": {
        "model": {
            "type": "BPE",
            "continuing_subword_prefix": "#########",
            "vocab": {"a": 0, "b": 1, "ab": 2},
            "merges": [["a", "b"]],
        }
    },
    "pieces without length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "a sign that is nowhere": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "X", "type_id": 0}}],
            "special_tokens": {},
        }
    },
    "a word for the unknown that is itself unknown": {
        "model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "?"}
    },
    "no model": {"model": {"type": "None"}},
}


@pytest.mark.parametrize("fault", PANICS)
def test_a_tokenizer_that_panics_is_an_error_like_any_other(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json(**PANICS[fault]), encoding="utf-8")
    with pytest.raises(WeightsError, match=r"tokenizer.json is no working tokenizer: "):
        read_tokenizer(path)
    with pytest.raises(WeightsError, match=r"tokenizer.json is no working tokenizer: "):
        save(TINY["GPT"].build(), tmp_path / "ours", tokenizer=path)
    assert [found.name for found in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_tokenizer_that_is_not_there_is_missed(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"tokenizer.json is not there. A model's tokenizer is a file named"):
        read_tokenizer(tmp_path)
