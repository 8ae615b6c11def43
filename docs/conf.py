"""How Sphinx builds the site; `make docs` treats every warning as an error."""

import sys
import typing
from importlib.metadata import version as installed
from pathlib import Path

import jax

jax.Array.__name__ = jax.Array.__qualname__ = "Array"  # not jaxlib._jax.Array
typing.GENERATING_DOCUMENTATION = "trip_jax"  # type: ignore[attr-defined] # jaxtyping: short names
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

project = "trip_jax"
author = "The trip_jax developers"
project_copyright = "The trip_jax developers, Apache 2.0"
version = release = installed("trip-jax")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "extensions.docstrings",
    "extensions.mathml",
    "extensions.methods",
    "extensions.notebooks",
    "extensions.offline",
    "extensions.privacy",
    "extensions.references",
    "extensions.results",
]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!trip_jax\.).*")]  # of ours only what has its full name

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

exclude_patterns = ["paper"]  # of a journal

default_role = "py:obj"  # `Record` in a docstring is a link where there is such a thing
add_module_names = False
autodoc_member_order = "bysource"
autodoc_mock_imports = ["flwr"]  # which asks for other versions of what others need
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "trip_jax"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "style" / "search.js")
html_theme_options = {"light_css_variables": {"code-font-size": "76%"}}
html_show_sphinx = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"
pygments_style = "a11y-high-contrast-light"  # which comes with the theme
pygments_dark_style = "monokai"
