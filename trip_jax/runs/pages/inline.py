"""The page of a run inside a notebook."""

from html import escape


class InlinePage:
    """A page that notebooks show in a frame; it runs its own script and fetches nothing.

    Args:
        html: the whole page.
        height: the height of the frame in pixels.
    """

    def __init__(self, html: str, height: int = 900):
        self.html, self._height = html, height

    def __repr__(self) -> str:
        return f"InlinePage({len(self.html):,} characters)"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" width="100%" '
            f'height="{self._height}"></iframe>'
        )
