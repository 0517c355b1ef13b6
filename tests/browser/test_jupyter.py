"""The widget of the studio in a real JupyterLab.

JupyterLab is not among the packages of the tests: install it with anywidget into the environment that runs them, then
`pytest -m slow tests/browser/test_jupyter.py`.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page

from softlook.studio.notebook import widget
from softlook.studio.recordings import load_example
from tests.browser.conftest import Watch

pytestmark = pytest.mark.slow
MISSING = (
    "the test of the widget needs JupyterLab in the environment that runs it: "
    f"{sys.executable} -m pip install jupyterlab anywidget"
)
HASH = "#/view/heads"
CODE = f"""\
from softlook.studio import widget
from softlook.studio.recordings import load_example

shown = widget(load_example(), {HASH!r})
shown"""
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
"""What would ask the network, and what would save at any time."""
IDLE = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
CONNECTED = """async () => {
    const { sessionContext } = jupyterapp.shell.currentWidget;
    await sessionContext.ready;
    await sessionContext.session.kernel.info;
    return sessionContext.session.kernel.connectionStatus === "connected";
}"""
"""A cell that is run before the kernel has answered may wait for ever."""
START_SECONDS = 60


def notebook(code: str) -> dict[str, Any]:
    """A notebook with one cell, which has not been run."""
    cell = {"cell_type": "code", "id": "studio", "metadata": {}, "execution_count": None, "outputs": [], "source": code}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until_ready(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urlopen(f"{address}/api", timeout=1).close()
            return
        except (URLError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start within {START_SECONDS} s:\n{log.read_text()[-2000:]}", pytrace=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a notebook, and with the settings of JupyterLab."""
    folder = tmp_path_factory.mktemp("jupyter")
    (folder / "studio.ipynb").write_text(json.dumps(notebook(CODE)), encoding="utf-8")
    settings = folder / "config/labconfig/default_setting_overrides.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(SETTINGS), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[str]:
    """The address of a JupyterLab of its own, which shows the folder."""
    if find_spec("jupyterlab") is None:
        pytest.fail(MISSING, pytrace=False)
    port = free_port()
    own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    own |= {"JUPYTERLAB_WORKSPACES_DIR": "workspaces", "JUPYTERLAB_SETTINGS_DIR": "settings", "IPYTHONDIR": "ipython"}
    options = [f"--ServerApp.root_dir={folder}", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    options += ["--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=", "--no-browser", "--allow-root"]
    options += ["--LabApp.expose_app_in_browser=True"]
    log = folder / "lab.log"
    with log.open("wb") as output:
        environment = {**os.environ, **{name: str(folder / part) for name, part in own.items()}}
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], cwd=folder, env=environment, stdout=output, stderr=output
        )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def command(page: Page, name: str) -> None:
    """Start a command of JupyterLab."""
    page.evaluate("name => { jupyterapp.commands.execute(name) }", name)


@pytest.fixture(scope="module")
def shown(browser: Browser, lab: str) -> Iterator[tuple[Page, Watch]]:
    """The notebook in JupyterLab, after its cells were run."""
    context = browser.new_context(viewport={"width": 1400, "height": 950}, locale="en-US")
    page = context.new_page()
    watch = Watch(page)
    page.goto(f"{lab}/lab/tree/studio.ipynb?reset")
    page.wait_for_selector(IDLE, timeout=60_000)
    page.wait_for_function(CONNECTED, timeout=60_000)
    command(page, "notebook:run-all-cells")
    page.wait_for_selector(".jp-OutputArea-output .softlook main article", timeout=60_000)
    yield page, watch
    context.close()


def test_the_page_is_in_the_output_of_the_cell_and_opens_a_head(shown: tuple[Page, Watch]) -> None:
    page, watch = shown
    heads = page.locator(".softlook .v-thumbnail")
    heads.first.wait_for()
    assert heads.count() == sum(layer.shape[1] for layer in load_example().trace.values())
    page.wait_for_function("document.querySelectorAll('.softlook .v-waiting').length === 0")
    heads.nth(1).click()
    page.wait_for_selector(".softlook [data-view=head]")
    page.wait_for_selector(".softlook [data-view=head] .v-split svg path, .softlook [data-view=head] .v-split canvas")
    watch.check()


def test_the_saved_notebook_has_a_static_figure(shown: tuple[Page, Watch], folder: Path) -> None:
    page, _ = shown
    command(page, "docmanager:save")
    page.wait_for_selector(".jp-mod-dirty", state="detached")
    saved = json.loads((folder / "studio.ipynb").read_text(encoding="utf-8"))
    data = saved["cells"][0]["outputs"][0]["data"]
    assert "application/vnd.jupyter.widget-view+json" in data
    svg = data["image/svg+xml"]
    assert ("".join(svg) if isinstance(svg, list) else svg) == widget(load_example(), HASH).figure().svg()


def test_the_keys_of_the_page_are_not_those_of_the_notebook(shown: tuple[Page, Watch]) -> None:
    page, watch = shown
    for place in ("main", ".v-side button"):
        page.locator(f".softlook {place}").first.focus()
        for key in ("a", "b"):  # in JupyterLab: a new cell above, and below
            page.keyboard.press(key)
        assert page.locator(".jp-Cell").count() == 1
    watch.check()
