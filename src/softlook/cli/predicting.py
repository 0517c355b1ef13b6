"""`softlook predict`: answers about the rows of a table."""

import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from softlook.base.errors import ConfigError, DataError
from softlook.cli.talk import Result
from softlook.cli.words import PIPE
from softlook.data.opening import stream

if TYPE_CHECKING:
    from softlook.recipes.tables_asking import OpenedTable

PACKED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""How packed files begin, and how their names end."""
log = logging.getLogger("softlook.cli")
Run = Annotated[str, Parameter(help="the folder of a run of `softlook train table`, or what an estimator's save wrote")]
Files = Annotated[
    tuple[Path, ...], Parameter(help="tables: .csv, .tsv, .jsonl, .parquet, also .gz and .zst; - is stdin")
]
Out = Annotated[
    Path | None, Parameter(name=("--out", "--to"), help="a new .csv, .tsv, .jsonl or .parquet; stdout where not told")
]


def predict(
    run: Run,
    /,
    *files: Annotated[Path, Parameter(show=False)],
    data: Files = (),
    out: Out = None,
    keep: Annotated[tuple[str, ...], Parameter(help="columns to write beside the answers: an id, say")] = (),
    probabilities: Annotated[bool, Parameter(help="how likely each class is")] = False,
    explain: Annotated[bool, Parameter(help="how much was looked at each column")] = False,
    device: Annotated[str, Parameter(help="auto: cuda, then mps, then cpu")] = "auto",
) -> Result | None:
    """Answers for the rows of a table."""
    given = (*files, *data)
    if Path(run).is_file():
        raise ConfigError(f"{run} is a file, and a run comes first: softlook predict RUN --data {run}")
    if not given and (sys.stdin is None or sys.stdin.isatty()):
        raise ConfigError("no data were given. Name a table: --data new.csv, or - for stdin")
    from softlook.cli.foretelling import Telling  # noqa: PLC0415  (torch is loaded only now)

    telling = Telling(_opened(run, device), out, tuple(keep), probabilities, explain)
    with _spooled(given or (Path(PIPE),)) as tables:
        return telling.tell(tables)


def _opened(run: str, device: str) -> "OpenedTable":
    from softlook.recipes.tables_asking import opened_table  # noqa: PLC0415  (it takes packages of its own)

    return opened_table(run, device=device)


@contextmanager
def _spooled(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Files as they are, and stdin as a file: a table is looked at before it is read."""
    if Path(PIPE) not in files:
        yield list(files)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        if not path.stat().st_size:
            raise ConfigError("nothing came through stdin. Name a table: --data new.csv")
        try:
            path = _named(path)
            yield [path if one == Path(PIPE) else one for one in files]
        except DataError as fault:
            fault.file = "stdin" if fault.file and Path(fault.file).parent == path.parent else fault.file
            raise


def _named(path: Path) -> Path:
    """What came through a pipe has no name that says what it is: a file named by its first bytes, unpacked or not."""
    with path.open("rb") as file:
        start = file.read(4)
    packing = next((ending for mark, ending in PACKED.items() if start.startswith(mark)), "")
    path = path.rename(path.with_name(f"stdin{packing}"))
    head = next(stream(path), b"") if packing else start
    ending = ".parquet" if head.startswith(b"PAR1") else ".jsonl" if head.lstrip().startswith(b"{") else ".csv"
    return path.rename(path.with_name(f"stdin{ending}{packing}"))
