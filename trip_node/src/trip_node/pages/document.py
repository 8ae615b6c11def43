"""A page put together: one HTML file that holds its style, its program and its data.

Nothing else is loaded or run: the content security policy names the style and the program by
their hashes and forbids the rest. Data stand in a block that browsers do not run.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

WEB = files("trip_node.pages") / "web"
POLICY = (
    "default-src 'none'; style-src {style}; script-src {script}; img-src data:; "
    "connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def assemble(
    title: str,
    body: str,
    scripts: Sequence[str],
    data: dict[str, Any],
    *,
    connect: str = "'none'",
    web: "Traversable" = WEB,
) -> str:
    """The text of an HTML page with its style, program and data in it.

    Args:
        title: the title of the browser's window.
        body: the file with what <main> holds.
        scripts: files, joined in this order.
        data: what the page shows, as JSON; NaN and infinities become null.
        connect: from where its program may fetch data.
        web: the folder of these files; those that all pages share are in this package's own.
    """

    def read(name: str) -> str:
        given = web / name
        return (given if given.is_file() else WEB / name).read_text(encoding="utf-8")

    style = read("style.css")
    script = '"use strict";\n' + "\n".join(map(read, scripts))
    values = {
        "policy": POLICY.format(style=_hash(style), script=_hash(script), connect=connect),
        "title": html.escape(title),
        "style": style,
        "body": read(body),
        "data": _inert(json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))),
        "script": script,
    }
    # Split, not replaced one after another: what one part holds is no place for the next.
    first, *parts = read("page.html").split("{{")
    named = (part.split("}}", 1) for part in parts)
    return first + "".join(values[name] + text for name, text in named)


def packed(values: Any, dtype: str = "<f4") -> dict[str, str]:
    """An array as base64 of little-endian numbers, which base.js unpacks."""
    raw = np.ascontiguousarray(values, dtype).tobytes()
    return {"type": dtype[1:], "base64": base64.b64encode(raw).decode()}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inert(text: str) -> str:
    """JSON in which nothing can end its block or open a comment."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
