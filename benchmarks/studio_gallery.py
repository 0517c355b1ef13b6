"""`python -m benchmarks.studio_gallery LINK [NAME ...]`: screenshots of the studio, in docs/gallery.

LINK is what `SOFTLOOK_TOKEN=... softlook studio --no-browser` prints. Each page is taken in both themes.
"""

import sys
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, ViewportSize, sync_playwright

from tests.browser.conftest import ARGUMENTS, chromium_path

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
FOLDER = Path("docs/gallery")
LARGEST = 60_000  # bytes of one file
SIZE: ViewportSize = {"width": 1280, "height": 800}
STEPS = {
    "dot": "t=1&q=2.4,0.6&k=1.2,2.2",
    "softmax": "t=1&tau=-0.15",
    "scale": "t=1&d=5",
    "dictionary": "t=1&tau=0.2",
    "qkv": "t=0.8",
    "matrix": "t=1",
    "heads": "t=0.75",
    "permutation": "t=1&order=4,1,2,3,0",
    "linear": "t=1&x=1,-0.5,1.2,0.5",
    "convolution": "t=1&place=3",
    "masks": "t=1",
    "positions": "t=1&m=4",
    "recurrent": "t=1",
    "transformer": "t=1",
    "tables": "t=1",
}
CHAPTERS = {f"chapter_{name}": f"#/chapter/{name}?{state}" for name, state in STEPS.items()}
CROSS = "attention=decoder.blocks.0.cross_attn"
VIEWS = {
    "view_heads": "#/view/heads",
    "view_head": f"#/view/head?{CROSS}&row=3",
    "view_matrix": f"#/view/head?{CROSS}&drawing=matrix&row=6&column=10",
    "view_predict": "#/view/predict?position=3",
    "view_intervene": f"#/view/intervene?{CROSS}&heads=0+1+2+3&mask=6&position=9",
    "view_twins": "#/view/twins?first=3+mars+2022&second=4+mars+2022&attention=encoder.blocks.1.attn&row=0&position=9",
    "view_beams": "#/view/beams?text=jeudi+3+mars+2022",
    "view_alignment": "#/view/alignment?head=2",
    "view_rollout": "#/view/rollout?row=6",
}
RUNS = {
    "view_generate": "#/view/generate?prompt=Attention+is&temperature=0.7",
    "view_runs": "#/view/runs?curve=loss",
    "view_table": "#/view/table?head=mean",
    "view_patches": "#/view/patches?attention=blocks.3.attn&head=2&row=0",
}
"""Views that the included model does not have: of runs of `softlook train lm`, `table` and `images`."""
HERO = {"studio": "#/view/head?attention=decoder.blocks.0.cross_attn&head=0&drawing=lines&row=6"}
PAGES = {**HERO, **CHAPTERS, **VIEWS, **RUNS}


def shrink(png: bytes) -> bytes:
    """The picture with as many colors as fit into `LARGEST` bytes."""
    image = Image.open(BytesIO(png)).convert("RGB")
    small = BytesIO()
    for colors in (128, 64, 32, 16):
        small = BytesIO()
        image.quantize(colors, dither=Image.Dither.NONE).save(small, "png", optimize=True)
        if small.tell() <= LARGEST:
            break
    return small.getvalue()


def take(browser: Browser, link: str, names: list[str], theme: Theme) -> None:
    """Screenshots of the pages with these names in one theme."""
    context = browser.new_context(viewport=SIZE, color_scheme=theme, reduced_motion="reduce", locale="en-US")
    page = context.new_page()
    page.goto(link)
    for name in names:
        page.evaluate("hash => { location.hash = hash }", PAGES[name])
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(1500)
        for waiting in ("[aria-busy=true]", ".spinner"):  # answers of the model, tiles of maps
            page.wait_for_selector(f"main {waiting}", state="detached")
        path = FOLDER / f"{name}_{theme}.png"
        path.write_bytes(shrink(page.screenshot()))
        print(f"{path}  {path.stat().st_size / 1e3:.0f} kB")
    context.close()


def main(link: str, *names: str) -> None:
    unknown = sorted(set(names) - set(PAGES))
    if unknown:
        raise SystemExit(f"expected names out of {', '.join(PAGES)}, got {', '.join(unknown)}")
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(playwright), args=ARGUMENTS)
        for theme in THEMES:
            take(browser, link, list(names) or [name for name in PAGES if name not in RUNS], theme)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
