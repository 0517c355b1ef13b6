"""Arguments shared by several commands."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

ModelArg = Annotated[str, Parameter(help="run directory, checkpoint or Hugging Face folder")]
TextArgs = Annotated[str, Parameter(help="texts, each in quotes; default: the lines of stdin")]
FileOption = Annotated[tuple[Path, ...], Parameter(help="files to read texts from, also .gz and .zst")]
TextOption = Annotated[str | None, Parameter(help="text column of a .csv, .tsv, .jsonl or .parquet file")]
DeviceOption = Annotated[str, Parameter(help="cpu, cuda, cuda:1, mps or auto")]
Int8Option = Annotated[bool, Parameter(help="dynamic int8 quantization: faster on a CPU, less exact")]
ConfigOption = Annotated[Path | None, Parameter(help="TOML file with settings")]
DataArgs = Annotated[Path, Parameter(show=False)]
FLATTEN = Parameter(name="*")
"""Shows the fields of a dataclass or config as flags of the command."""
