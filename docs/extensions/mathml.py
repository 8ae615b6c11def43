"""Equations as MathML, which browsers draw without a script; docutils translates them."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

FENCE = re.compile(r"<mo[^>]*>([‖{}|])</mo>")
"""Fences that docutils leaves to the browser, which makes them as tall as the equation."""


def drawn(equation: str, as_block: bool = False) -> str:
    """An equation in TeX as MathML, with fences as tall as letters."""
    return FENCE.sub(r'<mo stretchy="false">\1</mo>', tex2mathml(equation, as_block=as_block))


def inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(drawn(node.astext()))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """An equation of a line or more, scrolled where the screen is narrow."""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(drawn(node.astext(), as_block=True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
