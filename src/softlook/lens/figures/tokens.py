"""Design tokens: the colors, fonts and sizes of all figures, from tokens.json."""

import json
from pathlib import Path
from typing import Any

TOKENS: dict[str, Any] = json.loads(Path(__file__).with_name("tokens.json").read_text(encoding="utf-8"))
"""The content of tokens.json, which pages in other languages read too."""
COLORS: dict[str, dict[str, str]] = TOKENS["colors"]
"""The colors of each theme, "light" and "dark", by name."""
SIZES: dict[str, float] = TOKENS["sizes"]
"""Font sizes, sides of cells and distances, in pixels."""
FONT: str = TOKENS["fonts"]["text"]
MONO: str = TOKENS["fonts"]["mono"]
"""The font of tokens and numbers."""
TINTS: int = TOKENS["steps"]
"""Steps of lightness between nothing and the largest magnitude."""
