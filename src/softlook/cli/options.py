"""Arguments shared by several commands, and what they refer to."""

import logging
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Group, Parameter

from softlook.base.errors import DiskError

if TYPE_CHECKING:
    from pydantic import BaseModel

ModelArg = Annotated[str, Parameter(help="run directory, checkpoint or Hugging Face folder")]
TextArgs = Annotated[str, Parameter(help="texts, each in quotes; default: the lines of stdin")]
FileOption = Annotated[tuple[Path, ...], Parameter(help="files to read texts from, also .gz and .zst")]
TextOption = Annotated[
    str | None, Parameter(help="text column of a .csv, .tsv, .jsonl or .parquet file; default: detected")
]
DeviceOption = Annotated[str, Parameter(help="cpu, cuda, cuda:1, mps or auto")]
Int8Option = Annotated[bool, Parameter(help="dynamic int8 quantization: faster on a CPU, less exact")]
ConfigOption = Annotated[Path | None, Parameter(help="TOML file with settings")]
DataArgs = Annotated[Path, Parameter(show=False)]
FLATTEN = Parameter(name="*")
"""Shows the fields of a dataclass or config as flags of the command."""
Config = TypeVar("Config", bound="BaseModel")


def format_default(default: Any) -> str:
    """The default of an option, as its help shows it.

    >>> [format_default(value) for value in (None, (), False, 0.5, Path("runs"), ("a", "b"))]
    ['none', 'none', 'off', '0.5', 'runs', 'a b']
    """
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return "on" if default else "off"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


OPTIONS = Group("Options", sort_key=7)
STYLE = Parameter(consume_multiple=True, negative=(), show_default=format_default)
"""How the options of every command are parsed and described."""


def add_files(config: Config, files: tuple[Path, ...]) -> Config:
    """The config, with files given as arguments in front of its data."""
    if not files:
        return config
    values = config.model_dump(exclude_unset=True)
    return type(config).model_validate({**values, "data": files + values.get("data", ())})


def quote(path: Path) -> str:
    """A path as an argument in a command line."""
    return f'"{path}"' if " " in str(path) else str(path)


def output_folder(to: Path | None, source: Path, suffix: str) -> Path:
    """The folder to create: `to`, or the source's name with a suffix in the working directory. It must not exist.

    >>> output_folder(None, Path("models/gpt2"), "-softlook")
    PosixPath('gpt2-softlook')
    """
    resolved = source.resolve()
    stem = resolved.stem if resolved.suffix == ".gguf" else resolved.name
    folder = Path(f"{stem}{suffix}") if to is None else to
    if os.path.lexists(folder):  # checked before a large model is loaded
        raise DiskError(f"{folder} already exists and is not overwritten. Choose another name with --to.")
    return folder


def describe_model(model: Any, log: logging.Logger) -> dict[str, Any]:
    """Log and return a model's class, parameter count and dtype."""
    from softlook.weights.block_quantized import quantized_layers  # noqa: PLC0415  (imports torch)

    quantized = quantized_layers(model).values()
    count = sum(parameter.numel() for parameter in model.parameters())
    count += sum({id(layer.blocks): math.prod(layer.shape) for layer in quantized}.values())
    formats = sorted({layer.block_format for layer in quantized})
    dtype = ", ".join([*formats, str(next(model.parameters()).dtype).removeprefix("torch.")])
    log.info("%s with %s parameters in %s", type(model).__name__, f"{count:,}", dtype)
    return {"model": type(model).__name__, "parameters": count, "dtype": dtype}
