"""The figures of a run as methods of what a user holds: `result.plot.scores()`."""

from typing import TYPE_CHECKING, Any

from trip_jax.settings import choice, require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.figures import Drawing

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

WIDTHS = {"single": 1, "double": 2}
"""Widths of figures by name, in columns of a paper."""


class Plots:
    """Figures of a run, each of which is drawn into a new figure of pyplot.

    Every method takes `title`, a text above the axes, and `width`, "single" (3.5 inches) or
    "double" (7 inches); None is what the figure needs. It returns the axes, whose
    `figure.savefig` writes a file.

    Raises:
        InvalidSetting: another width, or contributions that were not kept.
    """

    def __init__(self, data: "xarray.Dataset"):
        self._data = data

    def __repr__(self) -> str:
        return "Plots(scores, phi, accuracy, graph)"

    def scores(self, *, title: str | None = None, width: str | None = None) -> "Axes":
        """Each client's score, the highest first, and what its data differ in beneath."""
        return self._drawn("scores", title, width)

    def phi(self, *, title: str | None = None, width: str | None = None) -> "Axes":
        """The contribution of each client (column) to each client's final model (row)."""
        require("phi" in self._data, "phi was not kept: set keep_phi=True.")
        return self._drawn("phi", title, width)

    def accuracy(self, *, title: str | None = None, width: str | None = None) -> "Axes":
        """Test accuracy of the clients' models after each round: mean, deviation, extremes."""
        return self._drawn("accuracy", title, width)

    def graph(self, *, title: str | None = None, width: str | None = None) -> "Axes":
        """Who sends to whom; clients are coloured by their scores."""
        return self._drawn("graph", title, width)

    def _drawn(self, name: str, title: str | None, width: str | None) -> "Axes":
        if width is not None:
            choice("width", width, tuple(WIDTHS))
        try:
            from matplotlib import pyplot

            from trip_jax.results import figures
            from trip_jax.results.figure_style import drawn_as
        except ModuleNotFoundError as error:
            raise InvalidSetting("Figures need matplotlib: pip install matplotlib.") from error
        drawing = Drawing(columns=WIDTHS[width] if width else None, titles=False)
        with drawn_as(drawing, pyplot.figure):
            axes: Any = getattr(figures, name)(self._data).axes[0]
        if title is not None:
            axes.figure.suptitle(title, size=9, weight="bold", parse_math=False)
        return axes
