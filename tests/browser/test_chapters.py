"""The chapters of part one in a real browser: they open, react to the keyboard and keep their invariants."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests.browser.chapters import Link, numbers, show
from tests.browser.conftest import AXE, Watch, opened

CHAPTERS = [
    *("dot", "softmax", "scale", "dictionary", "qkv", "matrix", "heads", "permutation"),
    *("linear", "convolution", "masks", "positions", "recurrent", "transformer", "tables"),
]
# Controls by CSS selector, with keys of which at least one changes something.
CONTROLS = {
    ".figure input[type=range]": ["ArrowRight", "ArrowLeft"],
    ".figure input[type=number]": ["ArrowUp"],
    ".figure .movable": ["ArrowUp", "ArrowLeft"],
    ".figure [data-token]": ["ArrowRight", "ArrowLeft"],
    ".figure [role=switch]": ["Space"],
    ".figure input[type=radio]:not(:checked)": ["Space"],
    ".figure .control.button": ["Enter"],
    ".figure [data-box]": ["Enter"],
    ".figure [data-cell]": ["ArrowDown", "ArrowUp"],
    ".figure select": ["ArrowDown", "ArrowUp"],
    ".predict button": ["Enter"],
}


@pytest.fixture(scope="module")
def watched(browser: Browser, new_link: Link) -> Iterator[tuple[Page, Watch]]:
    with opened(browser, new_link(), reduced_motion="reduce", locale="en-US") as both:
        yield both


@pytest.fixture
def page(watched: tuple[Page, Watch]) -> Iterator[Page]:
    yield watched[0]
    watched[1].check()


WALK = """async (chapter) => {
  const seen = [];
  const lesson = document.querySelector(`[data-lesson="${chapter}"]`);
  for (const button of lesson.querySelectorAll(".story button")) {
    button.click();
    await new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(resume)));
    const half = [...lesson.querySelectorAll("[data-step]")].map((one) => Number(one.firstElementChild.style.opacity));
    seen.push({
      text: lesson.querySelector(".story li.now").innerText,
      checks: lesson.querySelectorAll(".figure [data-check]").length,
      broken: [...lesson.querySelectorAll(".figure [data-check].fails")].map((one) => one.dataset.check),
      hidden: lesson.querySelectorAll("[data-step][inert]").length,
      blocks: [...lesson.querySelectorAll("[data-block]")].map((one) => one.dataset.block),
      words: [...lesson.querySelectorAll("[data-word]")].map((one) => one.dataset.word),
      half: half.filter((opacity) => opacity > 0 && opacity < 1).length,
    });
  }
  return seen;
}"""


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_opens_and_its_invariants_hold_at_every_step(page: Page, chapter: str) -> None:
    lesson = show(page, chapter, t=0)
    steps: list[dict[str, Any]] = page.evaluate(WALK, chapter)
    assert len({step["text"] for step in steps}) == len(steps) > 4
    assert all(step["checks"] and step["broken"] == [] for step in steps)
    assert steps[0]["hidden"] > steps[-1]["hidden"] == 0
    assert all(step["half"] == 0 for step in steps), "under reduced motion a step has happened or not"
    assert lesson.locator(".formula math").count() > 0
    words, blocks = ({name for step in steps for name in step[kind]} for kind in ("words", "blocks"))
    assert words - blocks == set(), "words that point at no block of the picture"


STATE = """() => new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const lesson = document.querySelector(".lesson");
  const parts = [...lesson.querySelectorAll("input, select, [data-value], [aria-checked], [aria-pressed]")];
  const stateOf = (one) => [one.value, one.checked, one.dataset.value, one.ariaChecked, one.ariaPressed].join();
  resume(lesson.innerText + parts.map(stateOf).join("|"));
})))"""


def use(page: Page, selector: str, keys: list[str]) -> bool:
    """Presses the keys on the first control of a kind until one changes the page; False without such a control."""
    control = page.locator(selector).first
    if not control.count():
        return False
    control.focus()
    assert control.evaluate("one => document.activeElement === one"), f"{selector} cannot be focused"
    before = page.evaluate(STATE)
    for key in keys:
        page.keyboard.press(key)
        if page.evaluate(STATE) != before:
            return True
    pytest.fail(f"{selector} does not react to {keys}")


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_kind_of_control_reacts_to_the_keyboard_and_the_invariants_hold(page: Page, chapter: str) -> None:
    show(page, chapter)
    assert sum(use(page, selector, keys) for selector, keys in CONTROLS.items()) > 1
    fails = ".figure [data-check].fails"
    broken = page.eval_on_selector_all(fails, "all => all.map((one) => one.dataset.check)")
    assert set(broken) <= {"equivariant", "invariant", "past"}  # positions are on, or no mask hides the future


WIDE = """() => [".page-body", ".scene", ".formulas", "html"].filter((name) => {
  const one = document.querySelector(name);
  return one.scrollWidth > one.clientWidth;
})"""


@pytest.mark.parametrize("language", ["en-US", "de-DE"])
@pytest.mark.parametrize("width", [360, 768, 3840])
def test_no_chapter_scrolls_sideways_on_any_screen(browser: Browser, new_link: Link, language: str, width: int) -> None:
    with opened(browser, new_link(), viewport={"width": width, "height": 844}, locale=language) as (screen, watch):
        found = {chapter: show(screen, chapter) and screen.evaluate(WIDE) for chapter in CHAPTERS}
        assert {chapter: names for chapter, names in found.items() if names} == {}
        watch.check()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_last_part_of_a_chapter_shows_the_loaded_model(page: Page, chapter: str) -> None:
    show(page, chapter)
    model = page.locator(".model")
    model.wait_for()
    page.locator(".model :is([data-value], dl)").first.wait_for()
    assert page.locator(".model [data-check].fails").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_chapter(browser: Browser, new_link: Link, scheme: Any) -> None:
    options: dict[str, Any] = {"color_scheme": scheme, "reduced_motion": "reduce", "bypass_csp": True}
    with opened(browser, new_link(), **options) as (page, _):
        page.evaluate(AXE.read_text(encoding="utf-8"))
        for chapter in CHAPTERS:
            show(page, chapter)
            found = page.evaluate("axe.run(document.querySelector('main'), {resultTypes: ['violations']})")
            assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == [], chapter


def drag(page: Page, start: Locator, to: tuple[float, float]) -> None:
    """Drags from the middle of an element by so many pixels."""
    start.scroll_into_view_if_needed()
    box = start.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + to[0], y + to[1], steps=4)
    page.mouse.up()


def test_a_vector_can_be_dragged(page: Page) -> None:
    show(page, "dot", q="2,1")
    drag(page, page.locator(".movable .handle").nth(1), (-60, 20))
    moved = numbers(page, "q")
    assert moved[0] < 1.7
    assert moved[1] < 1.0


def test_words_can_be_dragged_and_moved_by_keyboard_any_number_of_places(page: Page) -> None:
    words = ".order [data-token]"
    show(page, "permutation")
    drag(page, page.locator(words).first, (100, 0))
    assert page.locator(words).all_inner_texts()[1].endswith("Susan")
    page.locator(words).nth(1).focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        page.evaluate(STATE)
    assert page.locator(words).all_inner_texts()[-1].endswith("Susan")
    assert page.locator(".figure [data-check].fails").count() == 0
