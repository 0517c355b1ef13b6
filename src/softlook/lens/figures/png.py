"""PNG of an SVG figure, by the package resvg-py."""

from importlib import import_module

MISSING = "a PNG needs the package resvg-py: pip install 'softlook[png]'. SVG and HTML need no package."


def rasterize(svg: str, zoom: float = 2.0) -> bytes:
    """The PNG image of an SVG, `zoom` times as large, with the fonts of the system."""
    try:
        resvg = import_module("resvg_py")
    except ModuleNotFoundError as error:
        raise ImportError(MISSING) from error
    families = {"sans_serif_family": "DejaVu Sans", "monospace_family": "DejaVu Sans Mono"}
    return bytes(resvg.svg_to_bytes(svg_string=svg, zoom=zoom, **families))
