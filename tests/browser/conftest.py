"""A real Chromium, and studios that run in this process."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, sync_playwright

from softlook.studio.app import create_app
from softlook.studio.recording import StudioTrace
from softlook.studio.security import Sessions
from softlook.studio.session import Studio
from tests.browser.small_studios import make_studios
from tests.browser.small_traces import map_trace, mask_trace

ARGUMENTS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
]
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
SECONDS = 15
"""How long tests wait for the page."""
Studios = dict[str, Studio]
MISSING = (
    "the browser tests need Chromium: install it with `apt-get install chromium` or `.venv/bin/playwright install "
    "chromium`, or set PLAYWRIGHT_CHROMIUM to the path of one"
)
HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "\u202eabc", "&lt;b&gt;", "{{1}}", ""]


def chromium_path(playwright: Any) -> str:
    """The path of a Chromium: that of PLAYWRIGHT_CHROMIUM, of the PATH, or that of Playwright."""
    for found in (
        os.environ.get("PLAYWRIGHT_CHROMIUM"),
        *map(shutil.which, ("chromium", "chromium-browser", "google-chrome")),
        playwright.chromium.executable_path,
    ):
        if found and Path(found).exists():
            return found
    pytest.fail(MISSING, pytrace=False)


@pytest.fixture(scope="module")  # not the session: an event loop runs as long as the browser does
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium_path(playwright), args=ARGUMENTS)
        yield started
        started.close()


@contextmanager
def running(studio: Studio) -> Iterator[Callable[[], str]]:
    """A studio on a free port of this machine; yields a function that makes a link for one browser."""
    app = create_app(studio)
    with serving(app, app.sessions) as link:
        yield link


@contextmanager
def serving(app: Any, sessions: Sessions) -> Iterator[Callable[[], str]]:
    """An application on a free port; yields a function that makes a link for one browser."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline and thread.is_alive(), "the studio did not start within 20 s"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield lambda: f"http://127.0.0.1:{port}/?token={sessions.new_token()}"
    server.should_exit = True
    thread.join(timeout=20)


def sentence() -> list[str]:
    return ["The", "animal", "did", "n't", "cross", "the", "street", "because", "it", "was", "too", "tired", "."]


@pytest.fixture(scope="session")
def recordings() -> dict[str, StudioTrace]:
    """Recordings by name: a sentence, 300 and 32,768 tokens, and tokens that look like markup."""
    return {
        "sentence": StudioTrace(map_trace(13, tokens=sentence()), "The animal", "toy", "lm", id="sentence"),
        "page": StudioTrace(map_trace(300), "300 tokens", "toy", "lm", id="page"),
        "long": StudioTrace(map_trace(32_768, heads=1), "32,768 tokens", "toy", "lm", id="long"),
        "masks": StudioTrace(mask_trace(), "masks", "toy", "lm", id="masks"),
        "pooled": StudioTrace(map_trace(2000, heads=1), "2,000 tokens", "toy", "lm", id="pooled"),
        "hostile": StudioTrace(map_trace(6, tokens=HOSTILE), HOSTILE[0], HOSTILE[1], "lm", id="hostile"),
    }


@pytest.fixture(scope="session")
def new_link(recordings: dict[str, StudioTrace]) -> Iterator[Callable[[], str]]:
    """Makes links to a studio with the recordings."""
    with running(Studio(recordings.values())) as link:
        yield link


class Watch:
    """What must not happen on a page: errors in its console, requests to other hosts."""

    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.route("**/*", self._allow)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} {message.location}")

    def _allow(self, route: Route) -> None:
        address = route.request.url
        if address.startswith(("http://127.0.0.1:", "http://localhost:", "data:", "blob:", "file:")):
            route.continue_()
        else:
            self.foreign.append(address)
            route.abort()

    def check(self) -> None:
        assert self.errors == []
        assert self.foreign == []


@contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[tuple[Page, Watch]]:
    """A page in a context of its own, which is watched; `options` are those of `Browser.new_context`."""
    context: BrowserContext = browser.new_context(**{"viewport": {"width": 1280, "height": 820}, **options})
    page = context.new_page()
    watch = Watch(page)
    page.goto(address)
    page.wait_for_selector("main article, main .notice")
    yield page, watch
    context.close()


@pytest.fixture(scope="module")
def studios() -> Studios:
    return make_studios()


@pytest.fixture(scope="module")
def links(studios: Studios) -> Iterator[dict[str, Callable[[], str]]]:
    with ExitStack() as servers:
        yield {name: servers.enter_context(running(studio)) for name, studio in studios.items()}


@pytest.fixture(scope="module")
def pages(browser: Browser, links: dict[str, Callable[[], str]]) -> Iterator[dict[str, tuple[Page, Watch]]]:
    """One page of each studio for all tests: each goes to its own address."""
    with ExitStack() as contexts:
        yield {
            name: contexts.enter_context(opened(browser, link(), locale="en-US", reduced_motion="reduce"))
            for name, link in links.items()
        }


@pytest.fixture
def show(pages: dict[str, tuple[Page, Watch]]) -> Iterator[Callable[[str, str], Page]]:
    """Opens a view of a studio; after the test, nothing may have gone wrong on the page."""
    used: list[Watch] = []

    def open_view(studio: str, view: str) -> Page:
        page, watch = pages[studio]
        used.append(watch)
        go(page, view)
        return page

    yield open_view
    for watch in used:
        try:
            watch.check()
        finally:
            watch.errors.clear()  # of this test, not of the next


def go(page: Page, view: str) -> None:
    """Open a view, from a page that has nothing in common with it, and wait for its answers."""
    page.evaluate("view => { location.hash = '#/chapter/none'; location.hash = '#/view/' + view }", view)
    page.wait_for_selector(f"main [data-view={view.partition('?')[0]}]")
    settle(page)


def settle(page: Page) -> None:
    page.wait_for_timeout(60)
    until(page, "() => !document.querySelector('main [aria-busy=true]')")


def until(page: Page, condition: str, value: Any = None) -> None:
    """Wait for a function of the page to be true: `Page.wait_for_function` needs eval, which the policy forbids."""
    deadline = time.monotonic() + SECONDS
    while not page.evaluate(condition, value):
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {condition} {value}"
        page.wait_for_timeout(20)


def recording(studios: Studios, name: str) -> StudioTrace:
    studio = studios[name]
    return studio.recording(studio.info()["traces"][0]["id"])
