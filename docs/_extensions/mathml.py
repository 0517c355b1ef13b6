"""Formulas as MathML, which browsers draw without a script and without fonts from elsewhere."""

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
SYNONYMS = {"dots": "ldots", "big": "bigl", "bigg": "biggl", "Big": "Bigl", "Bigg": "Biggl"}
SYNONYM = re.compile(rf"\\({'|'.join(SYNONYMS)})(?![a-zA-Z])")


def convert(node: nodes.math | nodes.math_block) -> str:
    """Convert a formula, or warn that a command is unknown and show its source."""
    try:
        formula = SYNONYM.sub(lambda match: f"\\{SYNONYMS[match[1]]}", node.astext())
        return tex2mathml(formula, as_block=isinstance(node, nodes.math_block))
    except MathError as error:
        logger.warning("%s in the formula %s", error, node.astext(), location=node)
        return f"<code>{escape(node.astext())}</code>"


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{convert(node)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
