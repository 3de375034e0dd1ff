# SPDX-License-Identifier: Apache-2.0
"""Configuration of the documentation: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import torch_ndd  # noqa: E402
from torch_ndd._core.operators.definition import OPERATORS  # noqa: E402

project = "torch_ndd"
author = "The torch_ndd authors"
copyright = author
version = release = torch_ndd.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "gallery",
    "chart",
    "reference",
]
exclude_patterns = ["_build", "_ext"]
nitpicky = False
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline", "substitution"]
myst_substitutions = {"operators": len(OPERATORS)}
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the descriptions of arguments name the types
napoleon_google_docstring = True
napoleon_numpy_docstring = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = f"torch_ndd {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
