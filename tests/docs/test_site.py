"""The documentation builds without a warning, requests nothing from elsewhere, and describes every public name."""

import importlib
import pkgutil
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from filelock import FileLock

import softlook

ROOT = Path(__file__).parents[2]
REFERENCE = re.compile(r"```\{api\} (\S+)")
DESCRIBED = [name for page in sorted((ROOT / "docs/api").glob("*.md")) for name in REFERENCE.findall(page.read_text())]
ALIAS = re.compile(r"^ *from [\w.]+ import (\w+) as \1$", re.MULTILINE)
REQUESTING = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
CSS_REQUEST = re.compile(r"""(?:@import|url\()\s*["']?\s*(?:https?:)?//""")


class Parser(HTMLParser):
    """The ids of a page, its links, and the files that it requests."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.requests: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif tag == "a" and name == "href" and value:
                self.links.append(value)
            elif (tag, name) in REQUESTING and value:
                self.requests.append(value)


@cache
def parse(path: Path) -> Parser:
    return Parser(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, which the workers of a run share. Its warnings are in `warnings.txt`."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "site"
    warnings = folder / "warnings.txt"
    with FileLock(f"{folder}.lock"):
        if not warnings.exists():
            folder.mkdir(exist_ok=True)
            options = ["--quiet", "--doctree-dir", f"{folder}-doctrees", "--warning-file", str(warnings)]
            command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder)]
            subprocess.run(command, check=True, capture_output=True)
    return folder


def public_names(name: str) -> list[str]:
    """Return `__all__` of a module, or the names that its source imports as themselves."""
    module = importlib.import_module(name)
    return getattr(module, "__all__", None) or ALIAS.findall(Path(str(module.__file__)).read_text(encoding="utf-8"))


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "warnings.txt").read_text(encoding="utf-8") == ""


def test_every_link_of_the_site_leads_to_a_page_and_an_anchor(site: Path) -> None:
    broken = []
    for page in site.rglob("*.html"):
        for link in parse(page).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.is_file():
                broken.append(f"{page.relative_to(site)}: {link}")
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in parse(target).ids:
                broken.append(f"{page.relative_to(site)}: {link}: no such anchor")
    assert not broken, "\n".join(broken)


def test_no_page_requests_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        outside = [one for one in parse(page).requests if urlsplit(one).netloc]
        assert not outside, f"{page.relative_to(site)}: {outside}"
    for style in site.rglob("*.css"):
        assert not CSS_REQUEST.search(style.read_text(encoding="utf-8")), style


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_public_name_has_an_entry(name: str, site: Path) -> None:
    ids = {one for page in (site / "api").glob("*.html") for one in parse(page).ids}
    for public in public_names(name):
        value = getattr(importlib.import_module(name), public)
        entry = f"module-{value.__name__}" if isinstance(value, ModuleType) else f"{name}.{public}"
        assert entry in ids, f"the reference has no entry {entry}"


def test_every_package_with_public_names_is_described() -> None:
    packages = [one.name for one in pkgutil.iter_modules(softlook.__path__, "softlook.") if one.ispkg]
    assert not [name for name in packages if public_names(name) and name not in {*DESCRIBED, "softlook.cli"}]


def test_live_panels_show_every_chapter_of_the_studio(site: Path) -> None:
    panels = [link for page in (site / "book").glob("*.html") for link in parse(page).requests if "studio.html" in link]
    chapters = {path.parent.name for path in (ROOT / "web/src/chapters").glob("*/index.tsx")}
    assert sorted(link.split("/chapter/")[1].removesuffix("?t=1") for link in panels) == sorted(chapters)
    assert (site / "_static/studio.html").exists()
