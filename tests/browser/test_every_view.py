"""Every view in a real browser: it opens, fits each screen, says what it needs, and its Python code draws it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import AXE, Studios, go, opened, recording

NARROW = {
    "viewport": {"width": 360, "height": 740},
    "color_scheme": "dark",
    "locale": "de-DE",
    "reduced_motion": "reduce",
    "bypass_csp": True,  # axe evaluates strings
}
TOO_WIDE = "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.querySelector('main'))"
INTERVENTION = "intervene?heads=0 1&mask=3"
TWINS_OF_DATES = "twins?first=3 mars 2022&second=4 mars 2022&attention=encoder.blocks.0.attn"
VIEWS = {
    "gpt": ("heads", "head", "predict", "intervene", "generate", "twins", "rollout", "table", "runs"),
    "bert": ("heads", "head", "predict", "intervene", "twins", "rollout"),
    "dates": ("heads", "head", "predict", "intervene", "twins", "beams", "alignment", "rollout"),
    "recorded": ("heads", "head", "predict", "intervene", "generate", "beams", "alignment", "rollout", "table", "runs"),
    "image": ("heads", "patches"),
}
"""The views that are opened of each studio; of the recorded trace also those that lack their model."""
SMALL = {
    "gpt": VIEWS["gpt"],
    "dates": (INTERVENTION, TWINS_OF_DATES, "beams?text=3 mars 2022", "alignment", "rollout"),
    "recorded": ("generate", "rollout"),
    "image": VIEWS["image"],
}
"""The views that are opened on a small screen: each of them, and those that differ with the model."""


@pytest.mark.parametrize("studio", VIEWS)
def test_every_view_opens_without_an_error(show: Callable[[str, str], Page], studio: str) -> None:
    for view in VIEWS[studio]:
        page = show(studio, view)
        assert page.locator("main [role=alert]").count() == 0, view
        assert len(page.inner_text("main article")) > 40, view


@pytest.mark.parametrize("width", [768, 3840])
def test_every_view_fits_a_tablet_and_a_large_screen(
    browser: Browser, links: dict[str, Callable[[], str]], width: int
) -> None:
    with opened(browser, links["gpt"](), viewport={"width": width, "height": 1200}) as (page, watch):
        for view in VIEWS["gpt"]:
            go(page, view)
            assert page.evaluate(TOO_WIDE) <= 0, view
        watch.check()


@pytest.mark.parametrize("studio", SMALL)
def test_every_view_fits_a_telephone_in_german_and_dark_and_axe_finds_nothing(
    browser: Browser, links: dict[str, Callable[[], str]], studio: str
) -> None:
    with opened(browser, links[studio](), **NARROW) as (page, watch):
        page.evaluate(AXE.read_text(encoding="utf-8"))
        for view in SMALL[studio]:
            go(page, view)
            assert page.evaluate(TOO_WIDE) <= 0, view
            found = page.evaluate("axe.run(document.querySelector('main'), {resultTypes: ['violations']})")
            assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == [], view
        assert page.inner_text("main h2") in ("Rollout", "Trainingsläufe", "Bildausschnitte")
        watch.check()


@pytest.mark.parametrize("studio", ["dates", "recorded"])
def test_the_python_code_of_every_view_draws_it(
    show: Callable[[str, str], Page], studios: Studios, studio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recording(studios, studio).trace.save(tmp_path / "trace.safetensors")
    views = {
        "dates": ("heads", "head?head=2", "predict?position=2", "intervene?heads=1", "beams", TWINS_OF_DATES),
        "recorded": ("heads", "alignment", "rollout?row=3"),
    }
    for view in views[studio]:
        page = show(studio, view)
        page.get_by_role("button", name="Export").click()
        page.get_by_role("button", name="Python").click()
        code = page.inner_text(".lines pre")
        exec(code, {})
        name = view.partition("?")[0]
        assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8").startswith("<svg"), code
        page.keyboard.press("Escape")


def test_a_view_without_its_model_says_what_it_needs_and_the_command(show: Callable[[str, str], Page]) -> None:
    for view in ("intervene", "generate", "beams", "table", "runs"):
        page = show("recorded", view)
        assert "softlook studio" in page.inner_text("main article code"), view
        assert page.get_by_role("link", name=page.inner_text("main h2"), exact=True).count() == 1
