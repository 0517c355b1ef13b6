"""A real Chromium, and studios that run in this process."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, sync_playwright

from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.lens.trace import Trace
from softlook.ops.masks import causal, window
from softlook.studio.app import create_app
from softlook.studio.recording import StudioTrace
from softlook.studio.security import Sessions
from softlook.studio.session import Studio

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


def map_call(length: int, *, heads: int = 2, columns: int = 0, mask: Any = None) -> AttentionCall:
    """One attention, without a model: as long as a test wants. Its first key is a sink."""
    generator = torch.Generator().manual_seed(length)
    query, key = (torch.randn(1, heads, size, 16, generator=generator) for size in (length, columns or length))
    query[..., 0], key[:, :, 0, 0] = 1.5, 8.0
    return AttentionCall(AttentionCore(), query, key, mask, None, key.norm(dim=-1))


def map_trace(length: int, *, heads: int = 2, tokens: list[str] | None = None) -> Trace:
    """A trace of one causal layer, without a model."""
    words = tokens if tokens is not None else [f"w{index}" for index in range(length)]
    call = map_call(length, heads=heads, mask=causal())
    return Trace({"blocks.0.attn": AttentionTrace([call])}, {}, tokens=words)


def mask_trace() -> Trace:
    """A trace of 120 queries under every kind of mask, one attention each."""
    dense = torch.rand(120, 120, generator=torch.Generator().manual_seed(0)) > 0.5
    masks = {"full": None, "causal": causal(), "window": causal() & window(20), "dense": dense}
    layers = {name: AttentionTrace([map_call(120, mask=mask)]) for name, mask in masks.items()}
    layers["cross"] = AttentionTrace([map_call(90, columns=150)])
    return Trace(layers, {}, tokens=[f"w{index}" for index in range(120)])


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
