"""`softlook studio`: attention in the browser."""

import logging
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from softlook.base.errors import ConfigError
from softlook.cli.commands.serve import read_token
from softlook.cli.options import DeviceOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from softlook.studio.page import DeferredApi
    from softlook.studio.session import Studio

log = logging.getLogger("softlook.cli")
HELP_PORT = "port to listen on; 0 selects a free one"


def studio(
    source: Annotated[
        str | None, Parameter(help="run, model folder, or trace file; default: a recorded trace and the included model")
    ] = None,
    /,
    *,
    text: Annotated[str | None, Parameter(help="first text, or image file, that the model reads")] = None,
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
    from softlook.serve.server import listen  # noqa: PLC0415
    from softlook.studio.page import DeferredApi, example_recording  # noqa: PLC0415  (extras)
    from softlook.studio.security import Sessions  # noqa: PLC0415
    from softlook.studio.server import check_address, run  # noqa: PLC0415

    if not 0 <= port < 65536:
        raise ConfigError(f"--port expects a number below 65,536, got {port}")
    token = read_token(token, token_file)
    check_address(host, token)
    api = DeferredApi(_example if source is None else _open_now(source, device, text))

    def on_ready(link: str) -> None:
        log.info("Studio: %s (Ctrl-C to stop)", link)
        threading.Thread(target=_load, args=(api, source, text), daemon=True).start()
        if browser:
            webbrowser.open(link)

    run(api, listen(host, port), Sessions(token), on_ready, example_recording() if source is None else None)


def _example() -> "Studio":
    from softlook.studio.recordings import example_studio  # noqa: PLC0415  (imports torch)

    return example_studio()


def _open_now(source: str, device: str, text: str | None) -> "Callable[[], Studio]":
    """A studio that is opened now: mistakes are reported before anything is served."""
    from softlook.recipes.studio.opening import open_studio  # noqa: PLC0415  (imports torch)

    studio = open_studio(source, device=device, text=text)
    return lambda: studio


def _load(api: "DeferredApi", source: str | None, text: str | None) -> None:
    """Import the API, and without a source load the included model, behind the page that is already shown."""
    api.load()
    if source is None and api.studio is not None:
        from softlook.recipes.studio.opening import load_included  # noqa: PLC0415  (imports torch)

        load_included(api.studio, text)
