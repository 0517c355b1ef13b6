"""Damaged, inconsistent and malicious folders of weights raise one clear error."""

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

Damage = Callable[[Path], Any]
WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
TABLE = "transformer.wte.weight"


def tensors(**changes: Any) -> Damage:
    """Replace tensors, or remove them with None; __ in a name is a dot."""

    def change(held: dict[str, Any]) -> None:
        for name, tensor in changes.items():
            held.pop(name.replace("__", "."), None)
            if tensor is not None:
                held[name.replace("__", ".")] = tensor

    return lambda folder: change_weights(folder, change)


def config(**changes: Any) -> Damage:
    return lambda folder: change_config(folder, **changes)


def file(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def safetensors_header(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def set_nan(folder: Path) -> None:
    change_weights(folder, lambda held: held["transformer.ln_f.bias"].fill_(torch.nan))


def truncate(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-5])


def use_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    torch.save({}, folder / "pytorch_model.bin")


def shards(folder: Path, **files: str) -> None:
    (folder / WEIGHTS).unlink(missing_ok=True)
    (folder / INDEX).write_text(json.dumps({"weight_map": files}), encoding="utf-8")


def duplicate_tensor(folder: Path) -> None:
    for part in ("one.safetensors", "two.safetensors"):
        save_file({TABLE: numbers(2, 2)}, folder / part)
    shards(folder, one="one.safetensors", two="two.safetensors")


def huge_header(folder: Path) -> None:
    """A sparse file with a header of 90 MB."""
    with (folder / WEIGHTS).open("wb") as file:
        file.write(struct.pack("<Q", 90_000_000) + b"{")
        file.truncate(90_000_100)


def overlapping_tensors(folder: Path) -> None:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    (folder / WEIGHTS).write_bytes(safetensors_header(json.dumps({"a": entry, "b": entry}).encode()) + bytes(4))


def dangling_link(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(folder / "gone")


def circular_link(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(folder / WEIGHTS)


def config_as_pipe(folder: Path) -> None:
    (folder / CONFIG).unlink()
    os.mkfifo(folder / CONFIG)


def huge_config(folder: Path) -> None:
    with (folder / CONFIG).open("wb") as file:
        file.truncate(100_000_000)


HUGGING_FACE: dict[str, tuple[Damage, str]] = {
    "a wrong shape": (
        tensors(transformer__wte__weight=numbers(11, 15)),
        r"'transformer.wte.weight' must have shape \(11, 16\) by the config, got \(11, 15\). Config and weights belong",
    ),
    "a wrong shape of a fused layer": (
        tensors(transformer__h__0__attn__c_attn__bias=numbers(2)),
        r"'transformer.h.0.attn.c_attn.bias' must have shape \(48,\) by the config, got \(2,\)",
    ),
    "a scalar instead of a matrix": (
        tensors(transformer__h__0__attn__c_attn__weight=torch.tensor(1.0)),
        r"must have shape \(16, 48\) by the config, got \(\)",
    ),
    "integers": (
        tensors(transformer__wte__weight=torch.zeros(11, 16, dtype=torch.int64)),
        r"'transformer.wte.weight' has dtype torch.int64, expected torch.float32",
    ),
    "quantized weights": (
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
    "NaN": (
        set_nan,
        r"'transformer.ln_f.bias' contains NaN or infinity. The file is damaged",
    ),
    "an unknown architecture": (
        config(model_type="mamba"),
        r"has model_type 'mamba', which is not supported. Supported: .*gpt2 \(GPT-2\)",
    ),
    "no architecture": (config(model_type=None), r"has model_type None, which is not supported"),
    "a model_type that is a list": (config(model_type=["gpt2"]), r"has model_type \['gpt2'\]"),
    "an unknown class": (
        config(architectures=["GPT2ForChess"]),
        r"holds a 'GPT2ForChess'; supported classes of GPT-2: GPT2LMHeadModel",
    ),
    "a class that is not a string": (config(architectures=[{"x": 1}]), r"holds a {'x': 1}; supported classes of GPT-2"),
    "a config for another size": (config(n_layer=3), r"lacks 'transformer.h.2.attn.c_attn.bias', .* and 8 more"),
    "a string for an integer": (config(n_embd="16"), r"config.json: n_embd: Input should be a valid integer, got '16'"),
    "a boolean for an integer": (
        config(n_layer=True),
        r"config.json: n_layer: Input should be a valid integer, got True",
    ),
    "a field that is NaN": (config(layer_norm_epsilon=float("nan")), r"layer_norm_epsilon: .*finite number"),
    "an unknown activation": (config(activation_function="os.system"), r"activation 'os.system' is not supported"),
    "incompatible sizes": (
        config(n_head=3),
        r"cannot be built: dim must be a multiple of heads, got dim=16",
    ),
    "no heads": (config(n_head=0), r"n_head: Input should be greater than 0, got 0"),
    "a negative size": (config(vocab_size=-4), r"vocab_size: Input should be greater than 0, got -4"),
    "a size beyond any memory": (config(vocab_size=10**12), r"must have shape \(1000000000000, 16\) by the config"),
    "a size beyond 64 bits": (config(n_embd=10**30, n_head=1), r"describes a model that cannot be built"),
    "too many layers": (config(n_layer=10**9), r"n_layer is 1,000,000,000; the maximum is 1,024"),
    "a dropout probability above one": (config(resid_pdrop=5.0), r"describes a model that cannot be built"),
    "no config": (lambda folder: (folder / CONFIG).unlink(), r"holds no config.json"),
    "a config that is not JSON": (file(CONFIG, b"{model_type"), r"config.json is not JSON"),
    "a config that is a list": (file(CONFIG, b"[1]"), r"must hold one JSON object, got list"),
    "a config that is not UTF-8": (file(CONFIG, b"\xff\xfe\x00"), r"config.json is not JSON"),
    "a deeply nested config": (file(CONFIG, b"[" * 500_000), r"config.json is not JSON"),
    "a config with a huge integer": (file(CONFIG, b'{"n": ' + b"9" * 9999 + b"}"), r"config.json is not JSON"),
    "a config of 100 megabytes": (huge_config, r"has 100,000,000 bytes; the maximum is"),
    "an empty config": (file(CONFIG, b""), r"config.json is not JSON"),
    "a config that is a pipe": (config_as_pipe, r"holds no config.json"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), r"holds no model.safetensors and no model.safetens"),
    "an empty file": (file(WEIGHTS, b""), r"model.safetensors is .* not a safetensors file"),
    "a truncated file": (truncate, r"model.safetensors is .* not a safetensors file"),
    "a file of another format": (file(WEIGHTS, b"GGUF" * 99), r"it ends before its header does"),
    "a header that is not JSON": (
        file(WEIGHTS, safetensors_header(b"{nonsense}")),
        r"damaged or not a safetensors file",
    ),
    "a deeply nested header": (file(WEIGHTS, safetensors_header(b"[" * 99_999)), r"damaged or not a safetensors file"),
    "a huge header": (huge_header, r"has a header of 90,000,000 bytes; the maximum is"),
    "overlapping tensors": (overlapping_tensors, r"damaged or not a safetensors file"),
    "a pickle": (use_pickle, r"holds its weights as pytorch_model.bin, a pickle, .* convert it once .*save_pretrained"),
    "a dangling link": (dangling_link, r"holds no model.safetensors"),
    "a circular link": (circular_link, r"holds no model.safetensors"),
    "an index with a path outside the folder": (
        lambda folder: shards(folder, x="../elsewhere.safetensors"),
        r"lists '../elsewhere.safetensors', which is not a safetensors file in the same folder",
    ),
    "an index with an absolute path": (
        lambda folder: shards(folder, x="/etc/passwd.safetensors"),
        r"which is not a safetensors file in the same folder",
    ),
    "an index of pickles": (lambda folder: shards(folder, x="a.bin"), r"lists 'a.bin', which is not a safetensors"),
    "an empty index": (lambda folder: shards(folder), r"is not a safetensors index"),
    "an invalid index": (
        lambda folder: ((folder / WEIGHTS).unlink(), (folder / INDEX).write_text('{"weight_map": ["a"]}')),
        r"is not a safetensors index",
    ),
    "a missing shard": (
        lambda folder: shards(folder, x="gone.safetensors"),
        r"lists gone.safetensors, which is missing",
    ),
    "the same tensor twice": (duplicate_tensor, r"holds 'transformer.wte.weight' twice, .*in two.safetensors"),
}


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_a_damaged_hugging_face_folder_raises_an_error(name: str, tmp_path: Path) -> None:
    damage, message = HUGGING_FACE[name]
    folder = hugging_face(tmp_path / "hf")
    damage(folder)
    start = time.perf_counter()
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)
    assert time.perf_counter() - start < 5, "the error takes too long"


def test_an_undamaged_folder_is_loaded(tmp_path: Path) -> None:
    assert from_hugging_face(hugging_face(tmp_path / "hf")).config.dim == 16  # pyright: ignore


def test_unknown_fields_are_ignored_with_a_warning(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    change_config(folder, invented=1, _attn_implementation_internal="somebody/kernel")
    with pytest.warns(ConfigWarning, match=r"ignoring unknown fields: _attn_implementation_internal, invented"):
        from_hugging_face(folder)


def test_no_field_runs_code(tmp_path: Path) -> None:
    """Fields by which other libraries import or download code; softlook ignores them."""
    folder = hugging_face(tmp_path / "hf")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    named = {"auto_map": {"AutoModel": "evil.Model"}, "_target_": "evil.Model", "attn_implementation": "evil/kernel"}
    change_config(folder, **named, trust_remote_code=True, custom_pipelines={"x": {"impl": "evil.X"}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        from_hugging_face(folder)
    assert not (tmp_path / "ran").exists()


CHECKPOINTS: dict[str, tuple[Damage, str]] = {
    "a missing file": (lambda folder: (folder / "tokenizer.json").unlink(), r"lacks 'tokenizer.json', which its manif"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), r"holds no manifest.json"),
    "a truncated file": (
        truncate,
        r"model.safetensors is not what was saved: it was truncated. Expected \d+ bytes, got",
    ),
    "a longer file": (
        lambda folder: (folder / WEIGHTS).write_bytes(bytes(99_999)),
        r"it was changed. Expected \d+ bytes",
    ),
    "an empty file": (file(WEIGHTS, b""), r"it was truncated. Expected \d+ bytes, got 0"),
    "a manifest with a path outside the folder": (
        file("manifest.json", b'{"format": 2, "files": {"../x": {}}}'),
        r"manifest.json is not what was saved: it was changed or damaged",
    ),
    "a manifest of the future": (
        file("manifest.json", b'{"format": 3}'),
        r"has format 3; this version of softlook reads format 2",
    ),
    "no softlook.json": (
        lambda folder: (folder / "softlook.json").unlink(),
        r"holds no softlook.json. Expected a folder",
    ),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_damaged_checkpoint_raises_an_error(name: str, tmp_path: Path) -> None:
    damage, message = CHECKPOINTS[name]
    folder = checkpoint(tmp_path / "softlook")
    damage(folder)
    with pytest.raises(WeightsError, match=message):
        load(folder)


def edit(**changes: Any) -> Damage:
    """Another softlook.json with a manifest that matches it: a deliberate change, not damage."""

    def damage(folder: Path) -> None:
        path = folder / "softlook.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        sizes = content["config"] | changes.pop("config", {})
        path.write_text(json.dumps(content | changes | {"config": sizes}), encoding="utf-8")
        write_manifest(folder)

    return damage


EDITED: dict[str, tuple[Damage, str]] = {
    "an older format": (
        edit(format=1),
        r"softlook.json has format 1; this version of softlook reads format 2",
    ),
    "an unknown model": (edit(model="os.system"), r"has model 'os.system'; supported: Bert, "),
    "a model that is not a string": (edit(model=["GPT"]), r"has model \['GPT'\]; supported"),
    "an unknown field": (edit(config={"evil": 1}), r"unknown fields of GPT: evil"),
    "a string for an integer": (edit(config={"dim": "16"}), r"dim: Input should be a valid integer, got '16'"),
    "an infinite number": (edit(config={"eps": float("inf")}), r"softlook.json: Out of range float"),
    "another size": (edit(config={"dim": 32}), r"must have shape \(11, 32\) by the config, got \(11, 16\)"),
    "more layers": (edit(config={"depth": 3}), r"does not match the model: missing 'blocks.2"),
    "fewer layers": (edit(config={"depth": 1}), r"does not match the model: unexpected 'blocks.1"),
    "too many layers": (edit(config={"depth": 10**9}), r"depth is 1,000,000,000; the maximum is"),
    "incompatible sizes": (
        edit(config={"heads": 3}),
        r"cannot be built: dim must be a multiple of heads",
    ),
}


@pytest.mark.parametrize("name", EDITED)
def test_an_edited_checkpoint_with_a_valid_manifest_raises_an_error(name: str, tmp_path: Path) -> None:
    damage, message = EDITED[name]
    folder = checkpoint(tmp_path / "softlook")
    damage(folder)
    with pytest.raises(WeightsError, match=message):
        load(folder)


def test_weights_of_another_model_raise_an_error(tmp_path: Path) -> None:
    folder, other = checkpoint(tmp_path / "softlook"), save(TINY["Bert"].build(), tmp_path / "other")
    (folder / WEIGHTS).write_bytes((other / WEIGHTS).read_bytes())
    write_manifest(folder)
    with pytest.raises(WeightsError, match=r"does not match the model: missing 'final_norm.bias'"):
        load(folder)


def test_the_error_of_the_wrong_loader_names_the_right_one(tmp_path: Path) -> None:
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
    "a prefix longer than the merged tokens": {
        "model": {
            "type": "BPE",
            "continuing_subword_prefix": "#########",
            "vocab": {"a": 0, "b": 1, "ab": 2},
            "merges": [["a", "b"]],
        }
    },
    "a pre-tokenizer with length zero": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "an undefined special token": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "X", "type_id": 0}}],
            "special_tokens": {},
        }
    },
    "an unknown token outside the vocabulary": {"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "?"}},
    "no model": {"model": {"type": "None"}},
}


@pytest.mark.parametrize("name", PANICS)
def test_a_tokenizer_that_panics_raises_an_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json(**PANICS[name]), encoding="utf-8")
    with pytest.raises(WeightsError, match=r"tokenizer.json is not a working tokenizer: "):
        read_tokenizer(path)
    with pytest.raises(WeightsError, match=r"tokenizer.json is not a working tokenizer: "):
        save(TINY["GPT"].build(), tmp_path / "softlook", tokenizer=path)
    assert [found.name for found in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_missing_tokenizer_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"tokenizer.json does not exist. Expected a"):
        read_tokenizer(tmp_path)
