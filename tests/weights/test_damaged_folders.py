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
    output = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    (folder / WEIGHTS).write_bytes(bare_header(json.dumps({"a": output, "b": output}).encode()) + bytes(4))


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
        r"'transformer.wte.weight' must have shape \(11, 16\) by the config, got \(11, 15\). Config and weights belong",
    ),
    "a wrong shape that cannot be parted in three": (
        tensors(transformer__h__0__attn__c_attn__bias=numbers(2)),
        r"'transformer.h.0.attn.c_attn.bias' must have shape \(48,\) by the config, got \(2,\)",
    ),
    "a scalar where a matrix should be": (
        tensors(transformer__h__0__attn__c_attn__weight=torch.tensor(1.0)),
        r"must have shape \(16, 48\) by the config, got \(\)",
    ),
    "whole numbers": (
        tensors(transformer__wte__weight=torch.zeros(11, 16, dtype=torch.int64)),
        r"'transformer.wte.weight' has dtype torch.int64, expected torch.float32",
    ),
    "quantised numbers": (
        tensors(transformer__wte__weight=torch.zeros(11, 16).to(torch.float8_e4m3fn)),
        r"'transformer.wte.weight' has dtype torch.float8_e4m3fn, which is quantized",
    ),
    "a missing tensor": (
        tensors(transformer__ln_f__bias=None),
        r"lacks 'transformer.ln_f.bias', required by this architecture",
    ),
    "an extra tensor": (
        tensors(transformer__surprise=numbers(3)),
        r"holds 'transformer.surprise', unknown to this architecture",
    ),
    "many extra tensors": (
        tensors(**{f"x{i}": numbers(1) for i in range(9)}),
        r"holds 'x0', 'x1', 'x2', 'x3' and 5 more",
    ),
    "a weight that is no number": (
        broken_number,
        r"'transformer.ln_f.bias' contains NaN or infinity. The file is damaged",
    ),
    "an unknown architecture": (
        config(model_type="mamba"),
        r"has model_type 'mamba', which is not supported. Supported: .*gpt2 \(GPT-2\)",
    ),
    "no architecture": (config(model_type=None), r"has model_type None, which is not supported"),
    "an architecture that is a list": (config(model_type=["gpt2"]), r"has model_type \['gpt2'\]"),
    "a class that is not known": (
        config(architectures=["GPT2ForChess"]),
        r"holds a 'GPT2ForChess'; supported classes of GPT-2: GPT2LMHeadModel",
    ),
    "a class that is no name": (config(architectures=[{"x": 1}]), r"holds a {'x': 1}; supported classes of GPT-2"),
    "a config for another size": (config(n_layer=3), r"lacks 'transformer.h.2.attn.c_attn.bias', .* and 8 more"),
    "a word for a number": (config(n_embd="16"), r"config.json: n_embd: Input should be a valid integer, got '16'"),
    "true for a number": (config(n_layer=True), r"config.json: n_layer: Input should be a valid integer, got True"),
    "a number that is none": (config(layer_norm_epsilon=float("nan")), r"layer_norm_epsilon: .*finite number"),
    "a bend that is not known": (config(activation_function="os.system"), r"activation 'os.system' is not supported"),
    "sizes that do not go together": (
        config(n_head=3),
        r"cannot be built: dim must be a multiple of heads, got dim=16",
    ),
    "no heads": (config(n_head=0), r"n_head: Input should be greater than 0, got 0"),
    "a size below zero": (config(vocab_size=-4), r"vocab_size: Input should be greater than 0, got -4"),
    "a size beyond all memory": (config(vocab_size=10**12), r"must have shape \(1000000000000, 16\) by the config"),
    "a size beyond all counting": (config(n_embd=10**30, n_head=1), r"describes a model that cannot be built"),
    "layers without end": (config(n_layer=10**9), r"n_layer is 1,000,000,000; the maximum is 1,024"),
    "a share above one": (config(resid_pdrop=5.0), r"describes a model that cannot be built"),
    "no config": (lambda folder: (folder / CONFIG).unlink(), r"holds no config.json"),
    "a config that is no JSON": (file(CONFIG, b"{model_type"), r"config.json is not JSON"),
    "a config that is a list": (file(CONFIG, b"[1]"), r"must hold one JSON object, got list"),
    "a config of no letters": (file(CONFIG, b"\xff\xfe\x00"), r"config.json is not JSON"),
    "a config without end": (file(CONFIG, b"[" * 500_000), r"config.json is not JSON"),
    "a config with a number without end": (file(CONFIG, b'{"n": ' + b"9" * 9999 + b"}"), r"config.json is not JSON"),
    "a config of 100 megabytes": (a_config_of_100_megabytes, r"has 100,000,000 bytes; the maximum is"),
    "an empty config": (file(CONFIG, b""), r"config.json is not JSON"),
    "a pipe for a config": (a_pipe, r"holds no config.json"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), r"holds no model.safetensors and no model.safetens"),
    "an empty file": (file(WEIGHTS, b""), r"model.safetensors is .* not a safetensors file"),
    "a truncated file": (cut_short, r"model.safetensors is .* not a safetensors file"),
    "a file of another kind": (file(WEIGHTS, b"GGUF" * 99), r"it ends before its header does"),
    "a header that is no JSON": (file(WEIGHTS, bare_header(b"{nonsense}")), r"damaged or not a safetensors file"),
    "a header without end": (file(WEIGHTS, bare_header(b"[" * 99_999)), r"damaged or not a safetensors file"),
    "a header bomb": (a_bomb, r"has a header of 90,000,000 bytes; the maximum is"),
    "tensors on top of each other": (overlapping, r"damaged or not a safetensors file"),
    "a pickle": (a_pickle, r"holds its weights as pytorch_model.bin, a pickle, .* convert it once .*save_pretrained"),
    "a link to nowhere": (a_link_to_nowhere, r"holds no model.safetensors"),
    "a link in a circle": (a_link_in_a_circle, r"holds no model.safetensors"),
    "an index that leads outside": (
        lambda folder: shards(folder, x="../elsewhere.safetensors"),
        r"lists '../elsewhere.safetensors', which is not a safetensors file in the same folder",
    ),
    "an index with a path": (
        lambda folder: shards(folder, x="/etc/passwd.safetensors"),
        r"which is not a safetensors file in the same folder",
    ),
    "an index of pickles": (lambda folder: shards(folder, x="a.bin"), r"lists 'a.bin', which is not a safetensors"),
    "an index of nothing": (lambda folder: shards(folder), r"is not a safetensors index"),
    "an index that is no index": (
        lambda folder: ((folder / WEIGHTS).unlink(), (folder / INDEX).write_text('{"weight_map": ["a"]}')),
        r"is not a safetensors index",
    ),
    "a missing shard": (
        lambda folder: shards(folder, x="gone.safetensors"),
        r"lists gone.safetensors, which is missing",
    ),
    "the same tensor twice": (the_same_twice, r"holds 'transformer.wte.weight' twice, .*in two.safetensors"),
}


@pytest.mark.parametrize("fault", THEIRS)
def test_a_damaged_hugging_face_folder_raises_an_error(fault: str, tmp_path: Path) -> None:
    spoil, message = THEIRS[fault]
    folder = hugging_face(tmp_path / "hf")
    spoil(folder)
    began = time.perf_counter()
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)
    assert time.perf_counter() - began < 5, "a fault is told at once"


def test_a_folder_without_faults_is_read(tmp_path: Path) -> None:
    assert from_hugging_face(hugging_face(tmp_path / "hf")).config.dim == 16  # pyright: ignore


def test_unknown_fields_are_ignored_with_a_warning(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    change_config(folder, invented=1, _attn_implementation_internal="somebody/kernel")
    with pytest.warns(ConfigWarning, match=r"ignoring unknown fields: _attn_implementation_internal, invented"):
        from_hugging_face(folder)


def test_no_field_names_code(tmp_path: Path) -> None:
    """Fields that made other libraries fetch and run something; here they are words like any other."""
    folder = hugging_face(tmp_path / "hf")
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
        r"model.safetensors is not what was saved: it was truncated. Expected \d+ bytes, got",
    ),
    "a longer file": (
        lambda folder: (folder / WEIGHTS).write_bytes(bytes(99_999)),
        r"it was changed. Expected \d+ bytes",
    ),
    "an empty file": (file(WEIGHTS, b""), r"it was truncated. Expected \d+ bytes, got 0"),
    "a manifest that leads outside": (
        file("manifest.json", b'{"format": 2, "files": {"../x": {}}}'),
        r"manifest.json is not what was saved: it was changed or damaged",
    ),
    "a manifest of the future": (
        file("manifest.json", b'{"format": 3}'),
        r"has format 3; this version of softlook reads format 2",
    ),
    "no model at all": (
        lambda folder: (folder / "softlook.json").unlink(),
        r"holds no softlook.json. Expected a folder",
    ),
}


@pytest.mark.parametrize("fault", OURS)
def test_a_damaged_checkpoint_raises_an_error(fault: str, tmp_path: Path) -> None:
    spoil, message = OURS[fault]
    folder = checkpoint(tmp_path / "softlook")
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
    "an older format": (
        described(format=1),
        r"softlook.json has format 1; this version of softlook reads format 2",
    ),
    "an unknown model": (described(model="os.system"), r"has model 'os.system'; supported: Bert, "),
    "a model that is no name": (described(model=["GPT"]), r"has model \['GPT'\]; supported"),
    "a field too many": (described(config={"evil": 1}), r"unknown fields of GPT: evil"),
    "a word for a number": (described(config={"dim": "16"}), r"dim: Input should be a valid integer, got '16'"),
    "a number that is none": (described(config={"eps": float("inf")}), r"softlook.json: Out of range float"),
    "another size": (described(config={"dim": 32}), r"must have shape \(11, 32\) by the config, got \(11, 16\)"),
    "more layers": (described(config={"depth": 3}), r"does not match the model: missing 'blocks.2"),
    "fewer layers": (described(config={"depth": 1}), r"does not match the model: unexpected 'blocks.1"),
    "layers without end": (described(config={"depth": 10**9}), r"depth is 1,000,000,000; the maximum is"),
    "sizes that do not go together": (
        described(config={"heads": 3}),
        r"cannot be built: dim must be a multiple of heads",
    ),
}


@pytest.mark.parametrize("fault", MADE_SO)
def test_a_checkpoint_that_was_made_wrong_on_purpose_is_refused(fault: str, tmp_path: Path) -> None:
    spoil, message = MADE_SO[fault]
    folder = checkpoint(tmp_path / "softlook")
    spoil(folder)
    with pytest.raises(WeightsError, match=message):
        load(folder)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    folder, other = checkpoint(tmp_path / "softlook"), save(TINY["Bert"].build(), tmp_path / "other")
    (folder / WEIGHTS).write_bytes((other / WEIGHTS).read_bytes())
    write_manifest(folder)
    with pytest.raises(WeightsError, match=r"does not match the model: missing 'final_norm.bias'"):
        load(folder)


def test_the_wrong_loader_names_the_right_one(tmp_path: Path) -> None:
    reference, actual = hugging_face(tmp_path / "hf"), checkpoint(tmp_path / "softlook")
    with pytest.raises(
        WeightsError, match=r"is a Hugging Face folder, not a softlook checkpoint. Use weights.from_hugging_face"
    ):
        load(reference)
    with pytest.raises(WeightsError, match=r"is not a folder. Expected a folder written by weights.save"):
        load(actual / WEIGHTS)
    with pytest.raises(WeightsError, match=r"is not a folder. .*It looks like a pickle"):
        load(tmp_path / "model.pt")
    with pytest.raises(WeightsError, match=r"is a softlook checkpoint. Use weights.load"):
        from_hugging_face(actual)
    with pytest.raises(WeightsError, match=r"is not a folder. Expected a folder with config.json"):
        from_hugging_face(reference / WEIGHTS)
    with pytest.raises(WeightsError, match=r"is not a folder. It looks like a pickle.*convert it once"):
        from_hugging_face(tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"is not a folder. Load a GGUF file with"):
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
def test_a_tokenizer_that_panics_raises_an_error(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json(**PANICS[fault]), encoding="utf-8")
    with pytest.raises(WeightsError, match=r"tokenizer.json is not a working tokenizer: "):
        read_tokenizer(path)
    with pytest.raises(WeightsError, match=r"tokenizer.json is not a working tokenizer: "):
        save(TINY["GPT"].build(), tmp_path / "softlook", tokenizer=path)
    assert [found.name for found in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_tokenizer_that_is_not_there_is_missed(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"tokenizer.json does not exist. Expected a"):
        read_tokenizer(tmp_path)
