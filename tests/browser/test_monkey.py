"""A bounded monkey test: random clicks, keys and texts leave no error and no growing memory.

Thirty minutes: STUDIO_MONKEY_SECONDS=1800 python -m pytest tests/browser/test_monkey.py -s
"""

import os
import random
import sys
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page

from softlook.studio.recording import StudioTrace
from softlook.studio.session import Studio
from tests.browser.conftest import HOSTILE, Watch, opened, running
from tests.browser.small_studios import make_studios

SECONDS = float(os.environ.get("STUDIO_MONKEY_SECONDS", "12"))
PARTS = 4
"""The memory of the page is measured after each part of the time."""
START = "#/chapter/dot"
KEYS = (
    *("Tab", "Enter", "Escape", "ArrowLeft", "ArrowRight", "ArrowDown", "ArrowUp", "Home", "End", "+", "-", "0"),
    *("n", "p", "?", "T", "Control+z", "Control+Shift+z", "Space"),
)
TEXTS = (*HOSTILE, "the cat", "3 mars 2022", "-0.5", "1e9", "\u202e\u0000é", "word " * 40)


@pytest.fixture(params=["recorded", "live"])
def studio(request: pytest.FixtureRequest, recordings: dict[str, StudioTrace]) -> Studio:
    """Recordings of many sizes, or a language model with a table and runs."""
    return Studio(recordings.values()) if request.param == "recorded" else make_studios()["gpt"]


def test_random_input_leaves_no_error_and_no_growing_memory(browser: Browser, studio: Studio) -> None:
    draw = random.Random(20)
    with running(studio) as link, opened(browser, link() + START) as (page, watch):
        page.on("dialog", lambda dialog: dialog.dismiss())
        sizes = [part(page, draw) for _ in range(PARTS)]
        sys.stdout.write(f"\nheap in MB: {[round(size, 1) for size in sizes]}\n")
        check(watch)
        assert sizes[-1] < 1.5 * sizes[0] + 10


def part(page: Page, draw: random.Random) -> float:
    """Random input for a part of the time of one studio; returns the memory of the page afterwards, in MB."""
    until = time.monotonic() + SECONDS / 2 / PARTS
    while time.monotonic() < until:
        draw.choice(ACTIONS)(page, draw)
    page.evaluate("address => { location.hash = address }", START)
    page.wait_for_selector("main article")
    page.wait_for_timeout(200)
    cdp = page.context.new_cdp_session(page)
    cdp.send("HeapProfiler.collectGarbage")
    used = cdp.send("Runtime.getHeapUsage")["usedSize"] / 1e6
    cdp.detach()
    return used


def check(watch: Watch) -> None:
    errors = [error for error in watch.errors if "with a status of 4" not in error]  # answers to wrong input
    assert errors == []
    assert watch.foreign == []


def click(page: Page, draw: random.Random) -> None:
    page.mouse.click(draw.randrange(1280), draw.randrange(820))


def press(page: Page, draw: random.Random) -> None:
    page.keyboard.press(draw.choice(KEYS))


def wheel(page: Page, draw: random.Random) -> None:
    page.mouse.move(draw.randrange(1280), draw.randrange(820))
    page.mouse.wheel(0, draw.randrange(-400, 400))


def drag(page: Page, draw: random.Random) -> None:
    page.mouse.move(draw.randrange(1280), draw.randrange(820))
    page.mouse.down()
    page.mouse.move(draw.randrange(1280), draw.randrange(820), steps=3)
    page.mouse.up()


CONTROLS = "main :is(button, input[type=checkbox], input[type=radio], [role=button], summary)"
FIELDS = "input[type=text], input[type=number], textarea"
PICK = """([selector, share, action]) => {
    const found = [...document.querySelectorAll(selector)];
    const one = found[Math.floor(share * found.length)];
    if (action === "focus") one?.focus();
    else one?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
}"""
"""Acts on one of the elements in one go: between two requests the page may have changed."""


def go(page: Page, draw: random.Random) -> None:
    page.evaluate(PICK, ["nav a", draw.random(), "click"])


def use(page: Page, draw: random.Random) -> None:
    """Activate one of the buttons and boxes of the stage."""
    page.evaluate(PICK, [CONTROLS, draw.random(), "click"])


def write(page: Page, draw: random.Random) -> None:
    """Type a text into one of the fields."""
    page.evaluate(PICK, [FIELDS, draw.random(), "focus"])
    page.keyboard.insert_text(draw.choice(TEXTS))
    page.keyboard.press(draw.choice(("Enter", "Tab", "Control+Enter", "Backspace")))


ACTIONS: tuple[Callable[[Page, random.Random], None], ...] = (click, click, press, wheel, drag, go, use, use, write)
