"""HTML pages of figures."""

from collections.abc import Mapping
from html import escape

from softlook.lens.figures.text import visible_label

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
figure { margin: 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
""".strip()


def figures_page(title: str, figures: Mapping[str, str], *, note: str = "") -> str:
    """An HTML page of SVG figures under their headings, in one file without scripts.

    >>> page = figures_page("Attention", {"layer 0": "<svg></svg>"})
    >>> "<h2>layer 0</h2>\\n<figure><svg></svg></figure>" in page
    True
    """
    name = escape(visible_label(title))
    parts = [
        f"<h2>{escape(visible_label(heading))}</h2>\n<figure>{figure}</figure>" for heading, figure in figures.items()
    ]
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{name}</title>
<style>{STYLE}</style>
<h1>{name}</h1>
<p>{escape(visible_label(note))}</p>
{"".join(part + chr(10) for part in parts)}</html>
"""
