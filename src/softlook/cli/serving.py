"""`softlook serve`: models behind a web server."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from softlook.base.errors import ConfigError, DiskError

if TYPE_CHECKING:
    from softlook.serve.served import Served
    from softlook.serve.tables import ServedTable

log = logging.getLogger("softlook.cli")


def serve(
    *runs: Annotated[
        str, Parameter(help="runs, checkpoints, estimators or folders of Hugging Face's; NAME=FOLDER names one")
    ],
    host: Annotated[
        str, Parameter(help="the address to listen on; beyond this machine a token is wanted")
    ] = "127.0.0.1",
    port: Annotated[int, Parameter(help="0 for any that is free")] = 8000,
    token: Annotated[
        str | None, Parameter(help="what every request has to bring", env_var="SOFTLOOK_TOKEN", show_env_var=True)
    ] = None,
    token_file: Annotated[Path | None, Parameter(help="a file with the token: other users cannot see it there")] = None,
    names: Annotated[tuple[str, ...], Parameter(help="what the server is called, beside localhost")] = (),
    device: Annotated[str, Parameter(help="auto: cuda, then mps, then cpu")] = "auto",
    queue: Annotated[int, Parameter(help="sequences that may wait before requests are refused")] = 1024,
    rows: Annotated[int, Parameter(help="sequences that are worked on together")] = 64,
    memory: Annotated[
        float | None, Parameter(help="GiB for the KV cache of each model; a share of what is free where it is left out")
    ] = None,
    answer: Annotated[int, Parameter(help="words of one answer, at most")] = 4096,
    body: Annotated[int, Parameter(help="bytes of a request, at most")] = 1 << 20,
) -> None:
    """Answer requests over HTTP, in the manner of OpenAI's, until Ctrl-C."""
    from softlook.serve.hall import Hall  # noqa: PLC0415  (an extra, and torch is loaded only now)
    from softlook.serve.limits import Limits  # noqa: PLC0415
    from softlook.serve.running import Address, run  # noqa: PLC0415
    from softlook.serve.served import names_of  # noqa: PLC0415

    if not runs:
        raise ConfigError(
            "which model shall be served? Name a run: softlook serve runs/NAME. `softlook runs` lists them."
        )
    if min(queue, rows, answer, body) < 1 or (memory is not None and memory <= 0) or not 0 <= port < 65536:
        raise ConfigError("queue, rows, memory, answer and body are above 0, and a port is below 65,536")
    address = Address(host=host, port=port, token=_token(token, token_file), names=names)
    served = [_loaded(folder, name, device) for name, folder in names_of(runs).items()]
    hall = Hall(served, Limits(queue=queue, rows=rows, memory=memory, answer=answer, body=body))
    run(hall, address, lambda where: log.info("Listening on %s (Ctrl-C ends it)", where))


def _loaded(folder: Path, name: str, device: str) -> "Served | ServedTable":
    """What lies in a folder, ready to answer texts, or questions about rows of a table."""
    from softlook.serve.served import load_served, placed  # noqa: PLC0415  (an extra, and torch is loaded only now)

    if _is_table(folder):
        from softlook.recipes.tables_serving import served_table  # noqa: PLC0415  (it takes packages of its own)

        table = served_table(folder, name, device=device)
        log.info("%s: %s, for tables: %s", name, table.table.kind, ", ".join(table.table.target))
        return table
    served = placed(load_served(folder, name), device)
    log.info("%s: %s, for %s", name, type(served.model).__name__, ", ".join(served.abilities))
    return served


def _is_table(folder: Path) -> bool:
    """Is it a run of `softlook train table`, or what an estimator's save wrote?"""
    from softlook.recipes.evaluation import settings_of  # noqa: PLC0415
    from softlook.recipes.remembering import SETTINGS  # noqa: PLC0415
    from softlook.recipes.settings import Table  # noqa: PLC0415
    from softlook.weights.runs import ESTIMATOR, best_of  # noqa: PLC0415

    if (folder / SETTINGS).is_file():
        return isinstance(settings_of(folder), Table)
    return (best_of(folder) / ESTIMATOR).is_file()


def _token(token: str | None, file: Path | None) -> str | None:
    if file is None:
        return token
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise DiskError(f"the token in {file} cannot be read: {fault}") from None
