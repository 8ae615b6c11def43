"""What dataclasses of settings say of their fields: comments beside these, shown by `help`."""

import ast
import inspect
import textwrap
import tokenize
from contextlib import suppress
from io import StringIO
from typing import TypeVar

Class = TypeVar("Class", bound=type)


def with_field_texts(one: Class) -> Class:
    """A class whose docstring lists its fields, each with the comment beside or above it.

    The source is read when the docstring is asked for.
    """
    one.__doc__ = _Docstring(one.__doc__ or "")  # type: ignore[assignment]
    return one


class _Docstring:
    def __init__(self, first: str) -> None:
        self.first = first

    def __get__(self, instance: object, owner: type) -> str:
        said: dict[str, str] = {}
        with suppress(OSError):  # there is no source
            said = comments(owner)
        listed = "".join(f"\n* ``{field}``: {text}" for field, text in said.items())
        return f"{inspect.cleandoc(self.first)}\n{listed}\n" if said else self.first


def comments(one: type) -> dict[str, str]:
    """What a class says of its fields, beside each or right above it.

    Raises:
        OSError: its source is not at hand.
    """
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
            text = " ".join(said[line] for line in lines if line in said)
            if text and "ClassVar" not in ast.unparse(node.annotation):
                found[node.target.id] = text
        end = node.end_lineno or node.lineno
    return found
