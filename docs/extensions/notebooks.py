"""A notebook as a part of a page: its text, its code, and the outputs that are stored in it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

TITLE = re.compile(r"\A# .*\n*")
"""The notebook's own title; the page has one."""

LINKS = {"](../../docs/": "](", "](methods.ipynb)": "](compare_methods.md)"}
"""How links in notebooks begin, and how the same links begin in pages of docs/."""


def text_of(cell: dict[str, Any]) -> str:
    """A cell's source, with its links as a page has them."""
    text = "".join(cell["source"])
    for of_notebook, of_page in LINKS.items():
        text = text.replace(of_notebook, of_page)
    return text


def shown(output: dict[str, Any]) -> str:
    """What a page shows of an output: a figure or a run's report, else its text."""
    data = output.get("data", {})
    html = "".join(data.get("text/html", ""))
    if html.startswith("<iframe "):
        return html.replace("<iframe ", '<iframe title="The report of the run" ', 1)
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="What the code above draws" src="data:image/png;base64,{picture}">'
    return "".join(data.get("text/plain", output.get("text", "")))


def markdown(notebook: dict[str, Any]) -> Iterator[str]:
    """The notebook in Markdown, cell by cell."""
    for k, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            yield text_of(cell) if k else TITLE.sub("", text_of(cell))
            continue
        yield f"```python\n{text_of(cell)}\n```"
        for output in filter(None, map(shown, cell["outputs"])):
            kind = "{raw} html" if output.startswith(("<img ", "<iframe ")) else "text"
            yield f"```{kind}\n{output}\n```"


class Notebook(SphinxDirective):
    """`{notebook} PATH`: the notebook at a path from the page's folder."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        source = Path(self.get_source_info()[0])
        path = (source.parent / self.arguments[0]).resolve()
        self.env.note_dependency(str(path))
        text = "\n\n".join(markdown(json.loads(path.read_text(encoding="utf-8"))))
        parent = nodes.section()
        parent.document = self.state.document
        self.state.nested_parse(
            StringList(text.split("\n"), str(path)), 0, parent, match_titles=True
        )
        return list(parent.children)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("notebook", Notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
