"""Docstrings for the reference: as plain text, and with the comments at fields of dataclasses."""

from dataclasses import is_dataclass
from typing import Any

from sphinx.application import Sphinx

from trip_jax.settings.field_texts import comments


def add_fields(app: Sphinx, what: str, name: str, one: Any, options: Any, doc: list[str]) -> None:
    """List the fields of a dataclass below its docstring, if that does not list them itself."""
    listed = any(line.startswith("* ``") for line in doc)
    if isinstance(one, type) and is_dataclass(one) and not listed and (said := comments(one)):
        doc += ["", *(f"* ``{field}``: {text}" for field, text in said.items()), ""]


def escape(app: Sphinx, what: str, name: str, one: Any, options: Any, doc: list[str]) -> None:
    """A bar is one, as in |S|."""
    doc[:] = [line.replace("|", r"\|") for line in doc]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", add_fields, priority=600)  # after napoleon
    app.connect("autodoc-process-docstring", escape, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
