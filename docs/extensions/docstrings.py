"""Docstrings for the reference: as plain text, and with the comments at fields of dataclasses."""

import ast
import inspect
import textwrap
import tokenize
from dataclasses import is_dataclass
from io import StringIO
from typing import Any

from sphinx.application import Sphinx


def comments(one: type) -> dict[str, str]:
    """What a class says of its fields, beside each or right above it."""
    source = textwrap.dedent(inspect.getsource(one))
    said = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found, end = {}, definition.lineno
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(end + 1, (node.end_lineno or node.lineno) + 1)
            if text := " ".join(said[line] for line in lines if line in said):
                found[node.target.id] = text
        end = node.end_lineno or node.lineno
    return found


def add_fields(app: Sphinx, what: str, name: str, one: Any, options: Any, doc: list[str]) -> None:
    """List the fields of a dataclass below its docstring."""
    if isinstance(one, type) and is_dataclass(one) and (said := comments(one)):
        doc += ["", *(f"* ``{field}``: {text}" for field, text in said.items()), ""]


def escape(app: Sphinx, what: str, name: str, one: Any, options: Any, doc: list[str]) -> None:
    """A bar is one, as in |S|."""
    doc[:] = [line.replace("|", r"\|") for line in doc]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", add_fields, priority=600)  # after napoleon
    app.connect("autodoc-process-docstring", escape, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
