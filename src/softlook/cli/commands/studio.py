"""`softlook studio`: attention in the browser."""

import logging
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from softlook.base.errors import ConfigError
from softlook.cli.options import DeviceOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from softlook.studio.session import Studio

log = logging.getLogger("softlook.cli")
HELP_PORT = "port to listen on; 0 selects a free one"


def studio(
    source: Annotated[
        str | None, Parameter(help="run, model folder, or trace file; default: a recorded trace and the included model")
    ] = None,
    /,
    *,
    text: Annotated[str | None, Parameter(help="first text that the model reads")] = None,
    host: Annotated[str, Parameter(help="address to listen on; other than localhost requires a token")] = "127.0.0.1",
    port: Annotated[int, Parameter(help=HELP_PORT)] = 0,
    browser: Annotated[bool, Parameter(help="open the page in the browser", negative="--no-browser")] = True,
    token: Annotated[
        str | None,
        Parameter(help="token of the link; default: a new one", env_var="SOFTLOOK_TOKEN", show_env_var=True),
    ] = None,
    token_file: Annotated[
        Path | None, Parameter(help="file that holds the token, which a list of processes then does not show")
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Show the attention of a model in the browser, until Ctrl-C."""
    from softlook.cli.commands.serve import read_token  # noqa: PLC0415  (imports torch)
    from softlook.serve.server import listen  # noqa: PLC0415  (extras)
    from softlook.studio.security import Sessions  # noqa: PLC0415
    from softlook.studio.server import check_address, run  # noqa: PLC0415

    if not 0 <= port < 65536:
        raise ConfigError(f"--port expects a number below 65,536, got {port}")
    token = read_token(token, token_file)
    check_address(host, token)
    shown, load = _open(source, device, text)

    def on_ready(link: str) -> None:
        threading.Thread(target=load, daemon=True).start()
        log.info("Studio: %s (Ctrl-C to stop)", link)
        if browser:
            webbrowser.open(link)

    run(shown, listen(host, port), Sessions(token), on_ready)


def _open(source: str | None, device: str, text: str | None) -> "tuple[Studio, Callable[[], None]]":
    """The studio, and what is loaded once it is shown. Without a source, only the recording is needed at first."""
    if source is None:
        from softlook.studio.recordings import example_studio  # noqa: PLC0415

        studio = example_studio()
        return studio, lambda: _load_included(studio, text)
    from softlook.recipes.studio.opening import open_studio  # noqa: PLC0415

    return open_studio(source, device=device, text=text)


def _load_included(studio: "Studio", text: str | None) -> None:
    from softlook.recipes.studio.opening import load_included  # noqa: PLC0415  (takes longer than all before)

    load_included(studio, text)
