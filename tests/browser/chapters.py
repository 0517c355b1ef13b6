"""Chapters of the studio in a browser: how tests open them and read their numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Locator, Page
from torch import Tensor

ROOT = Path(__file__).parents[2]
CONSTANTS: dict[str, Any] = json.loads((ROOT / "web/src/chapters/constants.json").read_text())
Link = Callable[[], str]

GO = """(hash) => new Promise((resume) => {
  if (location.hash === hash) return resume();
  addEventListener("hashchange", () => requestAnimationFrame(() => requestAnimationFrame(resume)), { once: true });
  location.hash = hash;
})"""


def show(page: Page, chapter: str, **parameters: float | str) -> Locator:
    """Opens a chapter at its end, or where `t` says."""
    query = "&".join(f"{key}={value}" for key, value in {"t": 1, **parameters}.items())
    page.evaluate(GO, f"#/chapter/{chapter}?{query}")
    lesson = page.locator(f"[data-lesson={chapter}]")
    lesson.wait_for()
    return lesson


def numbers(page: Page, name: str, *shape: int) -> Tensor:
    """The numbers of a block of the picture, as exact as the page has them."""
    values: list[str] = page.eval_on_selector_all(
        f'.scene [data-name="{name}"] [data-value]', "all => all.map((one) => one.dataset.value)"
    )
    found = torch.tensor([float(value.replace("Infinity", "inf")) for value in values], dtype=torch.float64)
    return found.reshape(shape) if shape else found


def constant(*names: str) -> Tensor:
    value: Any = CONSTANTS
    for name in names:
        value = value[name]
    return torch.tensor(value, dtype=torch.float64)
