"""softlook's own checkpoints: a folder with the config, the weights, and a digest of each file, checked on load."""

import json
from dataclasses import asdict
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import nn

from softlook.base.errors import ConfigError, WeightsError
from softlook.weights.files import PICKLES, SINGLE, check_finite, read_file, write_file
from softlook.weights.folders import new_folder
from softlook.weights.known import MODELS
from softlook.weights.renaming import fill, own_tensors
from softlook.weights.schema import read_json
from softlook.weights.tokenizer import copy_tokenizer

FORMAT = 1
CONFIG, MANIFEST = "softlook.json", "manifest.json"


def save(model: nn.Module, path: str | Path, *, tokenizer: str | Path | None = None) -> Path:
    """Write a model as a new folder; `tokenizer` is a tokenizer.json to keep beside it. Nothing is overwritten.

    >>> import tempfile
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(save(model, Path(folder) / "gpt"))
    >>> again.config == model.config
    True
    """
    name = type(model).__name__
    if name not in MODELS or not isinstance(model, MODELS[name].model):
        raise WeightsError(f"softlook keeps its own models; {name} is none of {', '.join(MODELS)}")
    config = {"format": FORMAT, "softlook": version("softlook"), "model": name, "config": asdict(model.config)}  # pyright: ignore[reportArgumentType]
    with new_folder(Path(path)) as made:
        write_file(own_tensors(model), made / SINGLE)
        (made / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), made)
        write_manifest(made)
    return Path(path)


def load(path: str | Path) -> nn.Module:
    """The model in a folder that `save` wrote, ready to answer, after every byte was checked against its digest."""
    folder = Path(path)
    if not folder.is_dir():
        hint = " It looks like a pickle; softlook opens none." if folder.suffix in PICKLES else ""
        raise WeightsError(f"{folder} is not a folder.{hint} Give the folder that weights.save wrote.")
    if not (folder / CONFIG).is_file():
        raise WeightsError(
            f"{folder} holds no {CONFIG}. For a folder of Hugging Face's, use weights.from_hugging_face."
        )
    verify(folder)
    content = read_json(folder / CONFIG)
    model = _built(content, folder / CONFIG)
    tensors = read_file(folder / SINGLE)
    check_finite(tensors, folder)
    fill(model, tensors, folder)
    return model.eval()


def write_manifest(folder: Path) -> None:
    """Size and digest of every file, to be compared when it is read."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": digest(path)}
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }
    text = json.dumps({"format": FORMAT, "files": files}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def verify(folder: Path) -> None:
    """Is every file that the manifest names there, and the same to the last bit?"""
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict) or SINGLE not in files or CONFIG not in files:
        raise WeightsError(f"{folder / MANIFEST} does not list the files of a checkpoint")
    for name, wanted in files.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            raise WeightsError(f"{folder} lacks {name!r:.80}, which its manifest names. Was the whole folder copied?")
        if not isinstance(wanted, dict) or digest(path) != wanted.get("sha256"):
            raise WeightsError(
                f"{path} is not what was saved: its digest differs from the manifest's. It was changed or damaged; "
                "take another copy."
            )


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _built(content: dict[str, Any], where: Path) -> nn.Module:
    name, fields = content.get("model"), content.get("config")
    if content.get("format") != FORMAT:
        raise WeightsError(f"{where} has format {content.get('format')!r:.20}; this softlook reads format {FORMAT}")
    if name not in MODELS or not isinstance(fields, dict):
        raise WeightsError(f"{where} names the model {name!r:.40}; known are {', '.join(MODELS)}")
    known = MODELS[name]
    unknown = sorted(fields.keys() - set(known.config.__dataclass_fields__))
    if unknown:
        raise WeightsError(f"{where}: {name} has no such fields: {', '.join(unknown)}")
    try:
        return known.model(TypeAdapter(known.config).validate_python(fields))
    except ValidationError as fault:
        first = fault.errors()[0]
        raise WeightsError(f"{where}: {first['loc'][0]}: {first['msg']}; {first['input']!r:.80} came") from None
    except ConfigError as fault:
        raise WeightsError(f"{where}: {fault}") from None
