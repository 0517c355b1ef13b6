"""Sphinx builds the documentation: `make docs`."""

import sys
from pathlib import Path

from softlook.base.version import VERSION

sys.path.append(str(Path(__file__).parent / "_extensions"))

project = "softlook"
copyright = "The softlook contributors"
release = version = VERSION
extensions = ["myst_parser", "sphinx_copybutton", "api", "mathml", "navigation", "studio"]
exclude_patterns = ["_extensions"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_disable_syntax = ["html_inline", "html_block"]  # <eos> is a token, not a tag
myst_fence_as_directive = ["math"]  # as on GitHub
myst_heading_anchors = 4
highlight_language = "text"  # of indented blocks
pygments_style, pygments_dark_style = "friendly", "github-dark"
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
add_module_names = False
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "softlook"
html_static_path = ["_static"]
html_css_files = ["softlook.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
