"""`softlook serve`: models behind a web server."""

import logging
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.base.errors import ConfigError, DiskError

log = logging.getLogger("softlook.cli")


def serve(
    *runs: Annotated[str, Parameter(help="runs, checkpoints or folders of Hugging Face's; NAME=FOLDER names one")],
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
    memory: Annotated[float, Parameter(help="GiB for what is remembered of sequences under way")] = 2.0,
    answer: Annotated[int, Parameter(help="words of one answer, at most")] = 4096,
    body: Annotated[int, Parameter(help="bytes of a request, at most")] = 1 << 20,
) -> None:
    """Answer requests over HTTP, in the manner of OpenAI's, until Ctrl-C."""
    from softlook.serve.hall import Hall  # noqa: PLC0415  (an extra, and torch is loaded only now)
    from softlook.serve.limits import Limits  # noqa: PLC0415
    from softlook.serve.running import Address, run  # noqa: PLC0415
    from softlook.serve.served import load_served, names_of, placed  # noqa: PLC0415

    if not runs:
        raise ConfigError(
            "which model shall be served? Name a run: softlook serve runs/NAME. `softlook runs` lists them."
        )
    if min(queue, rows, answer, body) < 1 or memory <= 0 or not 0 <= port < 65536:
        raise ConfigError("queue, rows, memory, answer and body are above 0, and a port is below 65,536")
    address = Address(host=host, port=port, token=_token(token, token_file), names=names)
    served = [placed(load_served(folder, name), device) for name, folder in names_of(runs).items()]
    for one in served:
        log.info("%s: %s, for %s", one.name, type(one.model).__name__, ", ".join(one.abilities))
    hall = Hall(served, Limits(queue=queue, rows=rows, memory=memory, answer=answer, body=body))
    run(hall, address, lambda where: log.info("Listening on %s (Ctrl-C ends it)", where))


def _token(token: str | None, file: Path | None) -> str | None:
    if file is None:
        return token
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise DiskError(f"the token in {file} cannot be read: {fault}") from None
